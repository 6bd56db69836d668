//! The entries `[[policy]]` of the config file.

use pghot_engine::names::no_such;
use pghot_engine::{Pattern, Policy, PolicyError};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Their key.
pub const KEY: &str = "policy";

/// An entry as it is written. As text it is JSON: the values of options are text.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Entry {
    cgroup: Option<String>,
    process: Option<String>,
    exclude: bool,
    protect: bool,
    weight: Option<i64>,
}

/// The keys of an entry.
const KEYS: [&str; 5] = ["cgroup", "process", "exclude", "protect", "weight"];

/// Each entry as text, with its place in the file; or what is wrong, and where.
pub fn texts(value: &Spanned<DeValue>) -> Result<Vec<(usize, String)>, (usize, String)> {
    let here = value.span().start;
    let not_a_list = || (here, "policy is a list: write [[policy]]".to_owned());
    let DeValue::Array(entries) = value.get_ref() else {
        return Err(not_a_list());
    };
    let text = |entry: &Spanned<DeValue>| {
        let DeValue::Table(table) = entry.get_ref() else {
            return Err(not_a_list());
        };
        Ok((entry.span().start, text(table)?))
    };
    entries.iter().map(text).collect()
}

fn text(table: &DeTable) -> Result<String, (usize, String)> {
    let mut entry = Entry::default();
    // Tables are sorted by key; errors should come in the order of the file.
    let mut keys: Vec<_> = table.iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in keys {
        let (name, value) = (key.get_ref().as_ref(), value.get_ref());
        let wrong = |takes| {
            let message = format!("{name} takes {takes}, not: {}", value.type_str());
            (key.span().start, message)
        };
        let string = || match value {
            DeValue::String(text) => Ok(Some(text.to_string())),
            _ => Err(wrong("a string")),
        };
        match (name, value) {
            ("cgroup", _) => entry.cgroup = string()?,
            ("process", _) => entry.process = string()?,
            ("exclude", DeValue::Boolean(is)) => entry.exclude = *is,
            ("protect", DeValue::Boolean(is)) => entry.protect = *is,
            ("exclude" | "protect", _) => return Err(wrong("true or false")),
            ("weight", DeValue::Integer(number)) => {
                let weight = i64::from_str_radix(number.as_str(), number.radix());
                entry.weight = Some(weight.unwrap_or(i64::MAX));
            }
            ("weight", _) => return Err(wrong("a whole number")),
            _ => return Err((key.span().start, no_such("policy key", name, KEYS))),
        }
    }
    // JSON has all that is in it.
    Ok(serde_json::to_string(&entry).unwrap_or_default())
}

/// The entry of such a text.
pub fn parse(text: &str) -> Result<Policy, String> {
    let entry: Entry = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let policy = || -> Result<Policy, PolicyError> {
        let policy = Policy {
            cgroup: entry
                .cgroup
                .as_deref()
                .map(Pattern::of_cgroup)
                .transpose()?,
            process: (entry.process.as_deref().map(Pattern::of_process)).transpose()?,
            exclude: entry.exclude,
            protect: entry.protect,
            weight: entry.weight.map(Policy::weight).transpose()?,
        };
        policy.check().map(|()| policy)
    };
    policy().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use pghot_engine::Program;

    use crate::config::{ConfigError, Options, load};

    fn from_file(text: &str) -> Result<Options, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pghot.toml");
        std::fs::write(&path, text).unwrap();
        let flags = Vec::new();
        load(Some(&path), flags)
    }

    #[test]
    fn entries_are_read_in_their_order() {
        let text = "mode = \"precision\"\n\
                    [[policy]]\ncgroup = \"/system.slice/postgres*\"\nexclude = true\n\
                    [[policy]]\nprocess = \"redis-server\"\nexclude = true\n";
        let policies = from_file(text).unwrap().settings.policies;
        let is_excluded = |name: &str, cgroup: &str| {
            let program = Program {
                pid: 1,
                name: name.into(),
                cgroup: cgroup.into(),
            };
            policies.of(&program).is_some_and(|policy| policy.exclude)
        };
        assert!(is_excluded("x", "/system.slice/postgresql.service"));
        assert!(is_excluded("redis-server", "/"));
        assert!(!is_excluded("redis", "/system.slice"));
        assert!(from_file("").unwrap().settings.policies.is_empty());
        assert!(
            from_file("policy = []")
                .unwrap()
                .settings
                .policies
                .is_empty()
        );
    }

    #[test]
    fn a_bad_entry_is_one_sentence_with_its_line() {
        let table = [
            ("policy = 3", "line 1: policy is a list: write [[policy]]"),
            ("[policy]\nexclude = true", "line 1: policy is a list"),
            ("policy = [1]", "line 1: policy is a list"),
            (
                "[[policy]]\ncgroup = \"/a\"\nexclud = true",
                "line 3: there is no policy key `exclud`: did you mean `exclude`?",
            ),
            (
                "[[policy]]\ncgroup = \"/a\"\n  wieght = 3",
                "line 3: there is no policy key `wieght`: did you mean `weight`?",
            ),
            (
                "[[policy]]\ncgroup = \"/a\"\nspeed = 3",
                "there are cgroup, process, exclude, protect, weight",
            ),
            (
                "[[policy]]\ncgroup = 4\nexclude = true",
                "line 2: cgroup takes a string, not: integer",
            ),
            (
                "[[policy]]\ncgroup = \"/a\"\nexclude = \"yes\"",
                "line 3: exclude takes true or false, not: string",
            ),
            (
                "\n[[policy]]\nexclude = true",
                "line 2: a policy needs `cgroup` or `process`",
            ),
            (
                "[[policy]]\ncgroup = \"/a\"",
                "line 1: a policy says nothing without",
            ),
            (
                "[[policy]]\nprocess = \"redis\"\nweight = 200",
                "line 1: `weight` is for cgroups",
            ),
            (
                "[[policy]]\ncgroup = \"/a\"\nweight = 0",
                "line 1: weight is 1 to 10000, not 0",
            ),
            (
                "[[policy]]\ncgroup = \"/a\"\nweight = \"2\"",
                "line 3: weight takes a whole number, not: string",
            ),
            (
                "freq_threshold = 2\n[[policy]]\ncgroup = \"a\"\nexclude = true",
                "line 2: cgroup is a path below the cgroup mount",
            ),
            (
                "[[policy]]\ncgroup = \"/a[bc]\"\nexclude = true",
                "line 1: `*` stands for any letters",
            ),
            (
                "[[policy]]\nprocess = \"a-name-that-is-too-long\"\nexclude = true",
                "line 1: the kernel keeps 15 letters",
            ),
        ];
        for (text, expected) in table {
            let sentence = from_file(text).unwrap_err().to_string();
            assert!(sentence.contains(expected), "{text:?}: {sentence}");
            assert!(!sentence.contains('\n'), "{sentence}");
        }
    }
}
