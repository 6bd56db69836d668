//! Requests on the control and the status socket.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pghot_daemon::protocol::{read_request, to_line};

fuzz_target!(|bytes: &[u8]| {
    let mut stream = bytes;
    while let Ok(Some(request)) = read_request(&mut stream) {
        if let Ok(request) = request {
            let line = to_line(&request);
            let again = read_request(&mut line.as_slice());
            assert_eq!(again.ok().flatten(), Some(Ok(request)));
        }
    }
});
