//! pghot writes the settings that it changes, and no other file, whoever asks for it.

use std::fs;
use std::path::PathBuf;

use pghot_linux::knobs::{Knobs, KnobsError};

use crate::fake::content;
use crate::knobs::Host;

/// Files that pghot never changes: other settings of the kernel's, one of its own by another way,
/// and none at all.
fn strange_files(host: &Host) -> Vec<PathBuf> {
    let made = [
        host.tree.proc("sys/kernel/core_pattern", "0\n"),
        host.tree.proc("sys/vm/numa_balancing", "0\n"),
        host.tree.sys("kernel/mm/lru_gen/enabled", "0\n"),
        host.tree
            .sys("kernel/debug/sched/numa_balancing/features", "0\n"),
        host.tree.dir().join("file"),
    ];
    fs::write(&made[4], "0\n").expect("a file");
    let spelt = [
        "sys/kernel/../kernel/numa_balancing",
        "sys/kernel/./numa_balancing",
    ];
    let spelt = spelt.map(|path| host.tree.root.proc.join(path));
    made.into_iter().chain(spelt).collect()
}

#[test]
fn a_state_file_that_names_another_setting_is_refused_whole() {
    let host = Host::new("0");
    drop(host.running());
    host.kill();
    let good = fs::read_to_string(&host.state).unwrap();
    let balancing = host.balancing.to_str().unwrap();
    for strange in strange_files(&host) {
        fs::write(host.tree.root.proc.join("sys/kernel/core_pattern"), "2\n").unwrap();
        let named = strange.to_str().unwrap();
        let text = good.replace(&format!("{balancing}\""), &format!("{named}\""));
        assert_ne!(text, good);
        fs::write(&host.state, &text).unwrap();
        for error in [
            host.open().unwrap_err(),
            Knobs::recover(&host.tree.root, &host.state).unwrap_err(),
        ] {
            let is_told = matches!(&error, KnobsError::ForeignState { names, .. }
                if names.as_os_str() == strange.as_os_str());
            assert!(is_told, "{error}");
            assert!(error.to_string().contains(named), "{error}");
        }
        assert_eq!(host.values(), ["2", "0", "0"], "neither are the others");
        let pattern = host.tree.root.proc.join("sys/kernel/core_pattern");
        assert_eq!(content(&pattern), "2");
        assert_eq!(content(&host.state), text.trim(), "the evidence stays");
    }
    fs::write(&host.state, good).unwrap();
    host.open().unwrap();
    assert_eq!(host.values(), ["0", "65536", "1000"]);
}

#[test]
fn only_settings_of_pghots_are_written() {
    let host = Host::new("0");
    let (mut knobs, _) = host.open().unwrap();
    for strange in strange_files(&host) {
        let set = knobs.set(&strange, "1");
        assert!(matches!(set, Err(KnobsError::NotASetting { .. })));
        assert_eq!(content(&strange), "0");
    }
}
