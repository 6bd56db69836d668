//! The options that are no tunables: they are fixed while the daemon runs.

use std::net::SocketAddr;
use std::path::PathBuf;

use pghot_engine::Settings;
use pghot_hotness::Format;
use pghot_linux::rights::DEFAULT_USER;

use super::Options;

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
    /// Whether the config file has a number, and not a string.
    pub is_number: bool,
    pub(super) store: fn(&mut Options, &str) -> Result<(), String>,
    /// Its value as text.
    pub show: fn(&Options) -> String,
}

/// Every option that is no tunable.
pub const DAEMON_OPTIONS: &[DaemonOption] = &[
    DaemonOption {
        name: "mode",
        value_name: "MODE",
        doc: "How much a record remembers: `default` takes 1 byte a page, `precision` 4 bytes and \
              knows the accessing node.",
        default: "default",
        is_number: false,
        store: |options, text| {
            let mode = match text {
                "default" => Format::Default,
                "precision" => Format::Precision,
                _ => return Err(format!("mode is `default` or `precision`, not `{text}`")),
            };
            options.settings = Settings::new(mode);
            Ok(())
        },
        show: |options| mode_name(options.settings.mode).to_owned(),
    },
    DaemonOption {
        name: "socket",
        value_name: "PATH",
        doc: "The control socket, on which `pghot status`, `explain` and `set` reach the daemon.",
        default: "/run/pghot/pghot.sock",
        is_number: false,
        store: |options, text| store_path("socket", &mut options.socket, text),
        show: |options| options.socket.display().to_string(),
    },
    DaemonOption {
        name: "status_socket",
        value_name: "PATH",
        doc: "Where `pghot top`, `status` and `explain --last` reach the daemon without root: the \
              members of the group `pghot` may connect, if there is such a group. It tells the \
              status and the newest decisions, and changes nothing.",
        default: "/run/pghot/status.sock",
        is_number: false,
        store: |options, text| store_path("status_socket", &mut options.status_socket, text),
        show: |options| options.status_socket.display().to_string(),
    },
    DaemonOption {
        name: "hint_socket",
        value_name: "PATH",
        doc: "Where applications hint at memory that they will use, while the source `app_hint` \
              runs. Every user may connect to it.",
        default: "/run/pghot/hint.sock",
        is_number: false,
        store: |options, text| store_path("hint_socket", &mut options.hint_socket, text),
        show: |options| options.hint_socket.display().to_string(),
    },
    DaemonOption {
        name: "state_file",
        value_name: "PATH",
        doc: "Where the kernel settings that pghot changes are noted, so that they can be put \
              back.",
        default: "/run/pghot/state.json",
        is_number: false,
        store: |options, text| store_path("state_file", &mut options.state_file, text),
        show: |options| options.state_file.display().to_string(),
    },
    DaemonOption {
        name: "user",
        value_name: "NAME",
        doc: "The user that the daemon becomes when root starts it; what only root may do, its \
              keeper does. Where there is no user `pghot`, and no other is named, it goes on as \
              root.",
        default: DEFAULT_USER,
        is_number: false,
        store: |options, text| {
            if text.is_empty() {
                return Err("user is a name, and is empty here".to_owned());
            }
            options.user = text.to_owned();
            Ok(())
        },
        show: |options| options.user.clone(),
    },
    DaemonOption {
        name: "metrics_address",
        value_name: "ADDRESS",
        doc: "Where metrics are served over HTTP, for Prometheus: an address and a port such as \
              `127.0.0.1:9464` or `[::1]:9464`, or `off`. Everybody who reaches the port may read \
              them. A TCP socket that the service manager passes is taken instead.",
        default: "off",
        is_number: false,
        store: |options, text| store_address("metrics_address", &mut options.metrics_address, text),
        show: |options| show_address(options.metrics_address),
    },
    DaemonOption {
        name: "log_format",
        value_name: "FORMAT",
        doc: "How the log is written: `text` and `json` are lines on the standard error, \
              `journald` are entries of the journal with fields such as PGHOT_EVENT. `auto` is \
              `journald` if the standard error goes to the journal, else `text`.",
        default: "auto",
        is_number: false,
        store: |options, text| {
            let not_one =
                |()| format!("log_format is `auto`, `text`, `json` or `journald`, not `{text}`");
            options.log_format = text.parse().map_err(not_one)?;
            Ok(())
        },
        show: |options| options.log_format.to_string(),
    },
    DaemonOption {
        name: "otlp_endpoint",
        value_name: "ADDRESS",
        doc: "A collector of OpenTelemetry that gets a trace of each pass that sees ready pages: \
              its address and port for OTLP over HTTP, such as `127.0.0.1:4318`, or `off`. What it \
              does not take is dropped.",
        default: "off",
        is_number: false,
        store: |to, text| store_address("otlp_endpoint", &mut to.otlp_endpoint, text),
        show: |options| show_address(options.otlp_endpoint),
    },
    DaemonOption {
        name: "record_file",
        value_name: "PATH",
        doc: "Where access profiles are recorded all the time, or `off`: this is the newest, and \
              those before it have `.1`, `.2` and so on behind the name. It takes half a percent \
              of one CPU, and the memory of one profile. The service may write in /var/lib/pghot.",
        default: "off",
        is_number: false,
        store: |options, text| {
            options.record_file = match text {
                "off" => None,
                "" => return Err("record_file is a path or `off`, and is empty here".to_owned()),
                path => Some(path.into()),
            };
            Ok(())
        },
        show: |options| match &options.record_file {
            Some(path) => path.display().to_string(),
            None => "off".to_owned(),
        },
    },
    DaemonOption {
        name: "record_seconds",
        value_name: "S",
        doc: "How long each of these profiles lasts, 1 to 604800 s.",
        default: "3600",
        is_number: true,
        store: |to, text| store_number("record_seconds", &mut to.record_seconds, text, 604_800),
        show: |options| options.record_seconds.to_string(),
    },
    DaemonOption {
        name: "record_keep",
        value_name: "N",
        doc: "How many of them are kept, 1 to 100000.",
        default: "24",
        is_number: true,
        store: |to, text| store_number("record_keep", &mut to.record_keep, text, 100_000),
        show: |options| options.record_keep.to_string(),
    },
    DaemonOption {
        name: "record_day_max_mb",
        value_name: "MB",
        doc: "How much may be recorded in a day, 1 to 1000000 MB: after a look at much memory the \
              next one comes later. 50 is for 64 GiB.",
        default: "50",
        is_number: true,
        store: |options, text| {
            let to = &mut options.record_day_max_mb;
            store_number("record_day_max_mb", to, text, 1_000_000)
        },
        show: |options| options.record_day_max_mb.to_string(),
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

fn store_number(name: &str, to: &mut u32, text: &str, most: u32) -> Result<(), String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=most).contains(number));
    *to = number.ok_or_else(|| format!("{name} is a number from 1 to {most}, not `{text}`"))?;
    Ok(())
}

fn store_address(name: &str, to: &mut Option<SocketAddr>, text: &str) -> Result<(), String> {
    let not_one =
        |_| format!("{name} is an address and a port as in 127.0.0.1:9464, or off, not `{text}`");
    *to = match text {
        "off" => None,
        text => Some(text.parse().map_err(not_one)?),
    };
    Ok(())
}

fn show_address(address: Option<SocketAddr>) -> String {
    address.map_or("off".to_owned(), |address| address.to_string())
}
