//! Test events: the confirmation page, and the page with the attempt, which is stored nowhere.

use hapax::{
    admin::{Actor, TEST_EVENT},
    delivery::AttemptOutcome,
};
use tokio::sync::SemaphorePermit;

use super::{Done, Plan};
use crate::{
    Console, TestEvents,
    fields::path_of,
    html::{Element, Html, Render, el, link},
    layout::Page,
    pages::{ErrorPage, event_trace},
};

/// The confirmation page.
pub(super) async fn plan(console: &Console, actor: &Actor, dest: &str) -> Result<Plan, ErrorPage> {
    offers(console, actor, dest).await?;
    let says = format!(
        "One event of the type {TEST_EVENT} is offered to {dest} now, once. To the receiver it is \
         a real event. It is not written to the outbox and is not retried, and the events, the \
         order and the breaker of {dest} do not change."
    );
    let back = path_of("/console/destinations", dest);
    Ok(Plan::new("Send a test event", says, "Send it", back))
}

/// Sends a test event, and returns a page with the attempt.
pub(super) async fn send(console: &Console, actor: &Actor, dest: &str) -> Result<Done, ErrorPage> {
    let offers = offers(console, actor, dest).await?;
    let _permit = permit(console)?;
    let attempt = offers(actor.clone(), dest.to_owned()).await?;
    tracing::info!(
        actor = actor.name,
        destination = dest,
        outcome = attempt.outcome.as_str(),
        "an operator sent a test event in the console"
    );
    let (queries, now) = (console.queries(), console.0.clock.now());
    let outcome = attempt.outcome;
    let attempts = event_trace::attempts(queries, &[attempt], dest, now);
    let back = path_of("/console/destinations", dest);
    let back = link(&back, "Back to the destination");
    Ok(page(dest, outcome, attempts, back))
}

/// Permits a test event, unless too many are being offered.
fn permit(console: &Console) -> Result<SemaphorePermit<'_>, ErrorPage> {
    console.0.tests.try_acquire().map_err(|_| {
        let why = "other test events are being offered: wait until one of them has ended";
        ErrorPage::late(&why)
    })
}

/// The page with the attempt at a test event to a destination or an endpoint.
pub(super) fn page(
    name: &str,
    outcome: AttemptOutcome,
    attempt: impl Render,
    back: Element,
) -> Done {
    let result = if outcome == AttemptOutcome::Delivered {
        let said = format!("{name} accepted the test event.");
        el("p").class("told").attr("role", "status").add(said)
    } else {
        let said = format!("{name} did not accept the test event.");
        el("p").class("problem").attr("role", "alert").add(said)
    };
    let body = Html::default()
        .add(result)
        .add(attempt)
        .add(el("p").class("acts").add(back.class("button")));
    let page = Page::new(format!("Test event to {name}"), body);
    Done::Shown(page.into())
}

/// What offers test events, if there is such a destination, which is not being removed.
async fn offers<'a>(
    console: &'a Console,
    actor: &Actor,
    dest: &str,
) -> Result<&'a TestEvents, ErrorPage> {
    let place = console.index().get(actor, dest).await?;
    if place.state == "removing" {
        let why = format!("destination {dest} is being removed");
        return Err(ErrorPage::late(&why));
    }
    console.0.test_events.as_ref().ok_or_else(|| {
        let why = "this console cannot send test events: its process has no destinations";
        ErrorPage::late(&why)
    })
}
