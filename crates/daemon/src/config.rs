//! What the daemon is told to do: defaults, overridden by the config file, overridden by flags.
//! [`Options::read_again`] reads the file anew.
//!
//! Names, ranges and texts come from two lists, [`tunables::all`] and [`DAEMON_OPTIONS`]; the
//! command line, the config file and the reference are all made from them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pghot_engine::names::no_such;
use pghot_engine::{Kind, Policies, Settings};
use pghot_hotness::Format;
use pghot_sources::tunables;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::log::LogFormat;
use crate::policy;

mod options;
pub mod save;

pub use options::{DAEMON_OPTIONS, DaemonOption, mode_name};

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
    /// Whom a daemon that is started as root becomes.
    pub user: String,
    /// Where metrics are served over HTTP, if they are.
    pub metrics_address: Option<SocketAddr>,
    /// How the log is written.
    pub log_format: LogFormat,
    /// Who collects traces, if somebody does.
    pub otlp_endpoint: Option<SocketAddr>,
    /// Where the newest access profile goes, if profiles are recorded.
    pub record_file: Option<PathBuf>,
    /// How long each lasts.
    pub record_seconds: u32,
    /// How many are kept.
    pub record_keep: u32,
    /// How much may be recorded in a day, in MB.
    pub record_day_max_mb: u32,
    /// Where all this comes from.
    pub told: Told,
}

/// Where options come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The config file, if one was named.
    pub file: Option<PathBuf>,
    /// What the command line says.
    pub flags: Vec<Assignment>,
}

impl Told {
    /// The config file, whether it exists or not.
    pub fn path(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new(DEFAULT_CONFIG))
    }

    /// Whether the command line sets an option.
    pub fn has_flag(&self, name: &str) -> bool {
        self.flags.iter().any(|flag| flag.name == name)
    }
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

    fn is_missing(&self) -> bool {
        let missing = io::ErrorKind::NotFound;
        matches!(self, ConfigError::Read { source, .. } if source.kind() == missing)
    }

    fn because_of_the_mode(mut self) -> ConfigError {
        if let ConfigError::Invalid { message, .. } = &mut self {
            message.push_str("; the file has another mode than the daemon, which needs a restart");
        }
        self
    }
}

/// Like [`load`] for a command that only wants to know where things are: what else is wrong in the
/// file keeps nobody from asking the daemon, or from putting settings back. Returns that too.
pub fn load_paths(
    config: Option<&Path>,
    flags: Vec<Assignment>,
) -> Result<(Options, Option<ConfigError>), ConfigError> {
    let error = match load(config, flags.clone()) {
        Ok(options) => return Ok((options, None)),
        Err(error) if error.is_usage() || error.is_missing() => return Err(error),
        Err(error) => error,
    };
    let file = config.map(Path::to_owned);
    let told = Told { file, flags };
    let text = std::fs::read_to_string(told.path()).unwrap_or_default();
    let table = DeTable::parse(&text).ok();
    let entries = table.iter().flat_map(|table| table.get_ref().iter());
    let strings = entries.filter_map(|(key, value)| match value.get_ref() {
        DeValue::String(text) => Some(Assignment {
            name: key.get_ref().to_string(),
            text: text.to_string(),
            origin: Origin::Flag,
        }),
        _ => None,
    });
    // Each alone, so that one that is wrong does not take the others with it.
    let right = strings.filter(|set| resolve(std::slice::from_ref(set)).is_ok());
    let mut assignments: Vec<Assignment> = right.collect();
    assignments.extend_from_slice(&told.flags);
    let options = resolve(&assignments)?;
    Ok((Options { told, ..options }, Some(error)))
}

/// Lays the flags over the config file over the defaults. Without `config`, [`DEFAULT_CONFIG`] is
/// read if it exists.
pub fn load(config: Option<&Path>, flags: Vec<Assignment>) -> Result<Options, ConfigError> {
    let file = config.map(Path::to_owned);
    let told = Told { file, flags };
    let mut assignments = read(&told)?;
    assignments.extend_from_slice(&told.flags);
    let options = resolve(&assignments)?;
    Ok(Options { told, ..options })
}

