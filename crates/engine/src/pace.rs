//! When the next pass begins.

/// The start of the next pass, in ms.
///
/// Passes begin `sleep_ms` apart, so that a page waits one interval at most before a pass sees it.
/// A pass that took longer is followed by a rest of a quarter interval: a migrator that is never
/// done must not take a whole CPU.
pub fn next_pass_ms(started_ms: u64, ended_ms: u64, sleep_ms: u64) -> u64 {
    let due_ms = started_ms + sleep_ms;
    if ended_ms <= due_ms {
        due_ms
    } else {
        ended_ms + sleep_ms / 4
    }
}

#[cfg(test)]
mod tests {
    use super::next_pass_ms;

    #[test]
    fn passes_keep_the_interval_and_always_rest() {
        assert_eq!(next_pass_ms(1000, 1001, 100), 1100);
        assert_eq!(next_pass_ms(1000, 1070, 100), 1100);
        assert_eq!(next_pass_ms(1000, 1100, 100), 1100);
        assert_eq!(next_pass_ms(1000, 1101, 100), 1126);
        assert_eq!(next_pass_ms(1000, 5000, 100), 5025);
    }
}
