//! Tests of the faults: each occurs, is counted, and can be removed.

use std::io::ErrorKind;

use futures_util::future::join;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};
use tokio_postgres::{Client, error::SqlState};

use super::{
    protocol::{Protocol, Scan},
    *,
};
use crate::{
    postgres::{self, Database},
    wait::eventually,
};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn bytes_pass_both_ways_until_one_side_ends() {
    let (_far, proxy) = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let large = vec![7; 3_000_000];
    let (mut read, mut write) = stream.split();
    let mut back = Vec::new();
    let there = async {
        write.write_all(&large).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let ((), read) = join(there, read.read_to_end(&mut back)).await;
    read.unwrap();
    assert_eq!(back, large);
    assert_eq!(proxy.tally().accepted, 1);
}

#[tokio::test]
async fn a_delay_is_kept_each_way_and_delays_no_more_than_once() {
    let (_far, proxy) = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    proxy.delay(Duration::from_millis(20));
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        // Ten messages are in flight at the same time and share the delay.
        for _ in 0..10 {
            stream.write_all(b"x").await.unwrap();
        }
        stream.read_exact(&mut [0; 10]).await.unwrap();
        quickest = quickest.min(start.elapsed());
        assert!(start.elapsed() >= Duration::from_millis(40));
    }
    assert!(quickest < Duration::from_millis(400));
}

#[tokio::test]
async fn connections_are_refused_until_they_are_not() {
    let (_far, proxy) = echo().await;
    proxy.refuse(true).await;
    let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.heal().await;
    assert!(is_echoing(&proxy).await);
}

#[tokio::test]
async fn a_reset_ends_what_is_there_and_not_what_comes() {
    let (_far, proxy) = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoed(&mut stream).await;
    proxy.reset();
    let reset = stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.tally().reset, 1);
    assert!(is_echoing(&proxy).await);
}

#[tokio::test]
async fn a_black_hole_swallows_bytes_and_the_end_and_never_gives_them_back() {
    let (_far, proxy) = echo().await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    echoed(&mut stream).await;
    proxy.black_hole();
    stream.write_all(b"lost").await.unwrap();
    eventually(PATIENCE, async || proxy.tally().swallowed == 4).await;
    proxy.heal().await;
    stream.write_all(b"too").await.unwrap();
    eventually(PATIENCE, async || proxy.tally().swallowed == 7).await;
    assert!(is_echoing(&proxy).await);
}

#[tokio::test]
async fn a_cut_comes_after_so_many_bytes() {
    let (_far, proxy) = echo().await;
    proxy.set(Direction::ToClient, Fault::CutAfter(5));
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(b"12345678").await.unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, b"12345");
    eventually(PATIENCE, async || proxy.tally().cut == 1).await;
}

#[tokio::test]
async fn what_is_sliced_arrives_whole_and_piece_by_piece() {
    let (_far, proxy) = echo().await;
    proxy.set(Direction::ToClient, Fault::Slice(2));
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let began = Instant::now();
    stream.write_all(b"123456789").await.unwrap();
    let mut back = [0; 9];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"123456789");
    // Five pieces have four intervals.
    assert!(began.elapsed() >= Duration::from_millis(4));
}

#[tokio::test]
async fn new_connections_are_led_elsewhere_and_one_without_a_server_ends() {
    let (_far, proxy) = echo().await;
    proxy.lead_to(format!("127.0.0.1:{}", free_port()));
    assert!(!is_echoing(&proxy).await);
    assert_eq!(proxy.tally().unserved, 1);
}

#[tokio::test]
async fn a_commit_is_cut_before_the_server_or_before_the_client_hears_it() {
    check_commit(Deed::CutBefore, &[], false, "COMMIT").await;
    check_commit(Deed::CutAfter, &["COMMIT"], true, "COMMIT").await;
    check_commit(Deed::CutAfter, &["COMMIT"], true, "SELECT 1; commit;").await;
    check_commit(Deed::CutAfter, &["COMMIT"], true, "SELECT 1;COMMIT;").await;
}

