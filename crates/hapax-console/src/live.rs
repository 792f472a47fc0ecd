//! `/console/live`: live figures as server-sent events.
//!
//! The number of connections is limited; further ones receive a 503. A connection ends with its
//! session or with the server, and the page reconnects by itself. A page without live figures
//! remains usable.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use http::{StatusCode, header};
use serde_json::{Map, Value};
use tokio::{sync::OwnedSemaphorePermit, sync::watch, time::sleep};

use crate::{
    Console,
    guard::PageRequest,
    navigation::Tallies,
    pages::{charts::Range, overview},
};

/// The interval of events.
const INTERVAL: Duration = Duration::from_secs(2);
/// The interval of keep-alives if there are no events.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The delay before a page reconnects.
const RETRY: Duration = Duration::from_secs(1);

struct Watcher {
    console: Console,
    page_request: PageRequest,
    closing: watch::Receiver<bool>,
    last_figures: String,
    is_first: bool,
    _permit: OwnedSemaphorePermit,
}

/// Streams the events.
pub(crate) async fn stream(State(console): State<Console>, page_request: PageRequest) -> Response {
    let Ok(permit) = Arc::clone(&console.0.live).try_acquire_owned() else {
        let later = [(header::RETRY_AFTER, "10")];
        return (StatusCode::SERVICE_UNAVAILABLE, later).into_response();
    };
    let watcher = Watcher {
        closing: console.0.closing.subscribe(),
        console,
        page_request,
        last_figures: String::new(),
        is_first: true,
        _permit: permit,
    };
    let events = stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok::<_, Infallible>(event), watcher))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE).text("beat");
    Sse::new(events).keep_alive(keep_alive).into_response()
}

impl Watcher {
    /// The next event; `None` if the connection ends.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.is_first {
                tokio::select! {
                    _ = self.closing.wait_for(|closing| *closing) => return None,
                    () = sleep(INTERVAL) => {},
                }
            }
            if *self.closing.borrow() || !self.is_signed_in() {
                return None;
            }
            let figures = self.figures().await;
            if figures != self.last_figures || self.is_first {
                self.is_first = false;
                self.last_figures.clone_from(&figures);
                return Some(Event::default().retry(RETRY).data(figures));
            }
        }
    }

    fn is_signed_in(&self) -> bool {
        !self.page_request.signs_in || self.console.0.sessions.lives(&self.page_request.cookie)
    }

    /// The parts of the overview and of the navigation that change, by their element ids, as JSON.
    async fn figures(&self) -> String {
        let actor = &self.page_request.caller().actor;
        let Ok(look) = self.console.0.samples.look(&self.console, actor).await else {
            return r#"{"trouble":"the database does not answer"}"#.to_owned();
        };
        let range = Range::of(&self.page_request.fields);
        let parts = overview::parts(&look, range).into_iter();
        let parts = parts.chain(Tallies::of(&look).parts());
        let parts = parts.map(|(id, html)| (id.to_owned(), Value::from(html.into_string())));
        Value::Object(parts.collect::<Map<_, _>>()).to_string()
    }
}
