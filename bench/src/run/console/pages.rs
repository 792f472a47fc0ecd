//! The pages that are measured: each list without a filter, its second page, and with filters that
//! match many rows, few rows and none.

use tokio_postgres::Client;

use super::plant::Planted;

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Shows the figures of the overview.
    Overview,
    /// Lists rows.
    List,
    /// Shows one item, or static text.
    One,
}

/// A page and how it is requested.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    /// The filter, or another text that distinguishes pages with the same name.
    pub(super) asked: String,
    pub(super) place: Place,
    /// The expected status.
    pub(super) status: u16,
    /// Whether the console must read the figures of the overview for every request.
    pub(super) is_a_look: bool,
}

/// The location of a page.
#[derive(Debug)]
pub(super) enum Place {
    /// At this path.
    At(String),
    /// The page after the one at this path.
    After(String),
}

/// Rows from the middle of the data that pages show.
struct Known {
    key: String,
    tenant: String,
    position: i64,
    event: String,
    order: i64,
    dead: i64,
    saga: String,
}

/// An id that no event has.
const NOBODY: &str = "0190c2f4-0000-7000-8000-000000000000";

/// A list: its name, its path and its filters.
type List<'a> = (&'static str, &'static str, &'a [&'a str]);

/// All pages. The first ones are those whose requests move the clock on.
pub(super) async fn every(client: &Client, planted: &Planted) -> anyhow::Result<Vec<Page>> {
    let known = Known::of(client, planted).await?;
    let mut all = figures();
    all.extend(of_events(&known));
    all.extend(of_requests(&known));
    all.extend(of_items(&known));
    all.extend(of_actions());
    all.extend(of_texts());
    Ok(all)
}

impl Known {
    async fn of(client: &Client, planted: &Planted) -> anyhow::Result<Self> {
        const WORDS: &str = "\
SELECT plant.key($1), plant.tenant($1), event_id::text, 'saga-' || md5($2::bigint::text)
FROM hapax.outbox_event
WHERE id = $3::bigint";
        let middle = planted.events / 2 / 2_000 * 2_000;
        // An event that arrived everywhere, and a saga of every twenty-fifth.
        let (number, saga) = (middle + 15, middle / 5_000 * 5_000 + 7);
        let position = planted.position(number);
        let order = Planted::request(number);
        let row = client.query_one(WORDS, &[&order, &saga, &position]).await?;
        Ok(Self {
            key: row.get(0),
            tenant: row.get(1),
            position,
            event: row.get(2),
            order,
            dead: planted.position(middle + 1),
            saga: row.get(3),
        })
    }
}

/// Pages with the figures of the overview.
fn figures() -> Vec<Page> {
    let page = |name, asked: &str, path: &str, is_a_look| Page {
        kind: Kind::Overview,
        name,
        asked: asked.to_owned(),
        place: Place::At(path.to_owned()),
        status: 200,
        is_a_look,
    };
    vec![
        page("Overview", "", "/console", true),
        page(
            "Overview, with figures that are still fresh",
            "",
            "/console",
            false,
        ),
        page("Destinations", "", "/console/destinations", true),
        page("Destinations", "sea", "/console/destinations?q=sea", true),
        page("Destination", "hooks", "/console/destinations/hooks", true),
        page(
            "Destination",
            "search",
            "/console/destinations/search",
            true,
        ),
    ]
}

/// Lists of events and deliveries.
fn of_events(known: &Known) -> Vec<Page> {
    let about = format!("about:order/o-{}", known.order);
    let id = format!("id:{}", known.event);
    let nobody = format!("id:{NOBODY}");
    let tenant = format!("tenant:{}", known.tenant);
    let lists: [List<'_>; 3] = [
        (
            "Events",
            "/console/events",
            &[
                "type:order.paid",
                "type:order.*",
                "type:refund.disputed",
                "type:nothing.*",
                &tenant,
                "tenant:nobody",
                &about,
                "age<5m",
                "age>30m",
                "age>30m type:nothing.*",
                "age>2h",
                &id,
                &nobody,
            ],
        ),
        (
            "Deliveries",
            "/console/deliveries",
            &[
                "state:retrying",
                "state:scheduled",
                "state:dead",
                "state:discarded",
                "dest:hooks",
                "dest:mail state:blocked",
                "dest:search",
                "dest:nowhere",
                "type:nothing.*",
                &tenant,
                "attempt>3",
                "refused",
                "error:nothing",
                "age>30m",
                "age>30m state:delivered type:order.paid",
            ],
        ),
        (
            "Dead letters",
            "/console/dead-letters",
            &[
                "dest:mail",
                "type:order.*",
                "type:nothing.*",
                &tenant,
                "error:mailbox",
                "error:nothing",
                "age>30m",
            ],
        ),
    ];
    lists.iter().flat_map(list).collect()
}

/// All other lists.
fn of_requests(known: &Known) -> Vec<Page> {
    let id = format!("id:{}", known.event);
    let key = format!("key:{}", known.key);
    let tenant = format!("tenant:{}", known.tenant);
    let lists: [List<'_>; 4] = [
        (
            "Keys",
            "/console/keys",
            &[
                &key,
                "key:req-0",
                "key:nothing",
                "key:#00",
                "state:in_progress",
                "state:completed",
                "state:failed",
                "state:tombstone",
                "operation:\"POST /orders\"",
                &tenant,
                "tenant:nobody",
                "state:failed operation:\"GET /nothing\"",
                "age>30m",
            ],
        ),
        (
            "Inbox",
            "/console/inbox",
            &[
                "consumer:billing",
                "consumer:nobody",
                "source:partner",
                "source:nobody",
                &id,
                "age>30m",
            ],
        ),
        (
            "Sagas",
            "/console/sagas",
            &[
                "state:needs_attention",
                "state:running",
                "state:failed",
                "saga:checkout",
                "saga:nothing",
                "saga:nothing state:completed",
            ],
        ),
        (
            "Jobs and audit",
            "/console/advanced",
            &[
                "state:failed",
                "dest:mail",
                "dest:nowhere",
                "actor:ann",
                "actor:nobody",
                "action:pause",
                "action:nothing",
                "object:\"destination mail\"",
            ],
        ),
    ];
    lists.iter().flat_map(list).collect()
}

/// A list without a filter, its second page, and the list with each filter.
fn list((name, path, filters): &List<'_>) -> Vec<Page> {
    let page = |asked: &str, place| Page {
        kind: Kind::List,
        name,
        asked: asked.to_owned(),
        place,
        status: 200,
        is_a_look: false,
    };
    let first = page("", Place::At((*path).to_owned()));
    let second = page("its second page", Place::After((*path).to_owned()));
    let filtered = filters.iter().map(|filter| {
        let at = format!("{path}?q={}", escaped(filter));
        page(filter, Place::At(at))
    });
    [first, second].into_iter().chain(filtered).collect()
}

/// Pages of one event, request or saga.
fn of_items(known: &Known) -> Vec<Page> {
    let Known {
        key,
        position,
        event,
        dead,
        saga,
        ..
    } = known;
    let page = |name, asked: &str, path: String, status| Page {
        status,
        ..one(name, asked, path)
    };
    vec![
        page(
            "Event",
            "by its position",
            format!("/console/events/{position}"),
            200,
        ),
        page(
            "Event",
            "by its id",
            format!("/console/events/{event}"),
            200,
        ),
        page(
            "Event",
            "a dead letter",
            format!("/console/events/{dead}"),
            200,
        ),
        page(
            "Event",
            "an unknown id",
            format!("/console/events/{NOBODY}"),
            404,
        ),
        page(
            "Timeline",
            "of a key",
            format!("/console/timeline?key={key}"),
            200,
        ),
        page(
            "Timeline",
            "of an event",
            format!("/console/timeline?event={event}"),
            200,
        ),
        page(
            "Timeline",
            "of an unknown key",
            "/console/timeline?key=nothing".to_owned(),
            404,
        ),
        page("Saga", "", format!("/console/sagas/{saga}"), 200),
    ]
}

/// Confirmation pages of actions, with the number of events that they would offer again.
fn of_actions() -> Vec<Page> {
    let act = |name, asked: &str, q: &str| {
        let path = format!("/console/act?{asked}&q={}", escaped(q));
        one(name, q, path)
    };
    vec![
        act(
            "Replay dead letters: how many",
            "act=replay-dead&dest=hooks",
            "dest:hooks",
        ),
        act(
            "Offer events again: how many",
            "act=replay-events&dest=mail",
            "type:refund.disputed age<5m",
        ),
        act(
            "Offer events again: how many",
            "act=replay-events&dest=mail",
            "type:refund.disputed",
        ),
    ]
}

/// Pages without rows.
fn of_texts() -> Vec<Page> {
    let page = |name, asked: &str, path: &str| one(name, asked, path.to_owned());
    vec![
        page("Configuration", "", "/console/configuration"),
        page("Reference", "", "/console/reference"),
        page("Reference", "cli", "/console/reference/cli"),
    ]
}

/// A page that shows one item or static text, at this path.
fn one(name: &'static str, asked: &str, path: String) -> Page {
    Page {
        kind: Kind::One,
        name,
        asked: asked.to_owned(),
        place: Place::At(path),
        status: 200,
        is_a_look: false,
    }
}

/// A filter, escaped for a URL.
fn escaped(filter: &str) -> String {
    let mut text = String::new();
    for letter in filter.chars() {
        match letter {
            ' ' => text.push('+'),
            '"' => text.push_str("%22"),
            '#' => text.push_str("%23"),
            '<' => text.push_str("%3C"),
            '>' => text.push_str("%3E"),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_escaped_as_a_browser_does() {
        assert_eq!(
            escaped("age>30m state:dead operation:\"POST /a\" key:#0"),
            "age%3E30m+state:dead+operation:%22POST+/a%22+key:%230"
        );
    }
}