#[tokio::test]
async fn a_prepared_commit_in_a_flight_is_cut_before_or_after() {
    for (deed, rows) in [(Deed::CutBefore, 0), (Deed::CutAfter, 1)] {
        let (database, proxy, client) = postgres().await;
        let insert = client.prepare("INSERT INTO row VALUES ($1)").await.unwrap();
        let commit = client.prepare("COMMIT").await.unwrap();
        client.batch_execute("BEGIN").await.unwrap();
        let trap = proxy.once(Moment::commit(), deed);
        let (_, committed) =
            join(client.execute(&insert, &[&1]), client.execute(&commit, &[])).await;
        assert!(committed.unwrap_err().is_closed(), "{deed:?}");
        assert_eq!(trap.count(), 1);
        eventually(PATIENCE, async || count(&database).await == rows).await;
    }
}

#[tokio::test]
async fn what_a_failed_transaction_answers_to_its_commit_is_known() {
    let (database, proxy, client) = postgres().await;
    let trap = proxy.once(Moment::commit(), Deed::CutAfter);
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute("SELECT nothing").await.unwrap_err();
    client.batch_execute("COMMIT").await.unwrap_err();
    assert_eq!(trap.answers(), ["ROLLBACK"]);
    let client = postgres::connect(&proxy.url(&database.url())).await;
    let trap = proxy.once(Moment::containing("nothing"), Deed::CutAfter);
    client
        .query(
            "SELECT 1 / (nothing - 1) FROM (VALUES (1)) it (nothing)",
            &[],
        )
        .await
        .unwrap_err();
    assert_eq!(trap.answers(), ["22012"]);
}

#[tokio::test]
async fn a_commit_or_its_answer_is_swallowed_and_the_connection_stays() {
    for (deed, rows) in [(Deed::SwallowBefore, 0), (Deed::SwallowAfter, 1)] {
        let (database, proxy, client) = postgres().await;
        let trap = proxy.once(Moment::commit(), deed);
        client
            .batch_execute("BEGIN; INSERT INTO row VALUES (1)")
            .await
            .unwrap();
        let commit = tokio::spawn(async move { client.batch_execute("COMMIT").await });
        trap.sprung().await;
        eventually(PATIENCE, async || count(&database).await == rows).await;
        assert!(!commit.is_finished(), "{deed:?}");
        commit.abort();
    }
}

#[tokio::test]
async fn a_statement_or_its_answer_is_held_until_it_is_let_go() {
    for (deed, rows) in [(Deed::HoldBefore, 0), (Deed::HoldAfter, 1)] {
        let (database, proxy, client) = postgres().await;
        let trap = proxy.once(Moment::commit(), deed);
        client
            .batch_execute("BEGIN; INSERT INTO row VALUES (1)")
            .await
            .unwrap();
        let commit = tokio::spawn(async move { client.batch_execute("COMMIT").await });
        trap.sprung().await;
        eventually(PATIENCE, async || count(&database).await == rows).await;
        assert!(!commit.is_finished(), "{deed:?}");
        trap.release();
        commit.await.unwrap().unwrap();
        assert_eq!(count(&database).await, 1);
    }
}

#[tokio::test]
async fn a_statement_is_refused_and_the_server_runs_those_that_were_sent_with_it() {
    let (database, proxy, client) = postgres().await;
    let insert = client.prepare("INSERT INTO row VALUES ($1)").await.unwrap();
    let trap = proxy.once(Moment::containing("BEGIN"), Deed::Garble);
    let opened = client.batch_execute("BEGIN");
    let (refused, inserted) = join(opened, client.execute(&insert, &[&1])).await;
    assert_eq!(refused.unwrap_err().code(), Some(&SqlState::SYNTAX_ERROR));
    inserted.unwrap();
    assert_eq!((trap.count(), count(&database).await), (1, 1));
    client.batch_execute("BEGIN").await.unwrap();
}

