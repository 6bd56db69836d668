//! The client for Python, in `python/`, against a daemon that answers on real sockets: what it is
//! told is what its types and the schema in `docs/reference` say.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::control::{Audience, Control};
use crate::socket::Socket;
use crate::testing::{daemon, decide};

#[test]
fn the_python_client_passes_its_tests() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, _) = daemon(dir.path());
    decide(&shared);
    // The client asks about its parent.
    let own = std::process::id().to_string();
    std::fs::create_dir_all(&shared.root.proc).unwrap();
    symlink(Path::new("/proc").join(&own), shared.root.proc.join(&own)).unwrap();
    let [owner, readers] = ["sock", "status"].map(|name| dir.path().join(name));
    let serve = |path: &Path, audience| {
        Control::start(Socket::bind(path).unwrap(), audience, Arc::clone(&shared)).unwrap()
    };
    let controls = [
        serve(&owner, Audience::Owner),
        serve(&readers, Audience::Readers),
    ];
    let output = Command::new("python3")
        .args(["-m", "unittest", "discover", "-s", "tests"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python"))
        .env("PGHOT_SOCKET", &owner)
        .env("PGHOT_STATUS_SOCKET", &readers)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 is needed: `make setup` installs it");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("OK") && !said.contains("skipped"), "{said}");
    assert_eq!(shared.settings().freq_threshold, 3, "the client set it");
    shared.stop.request();
    controls.into_iter().for_each(Control::stop);
}
