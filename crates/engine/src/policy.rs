//! What an operator says of programs: who is never moved, who never goes down, and whose share of
//! the top tier is how large.
//!
//! An entry names a cgroup, a process, or both, by patterns. Of several entries that fit a program
//! the first one holds, and without any entry nothing is different.

use std::fmt;
use std::iter::successors;
use std::sync::Arc;

use wildmatch::WildMatch;

use crate::Program;

/// Letters that the kernel keeps of a process's name.
const NAME_LETTERS: usize = 15;

/// The smallest weight and the largest, as of the kernel's own controllers.
const WEIGHTS: (u32, u32) = (1, 10_000);

/// The weight of a cgroup without an entry.
const WEIGHT: u32 = 100;

/// A name with wildcards: `*` stands for any letters, slashes too, and `?` for one letter.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern(WildMatch);

impl Eq for Pattern {}

/// Why an entry cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyError {
    /// It names nobody.
    Nobody,
    /// It says nothing of them.
    Nothing,
    /// It is about processes, and says what holds for cgroups only.
    ForCgroups(&'static str),
    /// No share is so large or so small.
    Weight(i64),
    /// No cgroup can be meant.
    NoPath(String),
    /// No process can be meant.
    NoName(String),
    /// It looks like a pattern of another kind.
    Class(String),
    /// No process has so long a name.
    LongName(String),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Nobody => write!(
                f,
                "a policy needs `cgroup` or `process`, to say whom it is about"
            ),
            PolicyError::Nothing => write!(
                f,
                "a policy says nothing without `exclude`, `protect` or `weight`; remove it, or \
                 say what it is for"
            ),
            PolicyError::ForCgroups(key) => write!(
                f,
                "`{key}` is for cgroups, since the kernel demotes by cgroup: name one with \
                 `cgroup` alone"
            ),
            PolicyError::Weight(weight) => write!(
                f,
                "weight is {} to {}, not {weight}; a cgroup without one has {WEIGHT}",
                WEIGHTS.0, WEIGHTS.1
            ),
            PolicyError::NoPath(text) => write!(
                f,
                "cgroup is a path below the cgroup mount such as /system.slice/postgres*, not \
                 `{text}`"
            ),
            PolicyError::NoName(text) => {
                write!(f, "process is a name such as redis-server, not `{text}`")
            }
            PolicyError::Class(text) => write!(
                f,
                "`*` stands for any letters and `?` for one; there are no brackets or braces as in \
                 `{text}`"
            ),
            PolicyError::LongName(text) => write!(
                f,
                "the kernel keeps {NAME_LETTERS} letters of a process's name, so no process is \
                 named `{text}`: see /proc/PID/comm, or end with `*`"
            ),
        }
    }
}

impl std::error::Error for PolicyError {}

impl Pattern {
    /// For the path of a cgroup. What is below a cgroup that fits, fits too.
    pub fn of_cgroup(text: &str) -> Result<Pattern, PolicyError> {
        // `//` and a slash at the end are in no path of the kernel's.
        let is_path = text == "/" || (text.starts_with('/') && !text.ends_with('/'));
        if !is_path || text.contains("//") || text.contains(char::is_control) {
            return Err(PolicyError::NoPath(printable(text)));
        }
        Pattern::new(text)
    }

    /// For the name of a process.
    pub fn of_process(text: &str) -> Result<Pattern, PolicyError> {
        if text.is_empty() || text.contains(char::is_control) {
            return Err(PolicyError::NoName(printable(text)));
        }
        if !text.contains('*') && text.len() > NAME_LETTERS {
            return Err(PolicyError::LongName(text.to_owned()));
        }
        Pattern::new(text)
    }

    fn new(text: &str) -> Result<Pattern, PolicyError> {
        match text.contains(['[', ']', '{', '}']) {
            true => Err(PolicyError::Class(text.to_owned())),
            false => Ok(Pattern(WildMatch::new(text))),
        }
    }

    fn fits(&self, name: &str) -> bool {
        self.0.matches(name)
    }

    /// Whether it fits the path of a cgroup, or of one above it.
    pub fn fits_path(&self, path: &str) -> bool {
        path.starts_with('/') && successors(Some(path), above).any(|path| self.fits(path))
    }
}

fn above<'a>(path: &&'a str) -> Option<&'a str> {
    let (above, _) = path.rsplit_once('/').filter(|_| *path != "/")?;
    Some(if above.is_empty() { "/" } else { above })
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn printable(text: &str) -> String {
    text.escape_debug().to_string()
}

/// One entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// The cgroups that are meant.
    pub cgroup: Option<Pattern>,
    /// The processes that are meant; with a cgroup, those in it.
    pub process: Option<Pattern>,
    /// Their memory is never moved by pghot.
    pub exclude: bool,
    /// It is promoted, and never demoted by pghot.
    pub protect: bool,
    /// Its weight, where the top tier is divided.
    pub weight: Option<u32>,
}

impl Policy {
    /// A weight within its bounds.
    pub fn weight(number: i64) -> Result<u32, PolicyError> {
        let weight = u32::try_from(number).ok();
        let weight = weight.filter(|weight| (WEIGHTS.0..=WEIGHTS.1).contains(weight));
        weight.ok_or(PolicyError::Weight(number))
    }

    /// Whether it says something, of somebody.
    pub fn check(&self) -> Result<(), PolicyError> {
        let says = self.exclude || self.protect || self.weight.is_some();
        match (&self.cgroup, &self.process) {
            (None, None) => Err(PolicyError::Nobody),
            _ if !says => Err(PolicyError::Nothing),
            (_, Some(_)) if self.protect => Err(PolicyError::ForCgroups("protect")),
            (_, Some(_)) if self.weight.is_some() => Err(PolicyError::ForCgroups("weight")),
            _ => Ok(()),
        }
    }