#[tokio::test]
async fn a_cancel_is_caught_on_its_own_connection() {
    const RUNNING: &str = "SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep(30)'";
    let (database, proxy, client) = postgres().await;
    let trap = proxy.once(Moment::cancel(), Deed::HoldBefore);
    let cancel = client.cancel_token();
    let running = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(30)").await });
    let looking = database.client().await;
    let is_running = async || !looking.query(RUNNING, &[]).await.unwrap().is_empty();
    eventually(PATIENCE, is_running).await;
    cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    trap.sprung().await;
    assert!(is_running().await);
    trap.release();
    running.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn large_messages_pass_whole() {
    let (_database, proxy, client) = postgres().await;
    let trap = proxy.once(Moment::commit(), Deed::CutAfter);
    let large = "x".repeat(3_000_000);
    let row = client
        .query_one("SELECT $1::text", &[&large])
        .await
        .unwrap();
    assert!(row.get::<_, &str>(0) == large);
    assert_eq!(trap.count(), 0);
}

#[test]
fn what_follows_a_refused_request_to_encrypt_is_understood_byte_by_byte() {
    let mut protocol = Protocol::default();
    let trap = Trap::new(Moment::commit(), Deed::CutBefore, 1);
    let traps = [trap.clone()];
    let mut say = |bytes: &[u8]| {
        // Any split of the bytes can occur.
        for end in 1..=bytes.len() {
            let Scan { pass, sprung } = protocol.client(&bytes[..end], &traps);
            if pass > 0 || sprung.is_some() {
                assert_eq!(end, bytes.len());
                return (pass, protocol.server(b"N").pass);
            }
        }
        panic!("nothing passes of {bytes:?}");
    };
    assert_eq!(say(&message(None, &80_877_103_u32.to_be_bytes())), (8, 1));
    assert_eq!(say(&message(None, &196_608_u32.to_be_bytes())), (8, 0));
    assert_eq!(say(&message(Some(b'Q'), b"SELECT 1\0")).0, 14);
    assert_eq!(say(&message(Some(b'Q'), b"COMMIT\0")).0, 0);
    assert_eq!(trap.count(), 1);
}

#[test]
fn what_is_encrypted_passes_as_it_is() {
    let mut protocol = Protocol::default();
    let asks = message(None, &80_877_103_u32.to_be_bytes());
    assert_eq!(protocol.client(&asks, &[]).pass, 8);
    assert_eq!(protocol.server(b"S").pass, 1);
    assert_eq!(protocol.client(&[0x16, 3, 1], &[]).pass, 3);
    assert_eq!(protocol.server(&[0x16, 3, 3]).pass, 3);
}

fn message(tag: Option<u8>, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::from_iter(tag);
    message.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    message.extend(body);
    message
}

async fn check_commit(deed: Deed, answers: &[&str], is_there: bool, commit: &str) {
    let (database, proxy, client) = postgres().await;
    client
        .batch_execute("BEGIN; INSERT INTO row VALUES (1)")
        .await
        .unwrap();
    let trap = proxy.once(Moment::commit(), deed);
    let error = client.batch_execute(commit).await.unwrap_err();
    assert!(error.is_closed() || error.code().is_none(), "{error:?}");
    assert_eq!(
        (trap.count(), trap.answers()),
        (1, answers.iter().map(|it| (*it).to_owned()).collect())
    );
    eventually(PATIENCE, async || {
        count(&database).await == i64::from(is_there)
    })
    .await;
    eventually(PATIENCE, async || proxy.tally().cut == 1).await;
}

/// A database with an empty table `row`, a proxy for it, and a connection through the proxy.
async fn postgres() -> (Database, Proxy, Client) {
    let database = Database::fresh().await;
    let made = database
        .client()
        .await
        .batch_execute("CREATE TABLE row (id integer)")
        .await;
    made.unwrap();
    let proxy = Proxy::to_postgres(database.address());
    let client = postgres::connect(&proxy.url(&database.url())).await;
    (database, proxy, client)
}

async fn count(database: &Database) -> i64 {
    let row = database
        .client()
        .await
        .query_one("SELECT count(*) FROM row", &[])
        .await;
    row.unwrap().get(0)
}

/// An echo server and a proxy for it.
async fn echo() -> (JoinSet<()>, Proxy) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::to(listener.local_addr().unwrap().to_string());
    let mut far = JoinSet::new();
    far.spawn(async move {
        let mut streams = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            streams.spawn(async move {
                let (mut read, mut write) = stream.split();
                let _copied = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    (far, proxy)
}

async fn echoed(stream: &mut TcpStream) {
    stream.write_all(b"?").await.unwrap();
    stream.read_exact(&mut [0]).await.unwrap();
}

async fn is_echoing(proxy: &Proxy) -> bool {
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let _written = stream.write_all(b"?").await;
    stream.read_exact(&mut [0]).await.is_ok()
}
