//! What the daemon is told to do: defaults, overridden by the config file, overridden by flags.
//!
//! Names, ranges and texts come from two lists, [`tunables::all`] and [`DAEMON_OPTIONS`]; the
//! command line, the config file and the reference are all made from them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pghot_engine::{Kind, Policies, Settings};
use pghot_hotness::Format;
use pghot_sources::tunables;
use toml::de::{DeTable, DeValue};

use crate::policy;

/// Read if it exists and no other file is named.
pub const DEFAULT_CONFIG: &str = "/etc/pghot/pghot.toml";

/// What the daemon is told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The tunables and the mode.
    pub settings: Settings,
    /// Observe and decide, but move nothing.
    pub dry_run: bool,
    /// Wait for a lower tier where there is none yet.
    pub wait_for_lower_tier: bool,
    /// The control socket.
    pub socket: PathBuf,
    /// Where others than root read the status.
    pub status_socket: PathBuf,
    /// Where applications' hints arrive.
    pub hint_socket: PathBuf,
    /// Where changed kernel settings are noted.
    pub state_file: PathBuf,
    /// Where metrics are served over HTTP, if they are.
    pub metrics_address: Option<SocketAddr>,
}

/// An option that is no tunable: it is fixed while the daemon runs.
pub struct DaemonOption {
    /// Its key in the config file; the flag has dashes instead.
    pub name: &'static str,
    /// What the value is, for `--help`.
    pub value_name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The value if it is not set.
    pub default: &'static str,
    store: fn(&mut Options, &str) -> Result<(), String>,
}

/// Every option that is no tunable.
pub const DAEMON_OPTIONS: &[DaemonOption] = &[
    DaemonOption {
        name: "mode",
        value_name: "MODE",
        doc: "How much a record remembers: `default` takes 1 byte a page, `precision` 4 bytes and \
              knows the accessing node.",
        default: "default",
        store: |options, text| {
            let mode = match text {
                "default" => Format::Default,
                "precision" => Format::Precision,
                _ => return Err(format!("mode is `default` or `precision`, not `{text}`")),
            };
            options.settings = Settings::new(mode);
            Ok(())
        },
    },
    DaemonOption {
        name: "socket",
        value_name: "PATH",
        doc: "The control socket, on which `pghot status`, `explain` and `set` reach the daemon.",
        default: "/run/pghot/pghot.sock",
        store: |options, text| store_path("socket", &mut options.socket, text),
    },
    DaemonOption {
        name: "status_socket",
        value_name: "PATH",
        doc: "Where `pghot top`, `status` and `explain --last` reach the daemon without root: the \
              members of the group `pghot` may connect, if there is such a group. It tells the \
              status and the newest decisions, and changes nothing.",
        default: "/run/pghot/status.sock",
        store: |options, text| store_path("status_socket", &mut options.status_socket, text),
    },
    DaemonOption {
        name: "hint_socket",
        value_name: "PATH",
        doc: "Where applications hint at memory that they will use, while the source `app_hint` \
              runs. Every user may connect to it.",
        default: "/run/pghot/hint.sock",
        store: |options, text| store_path("hint_socket", &mut options.hint_socket, text),
    },
    DaemonOption {
        name: "state_file",
        value_name: "PATH",
        doc: "Where the kernel settings that pghot changes are noted, so that they can be put \
              back.",
        default: "/run/pghot/state.json",
        store: |options, text| store_path("state_file", &mut options.state_file, text),
    },
    DaemonOption {
        name: "metrics_address",
        value_name: "ADDRESS",
        doc: "Where metrics are served over HTTP, for Prometheus: an address and a port such as \
              `127.0.0.1:9464` or `[::1]:9464`, or `off`. Everybody who reaches the port may read \
              them. A TCP socket that the service manager passes is taken instead.",
        default: "off",
        store: |options, text| {
            let not_one = |_| {
                format!(
                    "metrics_address is an address and a port such as 127.0.0.1:9464, or off, not \
                     `{text}`"
                )
            };
            options.metrics_address = match text {
                "off" => None,
                text => Some(text.parse().map_err(not_one)?),
            };
            Ok(())
        },
    },
];

/// The name of a mode, as `mode` takes it.
pub fn mode_name(mode: Format) -> &'static str {
    match mode {
        Format::Default => "default",
        Format::Precision => "precision",
    }
}

fn store_path(name: &str, to: &mut PathBuf, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{name} is a path, and is empty here"));
    }
    *to = text.into();
    Ok(())
}

/// One option, as the user set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Name of a tunable or of a daemon option, or [`policy::KEY`].
    pub name: String,
    /// The value as text.
    pub text: String,
    /// Who said so.
    pub origin: Origin,
}

