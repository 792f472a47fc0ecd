//! Polling endpoints, for customers who cannot be called: `/poll/{endpoint}` on the port of the shop.
//!
//! Operators create the endpoints and their tokens with `hapax poll`. A token of an endpoint is not a
//! token of the shop's API.

use axum::Router;
use hapax::{
    limits::POLLING_WAITING,
    poll::{PollSettings, Polling},
};
use hapax_http::{RequestIds, poll};

use crate::{database::Database, runtime::Runtime, server};

/// The polling endpoints of a store.
pub(crate) fn of<D: Database>(store: &D, runtime: &Runtime) -> Polling<D> {
    let settings = PollSettings {
        // The other half of the connections is for requests that do not wait.
        waiting_max: POLLING_WAITING.min(server::bounds().connections / 2).max(1),
        ..PollSettings::default()
    };
    let (clock, notifier) = (store.relay_clock(&runtime.clock), store.notifier());
    Polling::new(store.clone(), &notifier, clock, &settings)
}

/// The routes of consumers.
pub(crate) fn routes<D: Database>(polling: &Polling<D>, runtime: &Runtime) -> Router {
    poll::routes(polling.clone()).layer(RequestIds::new(runtime.random.clone()))
}
