//! Messages on the hint socket.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pghot_hint::wire::{Answer, MESSAGE_BYTES_MAX, Message};

fuzz_target!(|bytes: &[u8]| {
    if let Some(message) = Message::decode(bytes) {
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        assert_eq!(message.encode(), bytes);
    }
    if let Some(answer) = Answer::decode(bytes) {
        assert_eq!(answer.encode(), bytes);
    }
});