/// What the config file says.
fn read(told: &Told) -> Result<Vec<Assignment>, ConfigError> {
    let path = told.path();
    match std::fs::read_to_string(path) {
        Ok(text) => parse_file(path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound && told.file.is_none() => {
            Ok(Vec::new())
        }
        Err(source) => {
            let path = path.to_owned();
            Err(ConfigError::Read { path, source })
        }
    }
}

/// What a config file says that is read again while the daemon runs.
#[derive(Debug)]
pub struct Again {
    /// The options of a daemon that is started anew.
    pub restarted: Options,
    /// The tunables in the mode of the daemon that runs.
    pub settings: Settings,
    /// The same without the flags.
    pub of_file: Settings,
}

impl Options {
    /// Reads the config file again. It must be right for a restart as well as for the daemon that
    /// runs, whose mode stays.
    pub fn read_again(&self) -> Result<Again, ConfigError> {
        let of_file = read(&self.told)?;
        let with_flags = |mut assignments: Vec<Assignment>| {
            assignments.extend_from_slice(&self.told.flags);
            assignments
        };
        let mut restarted = resolve(&with_flags(of_file.clone()))?;
        restarted.told = self.told.clone();
        let mut same_mode = of_file;
        same_mode.retain(|set| set.name != "mode");
        same_mode.push(Assignment {
            name: "mode".to_owned(),
            text: mode_name(self.settings.mode).to_owned(),
            origin: Origin::Flag,
        });
        let in_mode = |assignments: Vec<Assignment>| {
            // All is right for a restart, so this can only be a value of another mode.
            let resolved = resolve(&assignments).map_err(ConfigError::because_of_the_mode);
            resolved.map(|options| options.settings)
        };
        Ok(Again {
            restarted,
            of_file: in_mode(same_mode.clone())?,
            settings: in_mode(with_flags(same_mode))?,
        })
    }
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

/// The value of a key as text: a number for a tunable, a string for a daemon option. Some tunables
/// take words, and a set takes a list of them too.
fn value_text(name: &str, value: &DeValue) -> Result<String, String> {
    let tunable = tunables::find(name).ok();
    let takes_text = tunable.is_some_and(|tunable| tunable.kind != Kind::Number);
    let is_set = tunable.is_some_and(|tunable| !tunable.kind.members().1.is_empty());
    let option = DAEMON_OPTIONS.iter().find(|option| option.name == name);
    let (is_option, is_number) = (option.is_some(), option.is_some_and(|it| it.is_number));
    match value {
        DeValue::Integer(number) if tunable.is_some() || is_number => {
            let value = i64::from_str_radix(number.as_str(), number.radix());
            value
                .map(|value| value.to_string())
                .map_err(|_| format!("{name} is too large"))
        }
        DeValue::String(text) if (is_option && !is_number) || takes_text => Ok(text.to_string()),
        DeValue::Array(words) if is_set => {
            let word = |word: &Spanned<DeValue>| match word.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                other => Err(format!(
                    "{name} takes a list of strings, and here is {}",
                    what(other)
                )),
            };
            let words: Vec<String> = words.iter().map(word).collect::<Result<_, _>>()?;
            Ok(match words.is_empty() {
                true => "none".to_owned(),
                false => words.join(","),
            })
        }
        other if is_number => Err(format!("{name} takes a number, not {}", what(other))),
        other if is_option => Err(format!("{name} takes a string, not {}", what(other))),
        other => Err(match tunable {
            Some(tunable) => format!("{name} takes {}, not {}", tunable.kind.takes(), what(other)),
            None => no_such("option", name, option_names()),
        }),
    }
}

/// What kind of value this is, with its article.
fn what(value: &DeValue) -> String {
    let kind = value.type_str();
    let article = if kind.starts_with(['a', 'i']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {kind}")
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
        user: String::new(),
        metrics_address: None,
        log_format: LogFormat::default(),
        otlp_endpoint: None,
        record_file: None,
        record_seconds: 0,
        record_keep: 0,
        record_day_max_mb: 0,
        told: Told::default(),
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
mod tests;
