//! The result of a trial of an endpoint's settings, as the portal and the console show it: each event with
//! the reason why it would not be sent, and the bodies that a mapping makes, as text.

use hapax::{
    Timestamp,
    admin::{EndpointTrial, TriedDelivery},
    mask::Shown,
};

use crate::{
    format::{badge, cell, code, content, nothing, time},
    html::{Element, Html, el},
    table::Table,
};

/// Number of bodies on a page. Each may have 256 KiB.
const BODIES: usize = 10;
/// Instead of a body that exceeds a maximum size only because values in it are masked.
const HIDDEN: &str =
    "It is too large when its values are masked, so it is not shown. The endpoint receives it.";

/// What is said if no event could be tried in time.
const BUSY: &str = "No event was tried in time. Try again later.";

/// The section with the result.
pub(crate) fn section(trial: &EndpointTrial, has_mapping: bool, now: Timestamp) -> Element {
    let heads = &["Event", "Event id", "Created", "Result"];
    let mut table = Table::new("Stored events", heads);
    for it in &trial.items {
        table.row([
            code(Some(&it.kind)),
            code(Some(&it.id)),
            cell(time(it.created_at, now)),
            result(it),
        ]);
    }
    let section = el("section")
        .attr("aria-labelledby", "trial")
        .attr("role", "status")
        .add(el("h2").attr("id", "trial").add("Trial"));
    if table.is_empty() && trial.next.is_some() {
        return section.add(nothing(BUSY));
    }
    if table.is_empty() {
        return section.add(nothing("There are no stored events to try it on."));
    }
    let sent = trial.matched - trial.failed;
    let said = format!("{sent} of the newest {} events would be sent.", trial.tried);
    section
        .add(el("p").add(said))
        .add(table)
        .add(has_mapping.then(|| bodies(trial)))
}

fn result(it: &TriedDelivery) -> Html {
    match it.fails_at.as_ref().or(it.failure.as_ref()) {
        Some(why) => code(Some(&format!("not sent: {why}"))),
        None if it.matches => cell(badge("sent")),
        None => cell("not sent: the payload cannot be read"),
    }
}

fn bodies(trial: &EndpointTrial) -> Html {
    let is_sent = |it: &&TriedDelivery| it.matches && it.failure.is_none();
    let sent: Vec<_> = trial.items.iter().filter(is_sent).collect();
    let is_part = sent.len() > BODIES;
    let part = is_part.then(|| {
        let said = format!("The newest {BODIES} bodies are shown.");
        el("p").class("soft").add(said)
    });
    Html::all(sent.into_iter().take(BODIES).map(body)).add(part)
}

fn body(it: &TriedDelivery) -> Html {
    let title = format!("Body of {} {}", it.kind, it.id);
    let shown = it.body.as_ref().map_or_else(
        || el("p").class("soft").add(HIDDEN),
        |body| content(&title, &Shown::Json(body.get().to_owned())),
    );
    cell(el("h3").add(&title)).add(shown)
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn tried(body: Option<&str>, failure: Option<&str>, fails_at: Option<&str>) -> TriedDelivery {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        TriedDelivery {
            position: 1,
            id: "0193".to_owned(),
            kind: "order.<i>".to_owned(),
            created_at: Timestamp::from_millis(0),
            matches: fails_at.is_none(),
            fails_at: fails_at.map(str::to_owned),
            body: body.map(raw),
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn a_body_and_a_reason_are_text_and_not_markup() {
        let evil = r#"{"a":"<script>x</script>"}"#;
        let trial = EndpointTrial {
            tried: 4,
            matched: 3,
            failed: 1,
            items: vec![
                tried(Some(evil), None, None),
                tried(None, None, None),
                tried(None, Some("$.data.<b> is not a list"), None),
                tried(None, None, Some("/<u>.$eq")),
            ],
            ..EndpointTrial::default()
        };
        let now = Timestamp::from_millis(1);
        let html = cell(section(&trial, true, now)).into_string();
        for said in ["2 of the newest 4", "&lt;script&gt;", HIDDEN, "not sent"] {
            assert!(html.contains(said), "{said}: {html}");
        }
        for markup in ["<script", "<b>", "<u>", "<i>"] {
            assert!(!html.contains(markup), "{markup}: {html}");
        }
        assert_eq!(html.matches("<pre").count(), 1, "{html}");
    }

    #[test]
    fn a_trial_that_had_no_time_does_not_say_that_there_are_no_events() {
        let now = Timestamp::from_millis(1);
        let said = |trial: &EndpointTrial| cell(section(trial, false, now)).into_string();
        let none = EndpointTrial::default();
        assert!(said(&none).contains("There are no stored events"));
        let late = EndpointTrial {
            next: Some("5".to_owned()),
            ..none
        };
        assert!(said(&late).contains(BUSY), "{}", said(&late));
    }

    #[test]
    fn a_page_has_a_bounded_number_of_bodies() {
        let item = |_| tried(Some("{}"), None, None);
        let items: Vec<_> = (0..=BODIES).map(item).collect();
        let count = items.len() as u64;
        let trial = EndpointTrial {
            tried: count,
            matched: count,
            items,
            ..EndpointTrial::default()
        };
        let now = Timestamp::from_millis(1);
        let html = cell(section(&trial, true, now)).into_string();
        assert_eq!(html.matches("<pre").count(), BODIES);
        assert!(html.contains("The newest 10 bodies are shown."), "{html}");
        let plain = cell(section(&trial, false, now)).into_string();
        assert_eq!(plain.matches("<pre").count(), 0);
    }
}
