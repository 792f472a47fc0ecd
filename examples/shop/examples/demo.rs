//! A client that repeats requests to a running shop, and writes what it observes as CSV.
//!
//! `retries.csv` has the attempts of a payment whose response comes after the time of the first
//! attempt. `replays.csv` has the outcomes of an order that is sent again, unchanged and changed.
//! `inbox.csv` has the deliveries of an event whose first acknowledgement is lost. The shop must run
//! in demo mode, and its receiver must not be misbehaving.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use hapax::{
    Clock, Random,
    key::{IdempotencyKey, hex},
};
use hapax_client::{Client, Request, Response, Settings};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

const TOKEN: &str = "Bearer demo-alice";
/// A payment for which the provider needs three seconds.
const PAYMENT: &str = r#"{"amount":1000,"currency":"EUR","card":"tok_slow"}"#;
const ORDER: &str = r#"{"customer_id":"ann","amount":500,"currency":"EUR"}"#;
const OTHER_ORDER: &str = r#"{"customer_id":"ann","amount":501,"currency":"EUR"}"#;
/// The receiver accepts the next event and does not respond.
const LOSE_ONE: &str = r#"{"mode":"ack_lost","count":1}"#;
/// Time limit of one attempt: less than the provider needs.
const ATTEMPT_MAX: Duration = Duration::from_millis(1_500);
/// How often, and with which pauses, the receiver is asked for the second delivery.
const LOOKS: (u32, Duration) = (300, Duration::from_millis(100));

/// Repeats requests to a running shop in demo mode, and writes what happens as CSV
#[derive(Debug, Parser)]
#[command(name = "demo", version)]
struct Args {
    /// Directory for retries.csv, replays.csv and inbox.csv
    #[arg(long, value_name = "DIR")]
    csv: PathBuf,
    /// URL of the shop
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    shop: String,
}

/// A client of the shop.
struct Shop {
    url: String,
    client: Client,
}

/// What the demo's receiver says about one event.
#[derive(Debug, Deserialize)]
struct Seen {
    event_id: String,
    deliveries: u64,
    effects: u64,
    first_at: String,
    last_at: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the Tokio runtime")?;
    runtime.block_on(Box::pin(write_tables(&args)))
}

async fn write_tables(args: &Args) -> anyhow::Result<()> {
    let mut settings = Settings::new(Clock::system(), Random::system());
    settings.policy.attempt_max = Some(ATTEMPT_MAX);
    let shop = Shop {
        url: args.shop.trim_end_matches('/').to_owned(),
        client: Client::new(settings)?,
    };
    fs::create_dir_all(&args.csv)
        .with_context(|| format!("directory {} cannot be created", args.csv.display()))?;
    let tables = [
        ("retries.csv", retries(&shop).await?),
        ("replays.csv", replays(&shop).await?),
        ("inbox.csv", inbox(&shop).await?),
    ];
    for (name, table) in tables {
        let path = args.csv.join(name);
        fs::write(&path, table).with_context(|| format!("{} not written", path.display()))?;
    }
    Ok(())
}

/// The attempts of a payment.
async fn retries(shop: &Shop) -> anyhow::Result<String> {
    let answer = shop.post("/payments", PAYMENT, None).await?;
    ensure!(
        answer.status.is_success(),
        "the payment ended with {}:\n{}",
        answer.status,
        answer.attempts
    );
    Ok(format!("{}\n", answer.attempts))
}

/// The outcomes of an order, of its repetition, and of another order under its key.
async fn replays(shop: &Shop) -> anyhow::Result<String> {
    let key = IdempotencyKey::mint(&Random::system());
    let mut table = "key,payload_hash,status,http_code,result_id,notes\n".to_owned();
    for body in [ORDER, ORDER, OTHER_ORDER] {
        let answer = shop.post("/orders", body, Some(&key)).await?;
        let (key, hash) = (key.as_str(), hex(&Sha256::digest(body)));
        let (state, id, notes) = outcome(&answer)?;
        let status = answer.status.as_u16();
        writeln!(table, "{key},{hash},{state},{status},{id},{notes}")?;
    }
    Ok(table)
}

/// The state of the key, the id of the order, and the shop's remark about the response.
fn outcome(answer: &Response) -> anyhow::Result<(&'static str, String, &str)> {
    #[derive(Deserialize)]
    struct Order {
        id: String,
    }
    match answer.status.as_u16() {
        201 => {
            let Order { id } = serde_json::from_slice(&answer.body)?;
            let said = answer.headers.get("idempotency-status");
            let said = said.context("the response has no Idempotency-Status")?;
            Ok(("completed", id, said.to_str()?))
        }
        409 => {
            let code = answer.code.as_deref();
            Ok(("conflict", String::new(), code.unwrap_or_default()))
        }
        status => bail!("the order ended with {status}"),
    }
}

/// The deliveries of an event to the receiver, whose first acknowledgement is lost.
async fn inbox(shop: &Shop) -> anyhow::Result<String> {
    let repeated = |seen: &Seen| seen.deliveries > 1;
    let before = shop.received().await?;
    let before: BTreeSet<String> = before
        .into_iter()
        .filter(repeated)
        .map(|seen| seen.event_id)
        .collect();
    let set = shop.post("/demo/receiver/fault", LOSE_ONE, None).await?;
    ensure!(
        set.status.is_success(),
        "the receiver's fault was refused with {}: does the shop run in demo mode?",
        set.status
    );
    shop.post("/orders", ORDER, None).await?;
    let (looks, pause) = LOOKS;
    for _ in 0..looks {
        let mut received = shop.received().await?.into_iter();
        // It may be an earlier event, if one was delivered in the meantime.
        let found = received.find(|seen| repeated(seen) && !before.contains(&seen.event_id));
        if let Some(seen) = found {
            ensure!(
                seen.effects == 1,
                "the event had its effect again: {seen:?}"
            );
            return Ok(deliveries(&seen));
        }
        tokio::time::sleep(pause).await;
    }
    bail!("the event was not delivered a second time")
}

/// The receiver accepts an event and applies its effect in one transaction.
fn deliveries(seen: &Seen) -> String {
    let Seen {
        event_id: id,
        first_at: first,
        last_at: last,
        ..
    } = seen;
    format!(
        "event_id,source,first_seen,processed,result\n\
         {id},shop,{first},{first},ok\n{id},shop,{last},{last},replayed\n"
    )
}

impl Shop {
    /// Sends a POST. Without a key, the client generates one.
    async fn post(
        &self,
        path: &str,
        body: &'static str,
        key: Option<&IdempotencyKey>,
    ) -> anyhow::Result<Response> {
        let request = Request::post(&format!("{}{path}", self.url))?;
        let mut request = request.header("authorization", TOKEN)?.json(body);
        if let Some(key) = key {
            request = request.key(key.clone());
        }
        Ok(self.client.send(request).await?)
    }

    /// The events that the demo's receiver has received.
    async fn received(&self) -> anyhow::Result<Vec<Seen>> {
        #[derive(Deserialize)]
        struct Listed {
            events: Vec<Seen>,
        }
        let request = Request::get(&format!("{}/demo/receiver", self.url))?;
        let answer = self.client.send(request).await?;
        let Listed { events } = serde_json::from_slice(&answer.body)
            .context("the demo's receiver cannot be read: does the shop run in demo mode?")?;
        Ok(events)
    }
}
