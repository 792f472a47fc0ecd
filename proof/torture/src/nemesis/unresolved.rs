//! Destinations whose host name is never resolved, beside others that work.

use std::time::Duration;

use hapax_testkit::wait::pace;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Nemesis, canary, injection::admin, watch};
use crate::{
    deployment::{SilentNameServer, UNRESOLVED, WEBHOOK_SECRET},
    lines::now,
};

/// How long relays may take until they query the name.
const QUERIED: Duration = Duration::from_secs(10);
/// Destinations of one fault: a machine can look up some hundreds of names at once, and each relay
/// serves some of them.
const DESTINATIONS: usize = 6;
const LOOK: Duration = Duration::from_millis(20);
/// How long the others are watched: less than a look-up of the C library takes until it gives up.
const WATCHED: Duration = Duration::from_secs(8);

/// Declares destinations for all events whose host name no name server resolves, and removes them
/// after a while; whether their name was queried.
pub(super) async fn run(nemesis: &mut Nemesis, line: &mut Value) -> anyhow::Result<bool> {
    if nemesis.deployment.name_server.is_none() {
        return Ok(false);
    }
    nemesis.deployment.up().await?;
    if !canary(nemesis).await? {
        return Ok(false);
    }
    let queries = |nemesis: &Nemesis| {
        let server = nemesis.deployment.name_server.as_ref();
        server.map_or(0, SilentNameServer::queries)
    };
    let before = queries(nemesis);
    let names = (0..DESTINATIONS).map(|number| format!("{UNRESOLVED}-{}-{number}", now()));
    let names: Vec<_> = names.collect();
    let spec = json!({
        "sink": { "webhook": {
            "url": "http://unresolved.example/hook", "secret": WEBHOOK_SECRET, "allow": [],
        } },
        "concurrency": 1000, "schedule": ["0s", "1s"], "start": "beginning",
    });
    let file = nemesis.deployment.folder.join("unresolved.json");
    std::fs::write(&file, spec.to_string())?;
    let file = file.display().to_string();
    for name in &names {
        admin(nemesis, &["destinations", "create", name, "--spec", &file]).await?;
    }
    let began = Instant::now();
    while queries(nemesis) == before && began.elapsed() < QUERIED {
        pace(LOOK).await;
    }
    watch(WATCHED, line).await;
    let asked = queries(nemesis) - before;
    line["queries"] = asked.into();
    for name in &names {
        admin(nemesis, &["destinations", "remove", name]).await?;
    }
    Ok(asked > 0)
}