/// Where an option was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of the config file, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line } => write!(f, "{}, line {line}: ", path.display()),
            Origin::Flag => Ok(()),
        }
    }
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The config file cannot be read.
    #[error("cannot read the config file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// An option is unknown, or its value is not possible.
    #[error("{origin}{message}")]
    Invalid {
        /// Where it was set.
        origin: Origin,
        /// What is wrong, and what would be right.
        message: String,
    },
}

impl ConfigError {
    /// The mistake is on the command line.
    pub fn is_usage(&self) -> bool {
        let flag = Origin::Flag;
        matches!(self, ConfigError::Invalid { origin, .. } if *origin == flag)
    }
}

/// Lays the flags over the config file over the defaults. Without `config`, [`DEFAULT_CONFIG`] is
/// read if it exists.
pub fn load(config: Option<&Path>, flags: Vec<Assignment>) -> Result<Options, ConfigError> {
    let path = config.unwrap_or(Path::new(DEFAULT_CONFIG));
    let mut assignments = match std::fs::read_to_string(path) {
        Ok(text) => parse_file(path, &text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && config.is_none() => Vec::new(),
        Err(source) => {
            let path = path.to_owned();
            return Err(ConfigError::Read { path, source });
        }
    };
    assignments.extend(flags);
    resolve(&assignments)
}

/// Reads the assignments of a config file: one key per option, and the policies.
pub fn parse_file(path: &Path, text: &str) -> Result<Vec<Assignment>, ConfigError> {
    let origin = |at: usize| Origin::File {
        path: path.to_owned(),
        line: 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count(),
    };
    let invalid = |at: usize, message: String| ConfigError::Invalid {
        origin: origin(at),
        message,
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        invalid(at, format!("this is not TOML: {}", error.message()))
    })?;
    let mut assignments = Vec::new();
    // Tables are sorted by key; errors should come in the order of the file.
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        if name == policy::KEY {
            let texts = policy::texts(value).map_err(|(at, message)| invalid(at, message))?;
            assignments.extend(texts.into_iter().map(|(at, text)| Assignment {
                name: name.to_owned(),
                text,
                origin: origin(at),
            }));
            continue;
        }
        let text = value_text(name, value.get_ref()).map_err(|message| invalid(at, message))?;
        let (name, origin) = (name.to_owned(), origin(at));
        assignments.push(Assignment { name, text, origin });
    }
    Ok(assignments)
}

/// The value of a key as text: a number for a tunable, a string for a daemon option.
fn value_text(name: &str, value: &DeValue) -> Result<String, String> {
    let tunable = tunables::find(name).ok();
    let is_node = tunable.is_some_and(|tunable| tunable.kind == Kind::Node);
    let is_option = DAEMON_OPTIONS.iter().any(|option| option.name == name);
    match value {
        DeValue::Integer(number) if tunable.is_some() => {
            let value = i64::from_str_radix(number.as_str(), number.radix());
            value
                .map(|value| value.to_string())
                .map_err(|_| format!("{name} is too large"))
        }
        DeValue::String(text) if is_option || is_node => Ok(text.to_string()),
        other if is_option => Err(format!("{name} takes a string, not a {}", other.type_str())),
        other => Err(match tunable {
            Some(tunable) => format!(
                "{name} takes {}, not a {}",
                tunable.kind.takes(),
                other.type_str()
            ),
            None => format!(
                "there is no option `{name}`; there are {}",
                option_names().join(", ")
            ),
        }),
    }
}

/// Applies assignments in order, the daemon options first: ranges depend on the mode.
fn resolve(assignments: &[Assignment]) -> Result<Options, ConfigError> {
    let mut options = Options {
        settings: Settings::new(Format::Default),
        dry_run: false,
        wait_for_lower_tier: false,
        socket: PathBuf::new(),
        status_socket: PathBuf::new(),
        hint_socket: PathBuf::new(),
        state_file: PathBuf::new(),
        metrics_address: None,
    };
    let invalid = |origin: &Origin, message| ConfigError::Invalid {
        origin: origin.clone(),
        message,
    };
    for option in DAEMON_OPTIONS {
        (option.store)(&mut options, option.default)
            .map_err(|message| invalid(&Origin::Flag, message))?;
        for set in assignments.iter().filter(|set| set.name == option.name) {
            (option.store)(&mut options, &set.text)
                .map_err(|message| invalid(&set.origin, message))?;
        }
    }
    let is_policy = |set: &&Assignment| set.name == policy::KEY;
    let policies = assignments
        .iter()
        .filter(is_policy)
        .map(|set| policy::parse(&set.text).map_err(|message| invalid(&set.origin, message)));
    options.settings.policies = Policies::new(policies.collect::<Result<_, _>>()?);
    for set in assignments.iter().filter(|set| !is_policy(set)) {
        if DAEMON_OPTIONS.iter().any(|option| option.name == set.name) {
            continue;
        }
        tunables::set(&mut options.settings, &set.name, &set.text)
            .map_err(|error| invalid(&set.origin, error.to_string()))?;
    }
    Ok(options)
}

