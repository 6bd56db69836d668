//! Reads the config file: one key per option, nothing else. A mistake is named with its line.

use std::path::Path;

use pghot_engine::{Kind, TUNABLES};
use toml::de::{DeTable, DeValue};

use crate::config::{Assignment, ConfigError, DAEMON_OPTIONS, Origin, option_names};

/// Reads the assignments of a config file: one key per option, nothing else.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Assignment>, ConfigError> {
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
        let text = value_text(name, value.get_ref()).map_err(|message| invalid(at, message))?;
        let (name, origin) = (name.to_owned(), origin(at));
        assignments.push(Assignment { name, text, origin });
    }
    Ok(assignments)
}

/// The value of a key as text: a number for a tunable, a string for a daemon option.
fn value_text(name: &str, value: &DeValue) -> Result<String, String> {
    let tunable = TUNABLES.iter().find(|tunable| tunable.name == name);
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
