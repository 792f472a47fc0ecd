//! Stored rows, read directly from the store.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use hapax_testkit::postgres::connect;
use serde_json::{Map, Value, json};

use crate::{
    clients::digest,
    deployment::{Deployment, Server},
};

/// Where rows are: in a file of SQLite's, or in a database of a server.
#[derive(Clone, Debug)]
pub(crate) enum StoredRows {
    File(PathBuf),
    Server(String),
}

impl StoredRows {
    /// Tables that the shops of a deployment write.
    pub(crate) fn of(deployment: &Deployment) -> Self {
        match &deployment.server {
            None => Self::File(deployment.home().join("shop.db")),
            Some(server) => Self::Server(server.url.clone()),
        }
    }

    /// Rows of a query; `@` is replaced by the prefix of Hapax's tables.
    pub(crate) async fn read(&self, sql: &str) -> anyhow::Result<Vec<Value>> {
        let url = match self {
            Self::File(path) => return read_file(path, &sql.replace('@', "hapax_")),
            Self::Server(url) => url,
        };
        let client = connect(url).await;
        let sql = format!(
            "SELECT row_to_json(row)::text FROM ({}) AS row",
            sql.replace('@', "hapax.")
        );
        let rows = client.query(&sql, &[]).await?;
        let rows = rows.iter().map(|row| serde_json::from_str(row.get(0)));
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// Rows in the store of a deployment, table by table.
pub(crate) async fn all(deployment: &Deployment) -> anyhow::Result<Value> {
    let stored_rows = StoredRows::of(deployment);
    // The input of a checkout is stored as bytes in its saga.
    let cart = match &stored_rows {
        StoredRows::File(_) => "CAST(input AS TEXT)",
        StoredRows::Server(_) => "convert_from(input, 'UTF8')",
    };
    let sagas = format!("SELECT id, state, reason_code, {cart} AS cart FROM @saga");
    let queries = [
        ("orders", "SELECT tenant, id, amount, note, version FROM shop_order"),
        // A checkout's capture is a charge as well, by another name.
        (
            "charges",
            "SELECT id, tenant, amount FROM shop_charge WHERE id LIKE 'ch%'",
        ),
        ("refunds", "SELECT id, charge_id, amount, state FROM shop_refund"),
        ("users", "SELECT tenant, id, email FROM shop_user"),
        (
            "messages",
            "SELECT charge_id, amount FROM shop_ledger_entry
             WHERE source = 'provider' AND kind = 'charge'",
        ),
        (
            "market",
            "SELECT charge_id, amount FROM shop_ledger_entry
             WHERE source = 'market' AND kind = 'charge'",
        ),
        (
            "ledger",
            "SELECT charge_id, kind, amount FROM shop_ledger_entry
             WHERE source = 'shop' OR kind = 'refund'",
        ),
        ("stock", "SELECT sku, reserved FROM shop_stock"),
        (
            "uploads",
            "SELECT tenant, id, name, bytes, sha256, state,
                 (SELECT count(*) FROM shop_thumbnail AS made WHERE made.upload_id = upload.id) AS thumbnails
             FROM shop_upload AS upload",
        ),
        ("sagas", sagas.as_str()),
        ("keys", "SELECT count(*) AS count FROM @idempotency_key"),
        (
            "unfinished",
            "SELECT destination, state, last_error,
                 (SELECT event_id FROM @outbox_event AS event WHERE event.id = position) AS event_id,
                 (SELECT count(*) FROM @attempt AS attempt
                  WHERE attempt.destination = delivery.destination
                  AND attempt.position = delivery.position) AS attempts
             FROM @delivery AS delivery WHERE state NOT IN ('delivered', 'discarded')",
        ),
    ];
    let mut tables = Map::new();
    for (name, sql) in queries {
        tables.insert(name.to_owned(), Value::Array(stored_rows.read(sql).await?));
    }
    for row in tables["uploads"].as_array_mut().into_iter().flatten() {
        let file = kept(&deployment.home().join("uploads"), row);
        row["kept"] = json!(file.as_ref().map(Vec::len));
        row["content"] = json!(file.map(|it| digest(&it)));
    }
    if let Some(server) = &deployment.server {
        tables.insert("remote".to_owned(), Value::Array(remote(server).await?));
        let notes = stored_rows.read("SELECT id FROM sql_client_note").await?;
        tables.insert("notes".to_owned(), Value::Array(notes));
        let takeovers = "SELECT coalesce(sum(epoch - 1), 0)::int8 AS epochs FROM @position";
        let takeovers = stored_rows.read(takeovers).await?;
        tables.insert("takeovers".to_owned(), Value::Array(takeovers));
    }
    Ok(Value::Object(tables))
}

/// Rows that the PostgreSQL sink has written to the remote database.
pub(crate) async fn remote(server: &Server) -> anyhow::Result<Vec<Value>> {
    let rows = "SELECT event_id, type, aggregate_id, sequence, payload AS data
                FROM inbox_event ORDER BY position";
    let url = format!("{}_remote", server.url);
    StoredRows::Server(url).read(rows).await
}

/// File of an upload; empty if the file does not exist.
fn kept(uploads: &Path, row: &Value) -> Option<Vec<u8>> {
    let file = uploads.join(row["sha256"].as_str()?);
    std::fs::read(file).ok()
}

fn read_file(path: &Path, sql: &str) -> anyhow::Result<Vec<Value>> {
    use rusqlite::types::ValueRef;
    let rows = rusqlite::Connection::open(path)?;
    rows.busy_timeout(Duration::from_secs(10))?;
    let mut statement = rows.prepare(sql)?;
    let names: Vec<_> = statement.column_names().map(str::to_owned).collect();
    let read = statement.query_map([], |row| {
        let columns = names.iter().enumerate().map(|(at, name)| {
            let value = match row.get_ref(at)? {
                ValueRef::Integer(number) => json!(number),
                ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
                _ => Value::Null,
            };
            Ok((name.clone(), value))
        });
        Ok(Value::Object(columns.collect::<rusqlite::Result<_>>()?))
    })?;
    Ok(read.collect::<rusqlite::Result<_>>()?)
}
