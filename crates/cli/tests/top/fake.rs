//! A daemon that answers on its socket and does nothing else.

use std::fs;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use pghot_daemon::protocol::{Request, Response, read_request, to_line};
use pghot_daemon::status::{LowerNode, PastRuns, SourceReport, SourceState, Status, TopNode};
use pghot_engine::Outcome;

/// A daemon that is one second older at each question and promotes 1000 pages in it.
pub struct FakeDaemon {
    path: PathBuf,
    /// Questions for the status so far.
    pub asked: Arc<AtomicU64>,
}

impl FakeDaemon {
    /// Answers there.
    pub fn start(path: &Path, version: &'static str) -> FakeDaemon {
        FakeDaemon::with(path, version, |_| {})
    }

    /// The same, with something done to each status.
    pub fn with(
        path: &Path,
        version: &'static str,
        add: impl Fn(&mut Status) + Send + 'static,
    ) -> FakeDaemon {
        let listener = UnixListener::bind(path).unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        // Ends with the process: a connection after the end is refused, since the file is gone.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut requests = BufReader::new(&stream);
                while let Ok(Some(Ok(request))) = read_request(&mut requests) {
                    let response = match request {
                        Request::Status => {
                            let mut status = status(version, count.fetch_add(1, Relaxed));
                            add(&mut status);
                            Response::Status(Box::new(status))
                        }
                        _ => Response::Decisions(Vec::new()),
                    };
                    let _ = (&stream).write_all(&to_line(&response));
                }
            }
        });
        let path = path.to_owned();
        FakeDaemon { path, asked }
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn status(version: &str, up_s: u64) -> Status {
    let mut lower = LowerNode {
        nid: 0,
        why: vec!["the moon is in the wrong place".into()],
        ..LowerNode::default()
    };
    lower.totals.outcomes.add(Outcome::Moved, 1000 * up_s);
    let source = SourceReport {
        name: "hint_fault".into(),
        state: SourceState::Running,
        why: None,
        stats: Some(Default::default()),
        cost: None,
        past: PastRuns::default(),
        details: Default::default(),
    };
    Status {
        version: version.into(),
        kernel: "6.12".into(),
        mode: "default".into(),
        uptime_s: up_s as f64,
        now_ms: 1_000_000 + 1000 * up_s,
        lower_tier: vec![lower],
        top_tier: vec![TopNode {
            nid: 1,
            room_pages: 256,
            free_space_shortcut: false,
        }],
        sources: vec![source],
        ..Status::default()
    }
}
