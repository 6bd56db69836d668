//! What the kernel's scanner is told, and pulses.

use std::fs;

use pghot_engine::marking::Visits;
use pghot_linux::hint_fault_knobs::{mark, tiering_without_kernel_promotion};

use crate::fake::content;
use crate::knobs::Host;

#[test]
fn visits_are_small_and_frequent_unless_normal_balancing_needs_them() {
    let original = ["1000", "1000", "60000", "256"];
    let small = ["25", "100", "60000", "16"];
    for (balancing, at_once, later) in [("2", small, "4"), ("3", original, "256")] {
        let host = Host::new(balancing);
        let mut knobs = host.running();
        assert_eq!(host.scanner(), at_once);
        assert_eq!(mark(&mut knobs, visits(4)).unwrap(), later == "4");
        assert_eq!(content(&host.scan_size), later);
        knobs.restore().unwrap();
        assert_eq!(host.scanner(), original, "{balancing}");
    }
}

/// In a pulse the kernel promotes a little and reckons periods anew; after it, nothing.
#[test]
fn a_pulse_ends_as_it_began() {
    let host = Host::new("2");
    let mut knobs = host.running();
    let pulse = Visits {
        is_pulse: true,
        ..visits(64)
    };
    let before = knobs.changed();
    for _ in 0..2 {
        assert!(mark(&mut knobs, pulse).unwrap());
        assert_eq!(host.scanner(), ["25", "100", "25", "64"]);
        assert_eq!(host.values(), ["2", "1", "8000"]);
    }
    for _ in 0..2 {
        assert!(mark(&mut knobs, visits(4)).unwrap());
        assert_eq!(host.scanner(), ["25", "100", "60000", "4"]);
        assert_eq!(host.values(), ["2", "0", "0"]);
        assert_eq!(knobs.changed(), before);
    }
    // Whoever takes the settings back, as after a change by others, ends it too.
    mark(&mut knobs, pulse).unwrap();
    tiering_without_kernel_promotion(&mut knobs).unwrap();
    assert_eq!(host.values(), ["2", "0", "0"]);
    mark(&mut knobs, visits(4)).unwrap();
    assert_eq!(host.scanner()[2], "60000");
    // Dies in one.
    mark(&mut knobs, pulse).unwrap();
    drop(knobs);
    host.kill();
    host.running().restore().unwrap();
    assert_eq!(host.values(), ["2", "65536", "1000"]);
    assert_eq!(host.scanner(), ["1000", "1000", "60000", "256"]);
}

/// While the top tier is marked as well, normal balancing is on, periods stay short, and mappings
/// count as touched for longer.
#[test]
fn the_top_tier_is_marked_for_a_while() {
    let host = Host::new("2");
    let mut knobs = host.running();
    let above = Visits {
        marks_above: true,
        ..visits(128)
    };
    let pulse = Visits {
        is_pulse: true,
        ..visits(64)
    };
    let before = knobs.changed();
    for _ in 0..2 {
        assert!(mark(&mut knobs, above).unwrap());
        assert_eq!(host.scanner(), ["250", "100", "25", "128"]);
        assert_eq!(host.values(), ["3", "0", "0"]);
    }
    // A pulse comes between.
    mark(&mut knobs, pulse).unwrap();
    assert_eq!(host.scanner(), ["25", "100", "25", "64"]);
    assert_eq!(host.values(), ["2", "1", "8000"]);
    mark(&mut knobs, above).unwrap();
    assert_eq!(host.scanner(), ["250", "100", "25", "128"]);
    assert_eq!(host.values(), ["3", "0", "0"]);
    for _ in 0..2 {
        mark(&mut knobs, visits(4)).unwrap();
        assert_eq!(host.scanner(), ["25", "100", "60000", "4"]);
        assert_eq!(host.values(), ["2", "0", "0"]);
        assert_eq!(knobs.changed(), before);
    }
    // Whoever takes the settings back ends it too, and goes on when told.
    mark(&mut knobs, above).unwrap();
    tiering_without_kernel_promotion(&mut knobs).unwrap();
    mark(&mut knobs, visits(4)).unwrap();
    assert_eq!(host.scanner(), ["25", "100", "60000", "4"]);
    assert_eq!(host.values(), ["2", "0", "0"]);
    // Dies in it.
    mark(&mut knobs, above).unwrap();
    drop(knobs);
    host.kill();
    host.running().restore().unwrap();
    assert_eq!(host.values(), ["2", "65536", "1000"]);
    assert_eq!(host.scanner(), ["1000", "1000", "60000", "256"]);
}

/// A scanner that rests marks nothing, and the kernel promotes nothing. What others set is not
/// taken for a rest, nor a rest for what others set.
#[test]
fn who_rests_comes_back() {
    let host = Host::new("2");
    let mut knobs = host.running();
    let rests = Visits {
        rests: true,
        ..visits(1)
    };
    for _ in 0..2 {
        assert!(mark(&mut knobs, rests).unwrap());
        assert_eq!(host.values(), ["0", "0", "0"]);
        assert!(knobs.foreign().is_empty());
    }
    for _ in 0..2 {
        assert!(mark(&mut knobs, visits(1)).unwrap());
        assert_eq!(host.values(), ["2", "0", "0"]);
    }
    // Dies at rest.
    mark(&mut knobs, rests).unwrap();
    drop(knobs);
    host.kill();
    host.running().restore().unwrap();
    assert_eq!(host.values(), ["2", "65536", "1000"]);
    let mut knobs = host.running();
    fs::write(&host.balancing, "0\n").unwrap();
    assert!(mark(&mut knobs, visits(2)).unwrap());
    assert_eq!(knobs.foreign().len(), 1, "it stays theirs until it is told");
    knobs.restore().unwrap();
    assert_eq!(host.values(), ["0", "65536", "1000"], "their choice stands");
    // Where normal balancing has work to do it goes on.
    let host = Host::new("3");
    let mut knobs = host.running();
    assert!(!mark(&mut knobs, rests).unwrap());
    assert_eq!(host.values()[0], "3");
}

/// Of the lower tier, without a pulse or a rest.
pub fn visits(size_mb: u64) -> Visits {
    Visits {
        size_mb,
        is_pulse: false,
        rests: false,
        marks_above: false,
    }
}
