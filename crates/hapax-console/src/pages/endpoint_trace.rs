//! Deliveries of an event to the endpoints of its tenant.

use hapax::{
    Timestamp,
    admin::{Actor, AdminError, EndpointTrace},
    event::Event,
    key::Tenant,
};

use crate::{
    Console,
    fields::{path_of, url},
    format::{badge, cell, code, name, none, open, time},
    html::{Html, el},
    table::Table,
};

/// The deliveries of an event that the actor may see; empty if it has no tenant.
pub(crate) async fn of(
    console: &Console,
    actor: &Actor,
    event: &Event,
) -> Result<Vec<EndpointTrace>, AdminError> {
    let Some(tenant) = event.tenant.as_ref().map(Tenant::as_str) else {
        return Ok(Vec::new());
    };
    let traces = console.store().endpoint_traces(actor, tenant, event.id);
    traces.await
}

/// A table of the deliveries, or nothing if no endpoint has the event.
pub(crate) fn table(traces: &[EndpointTrace], event: &Event, now: Timestamp) -> Html {
    if traces.is_empty() {
        return Html::default();
    }
    let id = event.id.to_string();
    let heads = &[
        "Endpoint",
        "State",
        "#Attempts",
        "Last attempt",
        "#Status",
        "Next attempt",
        "Error",
    ];
    let mut table = Table::new(format!("Deliveries of {id} to endpoints"), heads);
    for it in traces {
        let to = path_of("/console/endpoints", &it.endpoint);
        let to = url(&to, &[("event", &id)]);
        let disabled = it.is_disabled.then(|| cell(" ").add(badge("disabled")));
        // The error of an earlier attempt says nothing about a delivery that has succeeded.
        let error = it.error.as_deref().filter(|_| it.state != "delivered");
        let moment = |at: Option<Timestamp>| at.map_or_else(none, |at| cell(time(at, now)));
        table.row([
            cell(open(&to, name(&it.endpoint))),
            cell(badge(&it.state)).add(disabled),
            cell(it.attempts),
            moment(it.tried_at),
            it.status.map_or_else(none, |it| cell(u32::from(it))),
            moment(it.next_at),
            code(error),
        ]);
    }
    cell(el("h3").add("Endpoints")).add(table)
}
