//! Reading the config file again, on SIGHUP or `pghot reload`: what has changed in it is in force
//! together, or nothing is.
//!
//! A flag overrides the file, before and after. What `pghot set` changed stays until the file says
//! something else than when it was read last: the later word counts.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pghot_events::event;
use pghot_linux::host::monotonic;
use pghot_sources::tunables;

use crate::config::{Again, DAEMON_OPTIONS, Options};
use crate::error::RunError;
use crate::lock;
use crate::service;
use crate::shared::Shared;
use crate::status::{Change, ReloadReport};

/// Reads the config file again, logs what came of it and remembers it for `status`.
pub fn reload(shared: &Shared) -> ReloadReport {
    let file = &shared.config_file;
    let mut read = lock(&file.read);
    let taken = read.as_mut().map(|read| take_over(shared, read));
    let taken = taken.unwrap_or_else(|| Err("there is no config file".to_owned()));
    let mut report = taken.unwrap_or_else(|error| ReloadReport {
        error: Some(error),
        ..ReloadReport::default()
    });
    let mut last = lock(&file.last);
    let before = last.take().unwrap_or_default();
    report.count = before.count + 1;
    report.refused = before.refused + u64::from(report.error.is_some());
    report.at_ms = monotonic().as_millis() as u64;
    log(&file.path.display().to_string(), &report);
    *last = Some(report.clone());
    report
}

/// Puts what has changed in the file in force. On an error nothing has changed.
fn take_over(shared: &Shared, read: &mut Options) -> Result<ReloadReport, String> {
    let again = read.read_again().map_err(|error| error.to_string())?;
    let mut report = ReloadReport::default();
    shared.change(|settings| {
        for tunable in tunables::all() {
            let name = tunable.name;
            let (of_file, new) = (again.of_file.show(tunable), again.settings.show(tunable));
            let old = settings.show(tunable);
            if read.told.has_flag(name) && of_file != new {
                let flag = name.replace('_', "-");
                report.overridden.push(format!(
                    "{name} stays {old}: --{flag} overrides the file, which says {of_file}"
                ));
            } else if new == read.settings.show(tunable) && new != old {
                report.overridden.push(format!(
                    "{name} stays {old}, as `pghot set` said; the file says {new}, as before"
                ));
            } else if new != old {
                let set = settings.set(tunable, &new);
                set.map_err(|error| error.to_string())?;
                let name = name.to_owned();
                report.changed.push(Change { name, old, new });
            }
        }
        Ok(())
    })?;
    report.needs_restart = fixed(read, &again);
    read.settings = again.settings;
    Ok(report)
}

/// Options that differ and are fixed while the daemon runs.
fn fixed(running: &Options, again: &Again) -> Vec<Change> {
    let changes = DAEMON_OPTIONS.iter().map(|option| Change {
        name: option.name.to_owned(),
        old: (option.show)(running),
        new: (option.show)(&again.restarted),
    });
    changes.filter(|change| change.old != change.new).collect()
}

fn log(path: &str, report: &ReloadReport) {
    for warning in report.warnings() {
        event!(config_warning, "{warning}");
    }
    let changed: Vec<String> = report.changed.iter().map(Change::to_string).collect();
    match (&report.error, changed.is_empty()) {
        (Some(_), _) => {}
        (None, true) => event!(config_read, "{path} was read again: no tunable has changed"),
        (None, false) => event!(config_read, "{path} was read again: {}", changed.join(", ")),
    }
    for overridden in &report.overridden {
        event!(config_overridden, "{overridden}");
    }
}

