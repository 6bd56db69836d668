//! Names that somebody got wrong, of whatever there is a list: tunables, sources, options, systems.

/// From so alike on, of 1, a name is worth asking for.
const ALIKE_MIN: f64 = 0.8;

/// Says in a sentence that there is no such thing, and what was meant, or else what there is.
pub fn no_such<'a>(kind: &str, given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(given, &known) {
        Some(meant) => format!("there is no {kind} `{given}`: did you mean `{meant}`?"),
        None => format!(
            "there is no {kind} `{given}`; there are {}",
            known.join(", ")
        ),
    }
}

fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let given = given.to_lowercase().replace('-', "_");
    let alike = |name: &str| strsim::jaro_winkler(&given, &name.to_lowercase());
    let alike = known.iter().map(|name| (alike(name), *name));
    let nearest = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
    nearest.and_then(|(alike, name)| (alike >= ALIKE_MIN).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found_and_nothing_is_made_up() {
        let known = [
            "freq_threshold",
            "hint_fault",
            "promote_rate_limit_MBps",
            "mglru",
        ];
        for (given, meant) in [
            ("freq_treshold", Some("freq_threshold")),
            ("freq-threshold", Some("freq_threshold")),
            ("hint_faults", Some("hint_fault")),
            ("promote_rate_limit_mbps", Some("promote_rate_limit_MBps")),
            ("mgrlu", Some("mglru")),
            ("speed", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, &known), meant, "{given}");
        }
        assert_eq!(
            no_such("source", "mgrlu", known),
            "there is no source `mgrlu`: did you mean `mglru`?"
        );
        let list = no_such("source", "speed", ["a", "b"]);
        assert_eq!(list, "there is no source `speed`; there are a, b");
    }
}