/// Every key of the config file.
pub fn option_names() -> Vec<&'static str> {
    let options = DAEMON_OPTIONS.iter().map(|option| option.name);
    options
        .chain(tunables::all().map(|tunable| tunable.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flag(name: &str, text: &str) -> Assignment {
        Assignment {
            name: name.into(),
            text: text.into(),
            origin: Origin::Flag,
        }
    }

    fn from_file(text: &str) -> Result<Vec<Assignment>, ConfigError> {
        parse_file(Path::new("pghot.toml"), text)
    }

    #[test]
    fn every_option_can_be_set_in_the_file() {
        let mut text = "mode = \"precision\"\nsocket = \"/a\"\nstatus_socket = \"/d\"\n\
                        hint_socket = \"/c\"\nstate_file = \"/b\"\n\
                        metrics_address = \"[::1]:9464\"\n"
            .to_owned();
        for tunable in tunables::all() {
            let (_, max) = (tunable.range)(Format::Precision);
            text.push_str(&format!("{} = {}\n", tunable.name, tunable.show(max)));
        }
        let assignments = from_file(&text).unwrap();
        let mut names: Vec<_> = assignments.iter().map(|a| a.name.as_str()).collect();
        let mut all = option_names();
        names.sort();
        all.sort();
        assert_eq!(names, all);
        let options = resolve(&assignments).unwrap();
        assert_eq!(options.settings.mode, Format::Precision);
        for tunable in tunables::all() {
            let (_, max) = (tunable.range)(Format::Precision);
            assert_eq!(options.settings.get(tunable), max, "{}", tunable.name);
        }
        assert_eq!(options.socket, Path::new("/a"));
        assert_eq!(options.metrics_address, "[::1]:9464".parse().ok());
    }

    #[test]
    fn flags_win_and_the_mode_decides_ranges_wherever_it_stands() {
        let mut assignments = from_file("freq_threshold = 1\nkmigrated_sleep_ms = 200").unwrap();
        assignments.push(flag("freq_threshold", "7"));
        assignments.push(flag("mode", "precision"));
        let options = resolve(&assignments).unwrap();
        assert_eq!(options.settings.freq_threshold, 7);
        assert_eq!(options.settings.kmigrated_sleep_ms, 200);
        assert_eq!(
            options.settings.freq_window_ms, 5000,
            "the default of the mode"
        );
        assert_eq!(options.settings.target_nid, None);
    }

    #[test]
    fn a_bad_file_is_one_sentence_with_its_line() {
        let table = [
            ("\nfreq_threshold = 9", "line 2: freq_threshold is 1 to 3"),
            (
                "freq = 1",
                "line 1: there is no option `freq`; there are mode",
            ),
            (
                "\n\nfreq_threshold = \"2\"",
                "line 3: freq_threshold takes a whole number",
            ),
            (
                "freq_threshold = 2.5",
                "line 1: freq_threshold takes a whole number",
            ),
            (
                "freq_threshold = -1",
                "line 1: freq_threshold takes a whole number, not `-1`",
            ),
            (
                "target_nid = 99999999999999999999",
                "line 1: target_nid is too large",
            ),
            ("mode = 4", "line 1: mode takes a string"),
            (
                "mode = \"fast\"",
                "line 1: mode is `default` or `precision`, not `fast`",
            ),
            ("socket = \"\"", "line 1: socket is a path"),
            (
                "metrics_address = \"localhost\"",
                "line 1: metrics_address is an address and a port",
            ),
            ("\nmode = ", "line 2: this is not TOML"),
            (
                "mode = \"default\"\nmode = \"default\"",
                "line 2: this is not TOML",
            ),
            (
                "[tunables]\nfreq_threshold = 2",
                "line 1: there is no option `tunables`",
            ),
        ];
        for (text, expected) in table {
            let error = from_file(text)
                .and_then(|assignments| resolve(&assignments))
                .unwrap_err();
            let sentence = error.to_string();
            let expected = format!("pghot.toml, {expected}");
            assert!(sentence.starts_with(&expected), "{text:?}: {sentence}");
            assert!(!sentence.contains('\n') && !error.is_usage(), "{sentence}");
        }
    }

    #[test]
    fn a_bad_flag_is_a_usage_error() {
        for (name, text) in [("mode", "x"), ("freq_threshold", "0"), ("target_nid", "a")] {
            let error = resolve(&[flag(name, text)]).unwrap_err();
            assert!(
                error.is_usage() && error.to_string().contains(name),
                "{error}"
            );
        }
    }

    #[test]
    fn a_named_file_must_exist() {
        let missing = Path::new("/nonexistent/pghot.toml");
        let error = load(Some(missing), Vec::new()).unwrap_err().to_string();
        assert!(
            error.starts_with("cannot read the config file /nonexistent/pghot.toml"),
            "{error}"
        );
    }
}
