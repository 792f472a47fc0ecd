//! Many simultaneous requests.
//!
//! The connections are opened and used once before, so that handshakes are not measured. Then all
//! requests are released together. The body of each response is kept.
//!
//! A listener whose connections are all in use closes those that are slow to send their first request.
//! That happens to a burst on a busy machine, while the service still has the connections of the burst
//! before. Such a connection is opened again, because it has not been used for a measurement yet.

use std::{
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use bytes::Bytes;
use tokio::{
    runtime::Builder,
    sync::{Barrier, oneshot},
    task::{JoinSet, LocalSet},
    time::sleep,
};

use super::{Connection, Request, Tally, response::Head};

/// How long a connection may take to be open and to have been used once.
const OPEN: Duration = Duration::from_secs(20);
/// Pause before a connection that was closed is opened again.
const AGAIN: Duration = Duration::from_millis(50);

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
            let mut connection = used_once(address, &greeting).await?;
            ready.wait().await;
            let sent = Instant::now();
            let head = connection.exchange(request.bytes()).await;
            let head = head.context("a request of the burst failed")?;
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

/// Opens a connection and sends `greeting` on it, again if the service closes it.
async fn used_once(address: SocketAddr, greeting: &Request) -> anyhow::Result<Connection> {
    let last = Instant::now() + OPEN;
    loop {
        let error = match greeted(address, greeting).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        if Instant::now() >= last {
            return Err(error.context("a connection could not be used before the burst"));
        }
        sleep(AGAIN).await;
    }
}

async fn greeted(address: SocketAddr, greeting: &Request) -> anyhow::Result<Connection> {
    let mut connection = Connection::open(address).await?;
    connection.exchange(greeting.bytes()).await?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// A service that closes the first two connections without a response.
    #[tokio::test]
    async fn a_connection_that_is_closed_before_the_burst_is_opened_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let service = std::thread::spawn(move || {
            for _ in 0..2 {
                drop(listener.accept().unwrap());
            }
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..2 {
                let read = stream.read(&mut [0; 1024]).unwrap();
                assert_ne!(read, 0);
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                stream.write_all(response).unwrap();
            }
        });
        let greeting = Request::get("/", None);
        let (_, bodies) = burst(address, &greeting, vec![greeting.clone()])
            .await
            .unwrap();
        assert_eq!(bodies, ["ok"]);
        service.join().unwrap();
    }
}
