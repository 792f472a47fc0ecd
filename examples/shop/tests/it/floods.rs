//! Tests of many concurrent large bodies: they are accepted or rejected without delaying other
//! requests.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot::{self, error::TryRecvError},
};

use crate::{
    shop::{ORDER, Shop, Store, on_both_stores},
    uploads::memory,
};

on_both_stores! {
    json_floods_delay_no_other_and_fill_no_memory,
    json_beside_long_bodies_fills_no_memory,
}

const MEBIBYTE: u64 = 1024 * 1024;
/// The number of connections of each flood.
const CONNECTIONS: usize = 32;
/// The minimum number of other requests whose time is measured.
const SAMPLES: usize = 200;

async fn json_floods_delay_no_other_and_fill_no_memory(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    assert_eq!(shop.get("/healthz").await.status, 200);
    assert_eq!(shop.post("/orders", Some("first"), ORDER).await.status, 201);
    // The route for long bodies gets three million members. The route for JSON gets objects of the
    // maximum size, as many as fit into the limit of a JSON body.
    let upload = Bytes::from(object(3_000_000));
    assert!(upload.len() > 31 * 1024 * 1024);
    let sorted = object(9_000);
    let times = 1024 * 1024 / (sorted.len() + 1) - 1;
    let order = Bytes::from(format!("[{}]", vec![sorted; times].join(",")));
    assert!(order.len() > 900_000);
    let before = memory::begin(&shop);
    let address = shop.address().to_owned();
    let (over, mut is_over) = oneshot::channel();
    // The flood runs on a separate thread, so that it does not delay the measured requests.
    let flooding = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let connections = (0..CONNECTIONS).flat_map(|_| {
            [
                send(&address, "/uploads", upload.clone()),
                send(&address, "/orders", order.clone()),
            ]
        });
        let answers = runtime.block_on(join_all(connections));
        let _gone = over.send(());
        answers
    });
    let mut took = Vec::new();
    while is_over.try_recv() == Err(TryRecvError::Empty) || took.len() < SAMPLES {
        let began = Instant::now();
        let status = if took.len() % 2 == 0 {
            shop.get("/healthz").await.status
        } else {
            let key = took.len().to_string();
            shop.post("/orders", Some(&key), ORDER).await.status
        };
        took.push(began.elapsed());
        assert!([200, 201].contains(&status), "{status}");
    }
    for pair in flooding.join().unwrap().chunks(2) {
        // The server may close a connection before the client has read the response.
        assert!([None, Some(415)].contains(&pair[0]), "{pair:?}");
        assert_eq!(pair[1], Some(400));
    }
    took.sort();
    let p99 = took[took.len() * 99 / 100];
    let slowest = took.last();
    let about = format!("p99 of {} was {p99:?}, the slowest {slowest:?}", took.len());
    assert!(p99 < Duration::from_millis(100), "{about}");
    let grown = memory::peak(&shop) - before;
    assert!(grown < 128 * MEBIBYTE, "the memory grew by {grown} bytes");
}

/// Long bodies are written by many threads. Each of these threads could keep the memory of a JSON
/// body that it has sorted.
async fn json_beside_long_bodies_fills_no_memory(on: Store) {
    let shop = Shop::start(on, &["--no-relay"]).await;
    assert_eq!(shop.post("/orders", Some("first"), ORDER).await.status, 201);
    let upload = Bytes::from(vec![b'.'; 3 * 1024 * 1024]);
    let order = Bytes::from(object(80_000));
    assert!((800_000..1024 * 1024).contains(&order.len()));
    let before = memory::begin(&shop);
    let address = shop.address().to_owned();
    let flooding = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        for _ in 0..4 {
            let uploads = (0..200).map(|_| {
                let media_type = "multipart/form-data; boundary=x";
                send_as(&address, "/uploads", media_type, upload.clone())
            });
            let orders = (0..100).map(|_| send(&address, "/orders", order.clone()));
            runtime.block_on(async { tokio::join!(join_all(uploads), join_all(orders)) });
        }
    });
    flooding.join().unwrap();
    let grown = memory::peak(&shop) - before;
    assert!(grown < 512 * MEBIBYTE, "the memory grew by {grown} bytes");
    assert_eq!(shop.post("/orders", Some("last"), ORDER).await.status, 201);
}

/// Sends a JSON body, and returns the status of the response. Returns `None` if the connection was
/// closed before the response could be read.
async fn send(address: &str, path: &str, body: Bytes) -> Option<u16> {
    send_as(address, path, "application/json", body).await
}

async fn send_as(address: &str, path: &str, media_type: &str, body: Bytes) -> Option<u16> {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let key = KEYS.fetch_add(1, Ordering::Relaxed);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer demo-bob\r\n\
         content-type: {media_type}\r\nidempotency-key: flood-{key}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut reading, mut writing) = stream.into_split();
    let sending = tokio::spawn(async move {
        writing.write_all(head.as_bytes()).await?;
        writing.write_all(&body).await?;
        Ok::<_, std::io::Error>(writing)
    });
    let mut answer = [0; 12];
    let read = reading.read_exact(&mut answer).await;
    sending.abort();
    read.ok()?;
    let status = std::str::from_utf8(&answer[9..]).ok()?;
    status.parse().ok()
}

/// An object with this many short members in random order.
fn object(members: u64) -> String {
    let mut text = String::with_capacity(usize::try_from(members * 11).unwrap());
    let mut separator = '{';
    for number in 0..members {
        // The factor is odd, so every number occurs once, far from its neighbours.
        let name = number.wrapping_mul(0x9e37_79b1) & 0xffff_ffff;
        write!(text, "{separator}\"{}\":0", base36(name)).unwrap();
        separator = ',';
    }
    text.push('}');
    text
}

fn base36(mut number: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut text = String::new();
    loop {
        text.push(char::from(DIGITS[usize::try_from(number % 36).unwrap()]));
        number /= 36;
        if number == 0 {
            return text;
        }
    }
}
