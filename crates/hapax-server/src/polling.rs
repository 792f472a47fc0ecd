//! The listener of consumers who poll. It serves polling endpoints and the public event catalogue, so
//! that it can be open to customers while the admin API is not.

use axum::Router;
use hapax::{
    limits::POLLING_WAITING,
    poll::{PollSettings, Polling},
};
use hapax_console::serve::{Bounds, serve};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::{database::RelayStore, environment, listeners::stopped};

/// Serves the polling endpoints of a store, if there is a listener.
pub(crate) fn serve_consumers<S: RelayStore>(
    tasks: &mut JoinSet<()>,
    store: &S,
    (listener, public): (Option<TcpListener>, Router),
    bounds: Bounds,
    stopping: &watch::Receiver<bool>,
) {
    let Some(listener) = listener else {
        return;
    };
    let settings = PollSettings {
        // The other half is for requests that do not wait.
        waiting_max: POLLING_WAITING.min(bounds.connections / 2).max(1),
        ..PollSettings::default()
    };
    let notifier = store.notifier();
    let polling = Polling::new(store.clone(), &notifier, store.clock(), &settings);
    let router = hapax_http::poll::router(polling.clone(), environment::random()).merge(public);
    tasks.spawn(serve(listener, router, bounds, stopping.clone()));
    let stopping = stopping.clone();
    tasks.spawn(async move {
        stopped(stopping).await;
        polling.close();
    });
}
