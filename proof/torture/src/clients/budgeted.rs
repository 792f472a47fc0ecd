//! Clients that use `hapax-client` against an overloaded receiver, to check that retries stay
//! within the retry budget.

use std::{sync::Arc, time::Duration};

use hapax::{Clock, Random};
use hapax_client::{Client, Request, Settings};
use hapax_testkit::wait::pace;
use tokio::task::JoinSet;

use super::Shared;
use crate::lines::now;

/// The time between two operations.
const EACH: Duration = Duration::from_millis(100);

/// Sends requests until the run is over. After a restart, a new budget begins under a new name.
pub(super) async fn run(shared: Arc<Shared>, url: String) -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "torture measures with the clock of the machine"
    )]
    let clock = Clock::new(std::time::SystemTime::now);
    #[expect(
        clippy::disallowed_methods,
        reason = "torture draws its own random numbers"
    )]
    let random = Random::new(|| fastrand::u64(..));
    let mut settings = Settings::new(clock, random);
    settings.user_agent = format!("budgeted-{}-{}", shared.number, now());
    let client = Client::new(settings)?;
    let mut operations = JoinSet::new();
    while !shared.is_closing() {
        let request = Request::post(&url)?;
        let client = client.clone();
        // The outcome is recorded by the receiver.
        operations.spawn(async move { drop(client.send(request).await) });
        while operations.try_join_next().is_some() {}
        pace(EACH).await;
    }
    Ok(())
}
