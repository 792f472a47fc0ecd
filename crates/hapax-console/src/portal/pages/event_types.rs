//! `/portal/event-types`: the event catalogue.

use axum::extract::State;

use crate::{format::nothing, html::Html, layout::Page, portal::Portal};

/// Shows the event types with their schemas and examples.
pub(super) async fn show(State(portal): State<Portal>) -> Page {
    let listing = portal.0.event_types.listing.clone();
    let absent = || Html::default().add(nothing("There is no list of event types."));
    Page::new("Event types", listing.unwrap_or_else(absent))
}
