//! Health checks: a GET to every instance at an interval. Any response below 500 is a success.
//!
//! A check uses the connection of the check before, or of a request, if it is still open. If there is no
//! response on it, the check is repeated on a new connection, because the instance may have closed the old one.
//! An instance that has failed must accept a new connection.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, header::HOST};
use http_body_util::{BodyExt as _, Limited};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::instance::{Attempt, Connection, Instance};

/// Maximum length of the body of a response, in bytes. The connection is closed if it is longer.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Checks the instances until it is dropped.
pub(super) async fn watch(instances: &[Arc<Instance>], path: &str, every: Duration) {
    let mut rounds = interval(every);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let checks = instances
            .iter()
            .map(|instance| check(instance, path, every));
        futures_util::future::join_all(checks).await;
    }
}

async fn check(instance: &Instance, path: &str, every: Duration) {
    // The open connection gets half of the time, so that a new one has the other half.
    let half = every / 2;
    let on_open = timeout(half, async {
        let connection = instance.open_connection(every).await?;
        responds(instance, connection, path, every).await
    });
    let is_up = if let Ok(Some(is_up)) = on_open.await {
        is_up
    } else {
        let on_fresh = timeout(half, async {
            let connection = instance.connection(true).await.ok()?;
            responds(instance, connection, path, every).await
        });
        matches!(on_fresh.await, Ok(Some(true)))
    };
    if is_up {
        instance.succeeded();
    } else {
        instance.failed();
    }
}

/// Sends a check. Returns `None` if there is no response.
async fn responds(
    instance: &Instance,
    connection: Connection,
    path: &str,
    every: Duration,
) -> Option<bool> {
    let request = Request::get(path).header(HOST, instance.authority());
    let request = request.body(Body::empty()).ok()?;
    match instance.send(connection, request).await {
        Attempt::Answered(response, stream) => {
            let is_up = !response.status().is_server_error();
            // The connection can be used again when the body has ended.
            tokio::spawn(async move {
                let body = Limited::new(response.into_body(), BODY_BYTES_MAX);
                let _read = timeout(every, body.collect()).await;
                drop(stream);
            });
            Some(is_up)
        }
        Attempt::NotSent(..) | Attempt::Refused(_) | Attempt::Failed(_) => None,
    }
}
