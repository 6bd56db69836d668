//! The configuration file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pghot_daemon::config::parse_file;

fuzz_target!(|text: &str| {
    let path = Path::new("pghot.toml");
    if let Err(error) = parse_file(path, text) {
        assert!(error.to_string().contains("pghot.toml"), "{error}");
    }
});
