//! Check after a power loss: the store must have everything that was acknowledged.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use fastrand::Rng;
use serde_json::Value;

use crate::{
    artifacts::OperationRecord,
    clients::{Kind, Witness},
    stored_rows::StoredRows,
};

/// Operations whose response is requested again: the last ones, and some of all.
const LAST: usize = 150;
const OF_ALL: usize = 100;
/// Number of violations after which the check stops.
const ENOUGH: usize = 10;
/// Rows that only a transaction writes together.
const TORN: [&str; 2] = [
    "SELECT id FROM shop_order AS made WHERE NOT EXISTS (
         SELECT 1 FROM @outbox_event WHERE type = 'order.created' AND aggregate_id = made.id)",
    "SELECT aggregate_id AS id FROM @outbox_event AS event WHERE type = 'order.created'
     AND NOT EXISTS (SELECT 1 FROM shop_order WHERE id = event.aggregate_id)",
];

/// Violations of a store, to which a shop on this port belongs.
pub(super) async fn violations(
    acknowledged: &[OperationRecord],
    stored_rows: &StoredRows,
    port: u16,
    random: &mut Rng,
) -> anyhow::Result<Vec<String>> {
    let mut found = lost(acknowledged, stored_rows).await?;
    for sql in TORN {
        let rows = stored_rows.read(sql).await?;
        found.extend(rows.iter().map(|row| {
            format!("an order without its event, or an event without its order: {row}")
        }));
    }
    if let StoredRows::File(path) = stored_rows {
        found.extend(damaged_files(
            acknowledged,
            &path.with_file_name("uploads"),
        )?);
        let check = stored_rows.read("PRAGMA integrity_check").await?;
        let is_sound = check.iter().all(|row| row["integrity_check"] == "ok");
        found.extend((!is_sound).then(|| format!("the file is damaged: {check:?}")));
    }
    let witness = Witness::of(&format!("127.0.0.1:{port}"));
    let last = acknowledged.len().saturating_sub(LAST);
    let mut repeated: HashSet<_> = (last..acknowledged.len()).collect();
    repeated.extend(
        (0..OF_ALL)
            .filter(|_| last > 0)
            .map(|_| random.usize(..last)),
    );
    for at in repeated {
        if found.len() > ENOUGH {
            break;
        }
        found.extend(differs(&acknowledged[at], &witness).await?);
    }
    Ok(found)
}

/// Acknowledged operations whose effect is missing or exists twice.
async fn lost(
    acknowledged: &[OperationRecord],
    stored_rows: &StoredRows,
) -> anyhow::Result<Vec<String>> {
    let named = [
        (Kind::Order, "SELECT note AS name FROM shop_order"),
        (Kind::Signup, "SELECT email AS name FROM shop_user"),
        (
            Kind::Message,
            "SELECT charge_id AS name FROM shop_ledger_entry WHERE source = 'provider'",
        ),
        (
            Kind::Market,
            "SELECT charge_id AS name FROM shop_ledger_entry WHERE source = 'market'",
        ),
        (Kind::Upload, "SELECT name FROM shop_upload"),
    ];
    let mut found = Vec::new();
    for (kind, sql) in named {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for row in stored_rows.read(sql).await? {
            *counts.entry(text(&row["name"])).or_default() += 1;
        }
        for record in acknowledged.iter().filter(|it| it.operation.kind == kind) {
            let body = &record.operation.body;
            let name = match kind {
                Kind::Order => &body["note"],
                Kind::Signup => &body["email"],
                Kind::Upload => &body["name"],
                _ => &body["data"]["charge_id"],
            };
            let times = counts.get(&text(name)).copied().unwrap_or_default();
            if times != 1 {
                found.push(format!(
                    "{} was acknowledged and exists {times} times",
                    record.name()
                ));
            }
        }
    }
    Ok(found)
}

/// Uploads whose file is not what was sent.
fn damaged_files(acknowledged: &[OperationRecord], files: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for record in acknowledged {
        let Some(upload) = record
            .acknowledged()
            .filter(|_| record.operation.kind == Kind::Upload)
        else {
            continue;
        };
        let kept = std::fs::read(files.join(text(&upload["sha256"])));
        let sent = record.operation.file()?;
        if kept.as_ref().ok() != Some(&sent) {
            let what = kept.map_or_else(|it| it.to_string(), |it| format!("{} bytes", it.len()));
            found.push(format!("the file of {} is damaged: {what}", record.name()));
        }
    }
    Ok(found)
}

/// The response must be the same as before.
async fn differs(record: &OperationRecord, witness: &Witness) -> anyhow::Result<Option<String>> {
    let Some(attempt) = record.final_attempt() else {
        return Ok(None);
    };
    let again = witness.repeat(&record.operation).await?;
    let member = |outcome: &Value, name: &str| outcome[name].clone();
    let of = |outcome: &Value| ["status", "headers", "body"].map(|name| member(outcome, name));
    let is_same = of(&attempt.response) == of(&again) && again["idempotency_status"] != "stored";
    Ok((!is_same).then(|| {
        format!(
            "{} got the response {} and then {again}",
            record.name(),
            attempt.response
        )
    }))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
