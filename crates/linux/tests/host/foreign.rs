//! Settings that others change, and settings whose books are lost.

use std::fs;

use pghot_engine::marking::Visits;
use pghot_linux::hint_fault_knobs::{mark, tiering_off, tiering_without_kernel_promotion};

use crate::fake::content;
use crate::knobs::Host;
use crate::scanner::visits;

#[test]
fn what_others_change_is_told() {
    let host = Host::new("1\n");
    let mut knobs = host.open().unwrap().0;
    tiering_without_kernel_promotion(&mut knobs).unwrap();
    assert_eq!(knobs.foreign(), []);
    fs::write(&host.balancing, "0\n").unwrap();
    let foreign = knobs.foreign();
    assert_eq!(foreign.len(), 1);
    assert_eq!(foreign[0].path, host.balancing);
    assert_eq!(foreign[0].present, "0");
    knobs.restore().unwrap();
    assert_eq!(knobs.foreign(), [], "none are ours any more");
    assert_eq!(content(&host.balancing), "0", "their choice stands");
}

/// The state file is lost with a container's `/run`, after a kill -9.
#[test]
fn what_a_lost_run_left_is_no_original() {
    let pulse = Visits {
        is_pulse: true,
        ..visits(64)
    };
    let above = Visits {
        marks_above: true,
        ..visits(64)
    };
    // Where normal balancing stays on there are no pulses.
    for (how, before) in [
        ("hint faults", "1"),
        ("standing by", "1"),
        ("a pulse", "2"),
        ("the top tier", "2"),
    ] {
        let host = Host::new(before);
        let mut lost = host.open().unwrap().0;
        tiering_without_kernel_promotion(&mut lost).unwrap();
        match how {
            "standing by" => tiering_off(&mut lost).unwrap(),
            "a pulse" => assert!(mark(&mut lost, pulse).unwrap()),
            "the top tier" => assert!(mark(&mut lost, above).unwrap()),
            _ => {}
        }
        fs::remove_file(&host.state).unwrap();
        drop(lost);
        let mut knobs = host.open().unwrap().0;
        tiering_without_kernel_promotion(&mut knobs).unwrap();
        knobs.restore().unwrap();
        assert_eq!(content(&host.rate_limit), "65536", "{how}");
        assert_eq!(content(&host.hot_threshold), "1000", "{how}");
        assert_eq!(host.scanner(), ["1000", "1000", "60000", "256"], "{how}");
        assert!(["0", "1"].contains(&content(&host.balancing).as_str()));
    }
}

#[test]
fn a_rate_limit_of_somebody_else_is_an_original() {
    let host = Host::new("1\n");
    fs::write(&host.rate_limit, "0\n").unwrap();
    let mut knobs = host.open().unwrap().0;
    tiering_without_kernel_promotion(&mut knobs).unwrap();
    knobs.restore().unwrap();
    assert_eq!(content(&host.rate_limit), "0");
}