    fn fits(&self, program: &Program) -> bool {
        let in_cgroup = |pattern: &Pattern| pattern.fits_path(&program.cgroup);
        let is_named = |pattern: &Pattern| pattern.fits(&program.name);
        self.cgroup.as_ref().is_none_or(in_cgroup) && self.process.as_ref().is_none_or(is_named)
    }
}

/// All entries, in order. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policies(Arc<[Policy]>);

impl Policies {
    /// These, each of which must pass its check.
    pub fn new(entries: Vec<Policy>) -> Policies {
        Policies(entries.into())
    }

    /// Nothing is said of anybody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Some entry says whose share is how large.
    pub fn has_weights(&self) -> bool {
        self.0.iter().any(|policy| policy.weight.is_some())
    }

    /// The weight of a cgroup.
    pub fn weight(&self, path: &str) -> u32 {
        let policy = self.of_cgroup(path);
        policy.and_then(|policy| policy.weight).unwrap_or(WEIGHT)
    }

    /// Whether pghot may demote pages of a cgroup.
    pub fn may_go(&self, path: &str) -> bool {
        let policy = self.of_cgroup(path);
        !policy.is_some_and(|policy| policy.exclude || policy.protect)
    }

    /// What holds for a program.
    pub fn of(&self, program: &Program) -> Option<&Policy> {
        self.0.iter().find(|policy| policy.fits(program))
    }

    /// What holds for all of a cgroup, by its path: entries about processes do not.
    pub fn of_cgroup(&self, path: &str) -> Option<&Policy> {
        let fits = |pattern: &Pattern| pattern.fits_path(path);
        let of_all = self.0.iter().filter(|policy| policy.process.is_none());
        let mut of_all = of_all.filter(|policy| policy.cgroup.as_ref().is_some_and(fits));
        of_all.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluding(cgroup: &str, process: &str) -> Policy {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Policy {
            cgroup: some(cgroup).map(|text| Pattern::of_cgroup(&text).unwrap()),
            process: some(process).map(|text| Pattern::of_process(&text).unwrap()),
            exclude: true,
            ..Policy::default()
        }
    }

    fn program(cgroup: &str, name: &str) -> Program {
        Program {
            pid: 7,
            name: name.into(),
            cgroup: cgroup.into(),
        }
    }

    #[test]
    fn a_cgroup_is_meant_with_all_below() {
        let policies = Policies::new(vec![excluding("/system.slice/postgres*", "")]);
        let is_meant = |path: &str| {
            let by_program = policies.of(&program(path, "x")).is_some();
            assert_eq!(by_program, policies.of_cgroup(path).is_some(), "{path}");
            by_program
        };
        assert!(is_meant("/system.slice/postgresql.service"));
        assert!(is_meant("/system.slice/postgresql.service/worker/1"));
        for other in [
            "/system.slice",
            "/user.slice/postgresql",
            "/",
            "",
            "(files)",
        ] {
            assert!(!is_meant(other), "{other}");
        }
        let all = Policies::new(vec![excluding("/", "")]);
        assert!(all.of_cgroup("/").is_some() && all.of_cgroup("/a/b").is_some());
        assert!(all.of_cgroup("").is_none(), "its cgroup is not known");
    }

    #[test]
    fn the_first_entry_that_fits_holds() {
        let both = excluding("/a", "redis-server");
        let but_not = Policy {
            exclude: false,
            ..excluding("/a/kept", "")
        };
        let policies = Policies::new(vec![both, but_not, excluding("/a", "")]);
        let is_excluded = |cgroup, name| {
            let policy = policies.of(&program(cgroup, name));
            policy.is_some_and(|policy| policy.exclude)
        };
        assert!(is_excluded("/a/kept", "redis-server"));
        assert!(!is_excluded("/a/kept", "redis-serve"));
        assert!(is_excluded("/a/other", "x"));
        assert!(!is_excluded("/b", "redis-server"));
        assert!(!policies.of_cgroup("/a/kept").unwrap().exclude);
    }

    #[test]
    fn what_cannot_be_meant_is_one_sentence() {
        for text in ["", "a", "/a/", "/a//b", "/a\n", "system.slice/x"] {
            let error = Pattern::of_cgroup(text).unwrap_err().to_string();
            assert!(
                error.contains("is a path") && !error.contains('\n'),
                "{error}"
            );
        }
        let error = Pattern::of_process("").unwrap_err().to_string();
        assert!(error.contains("is a name"), "{error}");
        let error = Pattern::of_process("sixteen-letters.").unwrap_err();
        assert!(error.to_string().contains("15 letters"), "{error}");
        assert!(Pattern::of_process("sixteen-letters.*").is_ok());
        for text in ["/a/[bc]", "/a/{b,c}"] {
            let error = Pattern::of_cgroup(text).unwrap_err().to_string();
            assert!(error.contains("no brackets"), "{error}");
        }
        assert_eq!(Policy::default().check(), Err(PolicyError::Nobody));
        let idle = Policy {
            exclude: false,
            ..excluding("/a", "")
        };
        assert_eq!(idle.check(), Err(PolicyError::Nothing));
        let protect = Policy {
            protect: true,
            ..excluding("/a", "x")
        };
        assert_eq!(protect.check(), Err(PolicyError::ForCgroups("protect")));
        assert_eq!(Policy::weight(0), Err(PolicyError::Weight(0)));
        assert_eq!(Policy::weight(10_000), Ok(10_000));
    }
}
