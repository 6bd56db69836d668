//! The keeper answers, refuses, and puts everything back when the other side is gone.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use pghot_linux::keeper::{Keeper, KeeperError};

use crate::knobs::Host;
use crate::scanner::visits;

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn keeper(host: &Host) -> Keeper {
    let keeper = Keeper::in_thread(&host.tree.root, &host.state).expect("a thread");
    assert!(keeper.begin().expect("a free state file").is_empty());
    keeper
}

#[test]
fn settings_go_back_when_nobody_asks_any_more() {
    let host = Host::new("1");
    let keeper = keeper(&host);
    keeper.take_faults().unwrap();
    assert_eq!(host.values(), ["3", "0", "0"]);
    assert!(keeper.lives());
    drop(keeper);
    until(|| !host.state.exists());
    assert_eq!(host.values(), ["1", "65536", "1000"]);
}

#[test]
fn it_does_what_is_asked_and_tells_what_others_did() {
    let host = Host::new("0");
    fs::create_dir_all(host.tree.root.sys.join("devices/system/node")).unwrap();
    fs::write(host.tree.root.sys.join("devices/system/node/has_cpu"), "0").unwrap();
    let keeper = keeper(&host);
    keeper.take_faults().unwrap();
    assert!(keeper.mark(visits(64)).unwrap());
    assert_eq!(fs::read_to_string(&host.scan_size).unwrap().trim(), "64");
    keeper.stand_by().unwrap();
    assert_eq!(host.values(), ["0", "0", "0"]);
    assert!(keeper.foreign().unwrap().is_empty());
    fs::write(&host.rate_limit, "7\n").unwrap();
    let foreign = keeper.foreign().unwrap();
    assert_eq!((foreign.len(), foreign[0].present.as_str()), (1, "7"));
    // Theirs stays.
    assert_eq!(keeper.put_back().unwrap().len(), 6);
    assert_eq!(host.values(), ["0", "7", "1000"]);
}

#[test]
fn what_is_out_of_range_or_too_late_is_refused() {
    let host = Host::new("1");
    let keeper = keeper(&host);
    keeper.take_faults().unwrap();
    for size_mb in [0, 129, 256, u64::MAX] {
        let refused = keeper.mark(visits(size_mb));
        assert!(matches!(refused, Err(KeeperError::Refused(_))), "{size_mb}");
    }
    assert_eq!(keeper.restore().unwrap().len(), 3);
    assert!(!host.state.exists());
    assert!(matches!(keeper.take_faults(), Err(KeeperError::Refused(_))));
    assert_eq!(host.values(), ["1", "65536", "1000"]);
    // The next session.
    keeper.begin().unwrap();
    keeper.take_faults().unwrap();
    assert_eq!(host.values(), ["3", "0", "0"]);
}

#[test]
fn files_that_root_alone_may_write_are_opened_and_nothing_else_is() {
    let host = Host::new("1");
    let keeper = keeper(&host);
    let refused = keeper.open_generations().unwrap_err();
    assert!(
        refused.to_string().contains("kernel/debug/lru_gen"),
        "{refused}"
    );
    host.tree.sys("kernel/debug/lru_gen", "");
    host.tree.proc("42/clear_refs", "");
    for (mut opened, path) in [
        (
            keeper.open_generations().unwrap(),
            host.tree.root.sys.join("kernel/debug/lru_gen"),
        ),
        (
            keeper.open_clear_refs(42).unwrap(),
            host.tree.root.proc.join("42/clear_refs"),
        ),
    ] {
        opened.write_all(b"1").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "1");
    }
    let gone = keeper.open_clear_refs(43).unwrap_err();
    assert!(matches!(gone, KeeperError::Refused(_)), "{gone}");
    // Settings go on as before, and the files that were handed out stay with who has them.
    keeper.take_faults().unwrap();
    assert!(keeper.lives());
}
