//! A profile's file: from its header on, and what lies behind a header that is right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pghot_profile::file::{decode, encode, with_header};

fuzz_target!(|bytes: &[u8]| {
    let _ = decode(bytes);
    if let Ok(profile) = decode(&with_header(bytes)) {
        assert_eq!(decode(&encode(&profile)).ok(), Some(profile));
    }
});
