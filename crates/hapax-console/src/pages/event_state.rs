//! State of an event over all destinations, for the list of events.

use std::collections::HashMap;

use hapax::admin::{Actor, AdminError, DeliveryStatus, EventSummary, Trace};

use crate::{
    Console,
    format::{badge, name, none},
    html::{Html, el},
};

/// The states of an event, the most severe first.
const ORDER: [DeliveryStatus; 8] = [
    DeliveryStatus::Dead,
    DeliveryStatus::Retrying,
    DeliveryStatus::Blocked,
    DeliveryStatus::Unread,
    DeliveryStatus::Scheduled,
    DeliveryStatus::Discarded,
    DeliveryStatus::Delivered,
    DeliveryStatus::Passed,
];

/// The state of an event, and the destinations that are in this state.
#[derive(Debug)]
pub(crate) struct EventState {
    status: DeliveryStatus,
    destinations: Vec<String>,
}

/// The states of events, by position. An actor of a tenant sees only destinations that have made an
/// attempt.
pub(crate) async fn of(
    console: &Console,
    actor: &Actor,
    events: &[EventSummary],
) -> Result<HashMap<i64, EventState>, AdminError> {
    let positions: Vec<i64> = events.iter().map(|it| it.position).collect();
    if positions.is_empty() {
        return Ok(HashMap::new());
    }
    let traces = console.store().traces(&positions).await?;
    let states = traces.into_iter().filter_map(|(position, mut traces)| {
        if actor.tenant.is_some() {
            traces.retain(|it| it.status.has_attempt());
        }
        Some((position, EventState::of(&traces)?))
    });
    Ok(states.collect())
}

impl EventState {
    /// The most severe state; `None` if no destination is known.
    fn of(traces: &[Trace]) -> Option<Self> {
        let is_there = |status: &DeliveryStatus| traces.iter().any(|it| it.status == *status);
        let status = ORDER.into_iter().find(is_there)?;
        let own = traces.iter().filter(|it| it.status == status);
        let destinations = own.map(|it| it.destination.clone()).collect();
        Some(Self {
            status,
            destinations,
        })
    }
}

/// The content of a cell.
pub(crate) fn cell(state: &EventState) -> Html {
    if state.status == DeliveryStatus::Passed {
        return none();
    }
    let badge = Html::default().add(badge(state.status.as_str()));
    // Where it is done, only those in which it is not done are of interest.
    let (Some(first), false) = (
        state.destinations.first(),
        matches!(state.status, DeliveryStatus::Delivered),
    ) else {
        return badge;
    };
    let more = state.destinations.len() - 1;
    let more = (more > 0).then(|| format!(" +{more}"));
    badge
        .add(" ")
        .add(el("span").class("soft").add(name(first)).add(more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_severe_state_of_all_destinations_is_shown() {
        let trace = |destination: &str, status| Trace {
            destination: destination.to_owned(),
            partition: destination.to_owned(),
            status,
            attempts: 0,
            next_at: None,
            last_error: None,
            reason: None,
            behind: None,
            changed_at: None,
            edited: None,
            log: Vec::new(),
        };
        let traces = [
            trace("billing", DeliveryStatus::Delivered),
            trace("mail", DeliveryStatus::Dead),
            trace("hooks", DeliveryStatus::Dead),
            trace("search", DeliveryStatus::Retrying),
        ];
        let state = EventState::of(&traces).unwrap();
        let html = cell(&state).into_string();
        assert!(html.contains(">dead<") && html.contains("mail"), "{html}");
        assert!(html.contains("+1") && !html.contains("billing"), "{html}");
        assert!(EventState::of(&[]).is_none());
    }
}
