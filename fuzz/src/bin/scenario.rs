//! A scenario of the simulator.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use pghot_sim::scenario::Scenario;

fuzz_target!(|text: &str| {
    let _ = Scenario::parse(text, Path::new("scenario.toml"));
});
