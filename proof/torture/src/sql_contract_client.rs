//! SQL-contract client: a service in another language on the same database, which uses only the SQL
//! contract.
//!
//! Each of its transactions writes a note, emits its event and then stays open for a while. It is
//! usually the oldest open transaction, and events with higher ids are read before its own becomes
//! visible. It is killed like all other processes. Each note is in its history, in the format of
//! Jepsen and on disk, before the transaction begins.

use std::{path::PathBuf, time::Duration};

use fastrand::Rng;
use hapax_testkit::wait::pace;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::{Error, NoTls};

use crate::lines::{self, Lines, now};

/// Table that it writes in addition to its events.
pub(crate) const TABLE: &str = "CREATE TABLE sql_client_note (id text PRIMARY KEY)";
/// How long a transaction stays open, in milliseconds.
const OPEN: std::ops::Range<u64> = 100..1_500;
/// Longest pause between two transactions, in milliseconds.
const PAUSE: u64 = 400;
/// One in so many is rolled back.
const ROLLED_BACK: u8 = 4;

/// Writes notes until SIGTERM, and leaves its transactions open
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// The history to continue
    #[arg(long, value_name = "FILE")]
    history: PathBuf,
    /// The database
    #[arg(long, value_name = "URL")]
    database: String,
    /// Seed of the random choices
    #[arg(long)]
    seed: u64,
}

/// Writes one note after the other; SIGTERM leaves the last one's transaction to the server.
pub(crate) async fn run(flags: Flags) -> anyhow::Result<()> {
    let mut outcome = signal(SignalKind::terminate())?;
    // Each note has two lines or one: no number is used twice.
    let written = lines::read(&flags.history)?.len() as u64;
    let history = Lines::open(&flags.history)?;
    let mut random = Rng::with_seed(flags.seed ^ (written << 8));
    let write = async {
        for number in written.. {
            let line = |word: &str| {
                json!({
                    "type": word, "process": number, "f": "note", "value": format!("note-{number}"),
                    "time": now(),
                })
            };
            history.keep(&line("invoke"))?;
            let word = write(&flags.database, &format!("note-{number}"), &mut random).await;
            history.add(&line(word))?;
            pace(Duration::from_millis(random.u64(..PAUSE))).await;
        }
        Ok(())
    };
    tokio::select! {
        _ = outcome.recv() => Ok(()),
        ended = write => ended,
    }
}

/// Writes a note; returns whether it exists (`ok`), does not exist (`fail`), or may exist (`info`).
async fn write(database: &str, id: &str, random: &mut Rng) -> &'static str {
    let open = Duration::from_millis(random.u64(OPEN));
    let is_rolled_back = random.u8(..ROLLED_BACK) == 0;
    let Ok((client, connection)) = tokio_postgres::connect(database, NoTls).await else {
        return "fail";
    };
    let connection = tokio::spawn(connection);
    let begun = async {
        client.batch_execute("BEGIN").await?;
        let note = "INSERT INTO sql_client_note (id) VALUES ($1)";
        client.execute(note, &[&id]).await?;
        let emit = "SELECT hapax.emit('note.written', $1)";
        client
            .execute(emit, &[&json!({ "id": id }).to_string()])
            .await?;
        Ok::<_, Error>(())
    };
    if begun.await.is_err() {
        return "fail";
    }
    pace(open).await;
    let word = if is_rolled_back {
        let _nothing = client.batch_execute("ROLLBACK").await;
        "fail"
    } else if client.batch_execute("COMMIT").await.is_ok() {
        "ok"
    } else {
        "info"
    };
    drop(client);
    let _closed = connection.await;
    word
}
