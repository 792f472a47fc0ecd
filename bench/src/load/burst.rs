//! Many simultaneous requests.
//!
//! The connections are opened and used once before, so that handshakes are not measured. Then all
//! requests are released together. The body of each response is kept.

use std::{net::SocketAddr, rc::Rc, time::Instant};

use anyhow::Context as _;
use bytes::Bytes;
use tokio::{
    runtime::Builder,
    sync::{Barrier, oneshot},
    task::{JoinSet, LocalSet},
};

use super::{Connection, Request, Tally, response::Head};

/// Sends all `requests` at once, each on a separate connection.
///
/// `greeting` is sent on each connection beforehand. The bodies are returned in any order.
pub(crate) async fn burst(
    address: SocketAddr,
    greeting: &Request,
    requests: Vec<Request>,
) -> anyhow::Result<(Tally, Vec<Bytes>)> {
    let (send, receive) = oneshot::channel();
    let greeting = greeting.clone();
    std::thread::Builder::new()
        .name("burst".to_owned())
        .spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let answers = runtime
                .context("cannot start a runtime")
                .and_then(|runtime| {
                    LocalSet::new().block_on(&runtime, release(address, greeting, requests))
                });
            // The receiver may be gone because the run was cancelled.
            let _ = send.send(answers);
        })?;
    receive.await.context("the thread of the burst died")?
}

async fn release(
    address: SocketAddr,
    greeting: Request,
    requests: Vec<Request>,
) -> anyhow::Result<(Tally, Vec<Bytes>)> {
    let ready = Rc::new(Barrier::new(requests.len()));
    let mut tasks = JoinSet::new();
    for request in requests {
        let (ready, greeting) = (Rc::clone(&ready), greeting.clone());
        tasks.spawn_local(async move {
            let mut connection = Connection::open(address).await?;
            connection.exchange(greeting.bytes()).await?;
            ready.wait().await;
            let sent = Instant::now();
            let head = connection.exchange(request.bytes()).await?;
            let received = Instant::now();
            anyhow::Ok((
                head,
                sent,
                received,
                Bytes::copy_from_slice(connection.body()),
            ))
        });
    }
    let mut answers: Vec<(Head, Instant, Instant, Bytes)> = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        answers.push(ended.context("a connection panicked")??);
    }
    let mut tally = Tally::new();
    for (head, sent, received, _) in &answers {
        tally.window(*sent, None);
        tally.record(head, *sent, *received);
    }
    Ok((
        tally,
        answers.into_iter().map(|(_, _, _, body)| body).collect(),
    ))
}
