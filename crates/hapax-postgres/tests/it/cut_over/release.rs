//! Instances of three releases of the guide's service: how each takes a key, runs a request and
//! stores its response.

use tokio_postgres::{Client, Error, Transaction};

pub(super) const REQUEST: &[u8] = b"{\"amount\": 500}";

/// The release that an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Uses the old table.
    Old,
    /// Claims in Hapax and adopts from the old table.
    CutOver,
    /// Uses Hapax. The fingerprint is the hash of the old release.
    New,
}

/// What an instance found when it took a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Open,
    Stored(Vec<u8>),
    Refused(String),
}

/// An instance of a release: takes the key, in the transaction of the request.
pub(super) async fn take(
    tx: &Transaction<'_>,
    release: Release,
    key: &str,
    request: &[u8],
) -> Result<Taken, Error> {
    if release == Release::Old {
        let insert = "INSERT INTO idempotency_keys (tenant, operation, key, request_hash)
            VALUES ('alice', 'POST /orders', $1, sha256($2)) ON CONFLICT DO NOTHING";
        if tx.execute(insert, &[&key, &request]).await? == 1 {
            return Ok(Taken::Open);
        }
        let stored = "SELECT body FROM idempotency_keys WHERE key = $1";
        return Ok(Taken::Stored(
            tx.query_one(stored, &[&key]).await?.get("body"),
        ));
    }
    let fingerprint = match release {
        Release::CutOver => "sha256('v1'::bytea || $2)",
        _ => "sha256($2)",
    };
    let claim = format!(
        "SELECT outcome, body FROM hapax.claim('alice', 'POST /orders', $1, {fingerprint},
             wait => '30 seconds')"
    );
    let claimed = tx.query_one(&claim, &[&key, &request]).await?;
    match claimed.get::<_, &str>("outcome") {
        "open" if release == Release::CutOver => {}
        "open" => return Ok(Taken::Open),
        "replay" => return Ok(Taken::Stored(claimed.get("body"))),
        other => return Ok(Taken::Refused(other.to_owned())),
    }
    let adopt = "SELECT outcome, status, body
        FROM cut_over.adopt('alice', 'POST /orders', $1, sha256($2))";
    let adopted = tx.query_one(adopt, &[&key, &request]).await?;
    match adopted.get::<_, &str>("outcome") {
        "open" => Ok(Taken::Open),
        "replay" => {
            let body: Vec<u8> = adopted.get("body");
            complete(tx, key, adopted.get("status"), &body).await?;
            Ok(Taken::Stored(body))
        }
        other => Ok(Taken::Refused(other.to_owned())),
    }
}

async fn complete(tx: &Transaction<'_>, key: &str, status: i32, body: &[u8]) -> Result<(), Error> {
    let complete = "SELECT hapax.complete('alice', 'POST /orders', $1, $2,
        '[[\"content-type\", \"application/json\"]]', $3)";
    tx.execute(complete, &[&key, &status, &body])
        .await
        .map(drop)
}

/// Executes a request whose key was taken; the response is the id of the order.
pub(super) async fn run(
    tx: &Transaction<'_>,
    release: Release,
    key: &str,
) -> Result<Vec<u8>, Error> {
    let insert = "INSERT INTO orders (key) VALUES ($1) RETURNING id";
    let id: i64 = tx.query_one(insert, &[&key]).await?.get("id");
    let body = format!("{{\"id\": {id}}}").into_bytes();
    match release {
        Release::Old => {
            let store = "UPDATE idempotency_keys SET status = 201, body = $2 WHERE key = $1";
            tx.execute(store, &[&key, &body]).await?;
        }
        Release::CutOver => {
            let record = "SELECT cut_over.record('alice', 'POST /orders', $1, 201, $2)";
            tx.execute(record, &[&key, &body]).await?;
            complete(tx, key, 201, &body).await?;
        }
        Release::New => complete(tx, key, 201, &body).await?,
    }
    Ok(body)
}

/// Sends a request to an instance, and returns the response.
pub(super) async fn send(
    client: &mut Client,
    release: Release,
    key: &str,
) -> Result<Vec<u8>, Error> {
    let tx = client.transaction().await?;
    let body = match take(&tx, release, key, REQUEST).await? {
        Taken::Open => run(&tx, release, key).await?,
        Taken::Stored(body) => body,
        Taken::Refused(outcome) => panic!("{key} is {outcome}"),
    };
    tx.commit().await?;
    Ok(body)
}
