//! The control group of a process, in the unified hierarchy (cgroup v2).

use std::path::Path;

/// Its path relative to the hierarchy's mount, from the files below `proc`. `None` outside of our
/// cgroup namespace, without cgroup v2, or if the process is gone.
pub fn of(proc: &Path, pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(proc.join(format!("{pid}/cgroup"))).ok()?;
    path_in(&text).map(str::to_owned)
}

fn path_in(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    (!path.starts_with("..")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_counts() {
        assert_eq!(path_in("1:cpu:/x\n0::/a/b.slice\n"), Some("a/b.slice"));
        assert_eq!(path_in("0::/\n"), Some(""));
        assert_eq!(path_in("0::/../b\n"), None);
        assert_eq!(path_in("1:cpu:/x\n"), None);
    }
}