/// Waits for requests, which come by signal, in a thread of its own: starting sources takes long,
/// and the threads that end the daemon must not wait for it.
pub fn start_reloader(shared: &Arc<Shared>) -> Result<(), RunError> {
    let shared = Arc::clone(shared);
    let wait = move || {
        while !shared.stop.is_requested() {
            let stop = &shared.stop;
            stop.sleep_unless(Duration::MAX, || stop.is_reload_due());
            if !stop.is_requested() && stop.take_reload() {
                service::reloading(&shared);
                reload(&shared);
                service::ready(&shared);
            }
        }
    };
    let thread = thread::Builder::new().name("reload".into()).spawn(wait);
    thread.map(drop).map_err(RunError::Thread)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{self, Assignment, Origin};
    use crate::config_file::ConfigFile;
    use crate::testing::{daemon, write};

    /// A daemon that was started with a file and a flag.
    fn started(dir: &Path, text: &str, flag: Option<(&str, &str)>) -> Arc<Shared> {
        let (mut shared, _) = daemon(dir);
        let file = dir.join("pghot.toml");
        write(&file, text);
        let flag = flag.map(|(name, text)| Assignment {
            name: name.into(),
            text: text.into(),
            origin: Origin::Flag,
        });
        let options = config::load(Some(&file), flag.into_iter().collect()).unwrap();
        let settings = options.settings.clone();
        let own = Arc::get_mut(&mut shared).unwrap();
        own.config_file = Arc::new(ConfigFile::new(&options));
        own.change(|it| {
            *it = settings;
            Ok(())
        })
        .unwrap();
        shared
    }

    fn reloaded(shared: &Shared, text: &str) -> ReloadReport {
        write(&shared.config_file.path, text);
        let report = reload(shared);
        assert_eq!(shared.config_file.last().as_ref(), Some(&report));
        report
    }

    fn shown(changes: &[Change]) -> Vec<String> {
        changes.iter().map(Change::to_string).collect()
    }

    #[test]
    fn what_has_changed_in_the_file_is_in_force_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let shared = started(dir.path(), "freq_threshold = 3\nenabled_sources = 1", None);
        let report = reloaded(&shared, "enabled_sources = 0\nkmigrated_sleep_ms = 200");
        let expected = [
            "freq_threshold 3 -> 2",
            "kmigrated_sleep_ms 100 -> 200",
            "enabled_sources hint_fault -> none",
        ];
        assert_eq!(shown(&report.changed), expected);
        let settings = shared.settings();
        assert_eq!(
            (settings.freq_threshold, settings.kmigrated_sleep_ms),
            (2, 200)
        );
        assert!(!lock(&shared.sources).is_any_running());
        let again = reload(&shared);
        assert_eq!((again.count, again.changed.len()), (2, 0));
        assert_eq!(reloaded(&shared, "freq_threshold").refused, 1);
        let right = reloaded(&shared, "");
        assert_eq!((right.count, right.refused), (4, 1));
    }

    #[test]
    fn what_is_wrong_changes_nothing_and_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let shared = started(dir.path(), "", None);
        let before = shared.settings();
        for (text, why) in [
            (
                "freq_threshold = 1\nfreq_window_ms = 1",
                "line 2: freq_window_ms is 1000",
            ),
            ("target_nid = 2", "target_nid 2 is not in the top tier"),
            (
                "mode = \"precision\"\nfreq_threshold = 7",
                "another mode than the daemon",
            ),
        ] {
            let report = reloaded(&shared, text);
            assert!(
                report
                    .error
                    .as_ref()
                    .is_some_and(|error| error.contains(why)),
                "{report:?}"
            );
            assert!(report.warnings()[0].contains(why));
            assert_eq!(shared.settings(), before, "{text}");
        }
        std::fs::remove_file(&shared.config_file.path).unwrap();
        let gone = reload(&shared);
        assert!(
            gone.error
                .is_some_and(|error| error.contains("cannot read"))
        );
        assert!(reloaded(&shared, "freq_threshold = 1").error.is_none());
        assert_eq!(shared.settings().freq_threshold, 1);
    }

    #[test]
    fn flags_override_the_file_and_what_was_set_stays_until_the_file_says_otherwise() {
        let dir = tempfile::tempdir().unwrap();
        let flag = Some(("freq_window_ms", "2000"));
        let shared = started(dir.path(), "freq_threshold = 3", flag);
        shared.set("freq_threshold", "1").unwrap();
        let report = reloaded(&shared, "freq_threshold = 3\nfreq_window_ms = 1500");
        assert_eq!(report.changed, []);
        assert!(report.overridden[0].contains("freq_threshold stays 1, as `pghot set` said"));
        assert!(report.overridden[1].contains("--freq-window-ms overrides the file"));
        let report = reloaded(&shared, "freq_threshold = 2\nfreq_window_ms = 1500");
        assert_eq!(shown(&report.changed), ["freq_threshold 1 -> 2"]);
        assert_eq!(shared.settings().freq_window_ms, 2000);
        let told = crate::compose::status(&shared).settings;
        assert!(told["freq_window_ms"].has_flag && !told["freq_threshold"].has_flag);
    }

    #[test]
    fn what_is_fixed_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let shared = started(dir.path(), "freq_threshold = 1", None);
        let text = "mode = \"precision\"\nmetrics_address = \"[::1]:9464\"";
        let report = reloaded(&shared, text);
        assert_eq!(shown(&report.changed), ["freq_threshold 1 -> 2"]);
        let expected = [
            "mode default -> precision",
            "metrics_address off -> [::1]:9464",
        ];
        assert_eq!(shown(&report.needs_restart), expected);
        assert_eq!(report.warnings().len(), 2);
        // Still so.
        assert_eq!(reload(&shared).needs_restart.len(), 2);
        assert!(reloaded(&shared, "").warnings().is_empty());
    }
}
