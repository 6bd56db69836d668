//! Where the daemon can be asked: the control socket and, if it is wanted, metrics over HTTP. They
//! are taken before anything changes on the host: a daemon that cannot be asked never runs.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use crate::compose;
use crate::config::Options;
use crate::control::Control;
use crate::error::RunError;
use crate::metrics::{self, Server};
use crate::shared::Shared;
use crate::socket::Socket;

/// Taken, and not served yet.
pub struct Listeners {
    socket: Socket,
    metrics: Option<TcpListener>,
}

impl Listeners {
    /// Takes all that the options ask for.
    pub fn bind(options: &Options) -> Result<Listeners, RunError> {
        Ok(Listeners {
            socket: Socket::bind(&options.socket)?,
            metrics: metrics::listen(options.metrics_address)?,
        })
    }

    /// Begins to answer.
    pub fn serve(self, shared: &Arc<Shared>) -> io::Result<Serving> {
        let control = Control::start(self.socket, Arc::clone(shared))?;
        let asked = Arc::clone(shared);
        let serve = |listener| Server::start(listener, move || compose::status(&asked));
        let metrics = self.metrics.map(serve).transpose()?;
        Ok(Serving { control, metrics })
    }
}

/// The threads that answer.
pub struct Serving {
    control: Control,
    metrics: Option<Server>,
}

impl Serving {
    /// Answers nothing more.
    pub fn stop(self) {
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        self.control.stop();
    }
}
