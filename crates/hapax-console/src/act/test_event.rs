//! Test events: the confirmation page, and the page with the attempt, which is stored nowhere.

use hapax::{
    admin::{Actor, TEST_EVENT},
    delivery::AttemptOutcome,
};

use super::{Done, Plan};
use crate::{
    Console, TestEvents,
    fields::path_of,
    html::{Html, el, link},
    layout::Page,
    pages::{Trouble, event_trace},
};

/// The confirmation page.
pub(super) async fn plan(console: &Console, actor: &Actor, dest: &str) -> Result<Plan, Trouble> {
    offers(console, actor, dest).await?;
    let says = format!(
        "One event of the type {TEST_EVENT} is offered to {dest} now, once. To the receiver it is \
         a real event. It is in no outbox and is not retried, and the events, the order and the \
         breaker of {dest} do not change."
    );
    let back = path_of("/console/destinations", dest);
    Ok(Plan::new("Send a test event", says, "Send it", back))
}

/// Sends a test event, and returns a page with the attempt.
pub(super) async fn send(console: &Console, actor: &Actor, dest: &str) -> Result<Done, Trouble> {
    let offers = offers(console, actor, dest).await?;
    let Ok(_permit) = console.0.tests.try_acquire() else {
        let why = "other test events are being offered: wait until one of them has ended";
        return Err(Trouble::late(&why));
    };
    let attempt = offers(actor.clone(), dest.to_owned()).await?;
    tracing::info!(
        actor = actor.name,
        destination = dest,
        outcome = attempt.outcome.as_str(),
        "an operator sent a test event in the console"
    );
    let result = if attempt.outcome == AttemptOutcome::Delivered {
        let said = format!("{dest} accepted the test event.");
        el("p").class("told").attr("role", "status").add(said)
    } else {
        let said = format!("{dest} did not accept the test event.");
        el("p").class("problem").attr("role", "alert").add(said)
    };
    let (queries, now) = (console.queries(), console.0.clock.now());
    let back = path_of("/console/destinations", dest);
    let back = link(&back, "Back to the destination").class("button");
    let body = Html::default()
        .add(result)
        .add(event_trace::attempts(queries, &[attempt], dest, now))
        .add(el("p").class("acts").add(back));
    let page = Page::new(format!("Test event to {dest}"), body);
    Ok(Done::Shown(page.into()))
}

/// What offers test events, if there is such a destination, which is not being removed.
async fn offers<'a>(
    console: &'a Console,
    actor: &Actor,
    dest: &str,
) -> Result<&'a TestEvents, Trouble> {
    let place = console.index().get(actor, dest).await?;
    if place.state == "removing" {
        let why = format!("destination {dest} is being removed");
        return Err(Trouble::late(&why));
    }
    console.0.test_events.as_ref().ok_or_else(|| {
        let why = "this console cannot send test events: its process has no destinations";
        Trouble::late(&why)
    })
}
