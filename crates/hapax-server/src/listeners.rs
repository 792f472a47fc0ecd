//! Listeners and background tasks of a process that serves until a signal arrives.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use axum::Router;
use hapax_console::serve::{Bounds, serve};
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time::timeout};

use crate::config::{Config, Listen};

/// How long requests and batches in flight may take to end after the relay has drained.
const END_MAX: Duration = Duration::from_secs(3);
/// How long they may take to end after they are aborted.
const ABORT_MAX: Duration = Duration::from_secs(1);

/// The listeners of a relay, each of which may be off.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// Health and metrics.
    pub(crate) health: Option<TcpListener>,
    /// The admin API and the console.
    pub(crate) admin: Option<TcpListener>,
    /// Polling endpoints.
    pub(crate) polling: Option<TcpListener>,
    /// The customer portal.
    pub(crate) portal: Option<TcpListener>,
}

impl Listeners {
    /// Listens on the configured addresses.
    pub(crate) async fn of(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            health: listen("relay.listen", config.relay.listen).await?,
            admin: listen("admin.listen", config.admin.listen).await?,
            polling: listen("poll.listen", config.poll.listen).await?,
            portal: listen("portal.listen", config.portal.listen).await?,
        })
    }

    /// The addresses, in the order of the fields.
    pub(crate) fn addresses(&self) -> anyhow::Result<[Option<SocketAddr>; 4]> {
        Ok([
            address(self.health.as_ref())?,
            address(self.admin.as_ref())?,
            address(self.polling.as_ref())?,
            address(self.portal.as_ref())?,
        ])
    }
}

/// The address of a listener, if there is one.
pub(crate) fn address(listener: Option<&TcpListener>) -> anyhow::Result<Option<SocketAddr>> {
    let address = listener.map(TcpListener::local_addr).transpose();
    address.context("a listener has no address")
}

/// Listens on the address of a setting, unless it is off.
pub(crate) async fn listen(setting: &str, listen: Listen) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = listen.0 else {
        return Ok(None);
    };
    let bound = TcpListener::bind(address).await;
    let bound = bound.map_err(|error| {
        anyhow::anyhow!(
            "cannot listen on {address}: {error}: set {setting} to another address, or \"off\""
        )
    })?;
    Ok(Some(bound))
}

/// Serves each router on its listener, if it has one.
pub(crate) fn serve_all(
    tasks: &mut JoinSet<()>,
    served: [(Option<TcpListener>, Router); 3],
    bounds: Bounds,
    stopping: &watch::Receiver<bool>,
) {
    for (listener, router) in served {
        if let Some(listener) = listener {
            tasks.spawn(serve(listener, router, bounds, stopping.clone()));
        }
    }
}

/// Waits until the process has to stop.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _told = stop.wait_for(|stop| *stop).await;
}

/// Ends all tasks: those that do not end in time are aborted.
pub(crate) async fn end(stop: watch::Sender<bool>, mut tasks: JoinSet<()>) {
    stop.send_replace(true);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if timeout(END_MAX, ended).await.is_err() {
        // A request that never ends, or a batch. The store tolerates this like a crash.
        tracing::warn!(
            tasks = tasks.len(),
            "tasks did not end in time and are aborted"
        );
        tasks.abort_all();
        let gone = async { while tasks.join_next().await.is_some() {} };
        let _hung = timeout(ABORT_MAX, gone).await;
    }
}
