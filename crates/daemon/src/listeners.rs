//! Where the daemon can be asked: the control socket, the status socket and, if it is wanted,
//! metrics over HTTP. They are taken before anything changes on the host: a daemon that cannot be
//! asked never runs.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use crate::compose;
use crate::config::Options;
use crate::control::{self, Control};
use crate::error::RunError;
use crate::metrics::{self, Server};
use crate::shared::Shared;

/// Taken, and not served yet.
pub struct Listeners {
    sockets: control::Sockets,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Takes all that the options ask for.
    pub fn bind(options: &Options) -> Result<Listeners, RunError> {
        Ok(Listeners {
            sockets: control::bind(options)?,
            metrics: metrics::listen(options.metrics_address)?,
        })
    }

    /// Begins to answer.
    pub fn serve(self, shared: &Arc<Shared>) -> io::Result<Serving> {
        let start = |(audience, socket)| Control::start(socket, audience, Arc::clone(shared));
        let controls = self
            .sockets
            .map(start)
            .into_iter()
            .collect::<io::Result<_>>()?;
        let asked = Arc::clone(shared);
        let serve = |listener| Server::start(listener, move || compose::status(&asked));
        let metrics = self.metrics.map(serve).transpose()?;
        Ok(Serving { controls, metrics })
    }
}

/// The threads that answer.
pub struct Serving {
    controls: Vec<Control>,
    metrics: Option<Server>,
}

impl Serving {
    /// Answers nothing more.
    pub fn stop(self) {
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        self.controls.into_iter().for_each(Control::stop);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::Path;

    use super::*;
    use crate::config;
    use crate::testing::daemon;

    #[test]
    fn metrics_are_served_beside_the_control_socket() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, _) = daemon(dir.path());
        let mut options = config::load(Some(Path::new("/dev/null")), Vec::new()).unwrap();
        options.socket = dir.path().join("sock");
        options.status_socket = dir.path().join("status");
        options.metrics_address = "127.0.0.1:0".parse().ok();
        let listeners = Listeners::bind(&options).unwrap();
        let address = listeners.metrics.as_ref().unwrap().local_addr().unwrap();
        let serving = listeners.serve(&shared).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("\npghot_tracked_pages{nid=\"2\"} 32768\n"));

        // A second daemon that cannot have the port leaves nothing behind.
        let mut second = options.clone();
        second.socket = dir.path().join("other");
        second.status_socket = dir.path().join("other status");
        second.metrics_address = Some(address);
        let error = Listeners::bind(&second).err().unwrap().to_string();
        assert!(error.contains("another program listens"), "{error}");
        assert!(!second.socket.exists());
        shared.stop.request();
        serving.stop();
        assert!(!options.socket.exists());
        assert!(TcpStream::connect(address).is_err());
    }
}
