//! What is generated from the tables is what lies in `docs/` and `packaging/`: no page can drift.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn generated_documents_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (kind, folder) in [
        ("man", "docs/man"),
        ("completions", "docs/completions"),
        ("reference", "docs/reference"),
        ("config", "packaging"),
    ] {
        let fresh = tempfile::tempdir().unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_pghot"))
            .args(["generate", kind])
            .arg(fresh.path())
            .status();
        assert!(status.unwrap().success());
        let mut pages = 0;
        for entry in fs::read_dir(fresh.path()).unwrap() {
            let name = entry.unwrap().file_name();
            let kept = root.join(folder).join(&name);
            assert!(
                fs::read(fresh.path().join(&name)).unwrap() == fs::read(&kept).unwrap_or_default(),
                "{} is stale: run `pghot generate {kind} {folder}`",
                kept.display()
            );
            pages += 1;
        }
        assert!(pages > 0, "{kind}");
    }
}
