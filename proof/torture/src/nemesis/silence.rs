//! A destination whose name is never resolved, beside others that are well.

use std::time::Duration;

use hapax_testkit::wait::pace;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Storm, canary, injection::admin, watch};
use crate::{
    deployment::{LOST, Silence, WEBHOOK_SECRET},
    lines::now,
};

/// How long relays may take to ask for the name.
const ASKED: Duration = Duration::from_secs(10);
/// Destinations of one fault: a machine can look up some hundreds of names at once, and each relay
/// serves some of them.
const DESTINATIONS: usize = 6;
const LOOK: Duration = Duration::from_millis(20);
/// How long the others are watched: less than a look-up of the C library takes until it gives up.
const WATCHED: Duration = Duration::from_secs(8);

/// Declares destinations that no name server knows, which take every event that is still there, and
/// removes them after a while; whether their name was asked for.
pub(super) async fn silence(nemesis: &mut Storm, line: &mut Value) -> anyhow::Result<bool> {
    if nemesis.deployment.silence.is_none() {
        return Ok(false);
    }
    nemesis.deployment.up().await?;
    if !canary(nemesis).await? {
        return Ok(false);
    }
    let heard = |nemesis: &Storm| {
        nemesis
            .deployment
            .silence
            .as_ref()
            .map_or(0, Silence::heard)
    };
    let before = heard(nemesis);
    let names = (0..DESTINATIONS).map(|number| format!("{LOST}-{}-{number}", now()));
    let names: Vec<_> = names.collect();
    let spec = json!({
        "sink": { "webhook": {
            "url": "http://nobody.example/hook", "secret": WEBHOOK_SECRET, "allow": [],
        } },
        "concurrency": 1000, "schedule": ["0s", "1s"],
    });
    let file = nemesis.deployment.folder.join("lost.json");
    std::fs::write(&file, spec.to_string())?;
    let file = file.display().to_string();
    for name in &names {
        admin(nemesis, &["destinations", "create", name, "--spec", &file]).await?;
    }
    let began = Instant::now();
    while heard(nemesis) == before && began.elapsed() < ASKED {
        pace(LOOK).await;
    }
    watch(WATCHED, line).await;
    let asked = heard(nemesis) - before;
    line["asked"] = asked.into();
    for name in &names {
        admin(nemesis, &["destinations", "remove", name]).await?;
    }
    Ok(asked > 0)
}
