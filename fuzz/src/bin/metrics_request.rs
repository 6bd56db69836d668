//! HTTP requests for metrics, as far as they have arrived.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pghot_daemon::metrics::http::{HEAD_BYTES_MAX, judge};

fuzz_target!(|bytes: &[u8]| {
    let answer = judge(bytes);
    assert!(answer.is_some() || bytes.len() < HEAD_BYTES_MAX);
});
