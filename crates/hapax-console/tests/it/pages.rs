//! Tests that every page can be opened and shows the data of its rows.

mod filters;

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::scene::{OPERATOR, Scene};

/// Every page, and words that it shows.
const SHOWN: &[(&str, &[&str])] = &[
    (
        "/console",
        &[
            "Needs attention",
            "behind dead letter",
            "waits for retry",
            "held",
        ],
    ),
    ("/console/events", &["order.created", "order/o-1", "acme"]),
    ("/console/events?q=type:order.paid", &["order.paid"]),
    (
        "/console/events/1",
        &[
            "order.created",
            "no such mailbox",
            "550",
            "Deliveries to destinations",
            "checkout",
            "ep_orders",
        ],
    ),
    (
        "/console/timeline?key=key-of-acme",
        &["POST /orders", "Transaction", "order.created", "ep_orders"],
    ),
    (
        "/console/deliveries",
        &["retrying", "connection refused", "blocked"],
    ),
    (
        "/console/deliveries?q=state:retrying",
        &["connection refused"],
    ),
    ("/console/dead-letters", &["no such mailbox", "dest:"]),
    ("/console/dead-letters?q=dest:mail", &["Replay all matches"]),
    ("/console/keys", &["key-of-acme", "POST /orders", "201"]),
    ("/console/keys?q=key:key-of-g", &["key-of-globex"]),
    ("/console/inbox", &["m-1", "billing", "billed"]),
    (
        "/console/sagas",
        &["saga-1", "checkout", "Needs attention:"],
    ),
    (
        "/console/sagas/saga-1",
        &["charge", "no answer", "saga-1-charge", "Try again"],
    ),
    (
        "/console/destinations",
        &["mail", "hooks", "paused", "held", "configuration"],
    ),
    (
        "/console/destinations/mail",
        &[
            "behind dead letter",
            "Pause",
            "Its dead letters",
            "q=unread%3Amail",
        ],
    ),
    (
        "/console/endpoints",
        &[
            "ep_orders",
            "slowed",
            "5 attempts in a row have failed: status 503",
            "ep_gone",
            "disabled",
            "ep_globex",
            "enabled",
            "hooks.acme.example",
            "it responded with 410",
        ],
    ),
    (
        "/console/endpoints/ep_orders",
        &[
            "1 delivery waits, because it is slowed: 5 attempts in a row have failed: status 503",
            "Deliveries that wait",
            "order.created",
            "503 no field",
            "Send failed again",
            "Send missing events",
            "full",
            "Disable",
            "the orders",
            "x-api-key",
            "0 % of 1 attempt in the last day",
            "What operators did with it",
            "Try filter and mapping",
        ],
    ),
    (
        "/console/endpoints/ep_orders/try",
        &["Trial for ep_orders", "order.*", "Filter", "Mapping"],
    ),
    ("/console/endpoints/ep_orders?failed=1", &["All attempts"]),
    (
        "/console/endpoints/ep_gone",
        &[
            "It was disabled 2 h ago",
            "No relay probes it",
            "Enable",
            "No attempt is in the log",
        ],
    ),
    ("/console/polling", &["acme-poll", "globex-poll", "never"]),
    (
        "/console/polling/acme-poll",
        &[
            "has not committed 2 events",
            "order.*",
            "Move the position",
            "never",
        ],
    ),
    (
        "/console/advanced",
        &[
            "replay dead letters",
            "Audit log",
            "Cancel",
            "/console/reference/tune-pollers-and-consumers",
        ],
    ),
    (
        "/console/configuration",
        &[
            "relay.lease",
            "5s",
            "default",
            "How long a relay may send no heartbeat",
            "/console/reference/hapax-configuration?q=relay.lease",
        ],
    ),
    ("/console/reference", &["The HTTP contract", "Commands"]),
    ("/console/reference/cli", &["hapax relay", "Exit codes"]),
    ("/console/reference/cli?q=doctor", &["hapax doctor"]),
    ("/console/reference/errors", &["AUTH.forbidden"]),
    (
        "/console/reference/limits",
        &["KEY_BYTES_MAX", "Maximum length of an idempotency key"],
    ),
    (
        "/console/reference/hapax-configuration?q=relay.lease",
        &["How long a relay may send no heartbeat", "5s"],
    ),
    (
        "/console/reference/commands-by-purpose?q=skip+locked",
        &["FOR UPDATE SKIP LOCKED"],
    ),
    (
        "/console/reference/tune-pollers-and-consumers",
        &["concurrency", "partitions", "/console/reference/metrics"],
    ),
    (
        "/console/reference?q=connect_timeout",
        &[
            "database.connect_timeout",
            "/console/reference/hapax-configuration?q=connect_timeout",
        ],
    ),
    (
        "/console/reference?q=hapax_idempotency_requests_total",
        &["/console/reference/metrics?q=hapax_idempotency_requests_total"],
    ),
    (
        "/console/act?act=pause&dest=mail",
        &["Nothing is delivered to mail until it is resumed", "Reason"],
    ),
    (
        "/console/act?act=replay-dead&dest=mail&q=dest:mail",
        &["1 dead letter of mail"],
    ),
    (
        "/console/act?act=disable-endpoint&tenant=acme&endpoint=ep_orders",
        &["1 delivery waits for it", "The tenant sees the reason"],
    ),
    (
        "/console/act?act=replay-endpoint&tenant=acme&endpoint=ep_orders",
        &[
            "1 delivery to endpoint ep_orders of acme failed",
            "Failed since",
            "Failed before",
            "those that were dropped because too many waited",
        ],
    ),
    (
        "/console/act?act=replay-missing&tenant=acme&endpoint=ep_orders",
        &["never sent to it", "Created since", "Created before"],
    ),
    (
        "/console/act?act=seek&polling=acme-poll",
        &["2 of its events follow", "stop the consumer first"],
    ),
    (
        "/console/act?act=decide&saga=saga-1&decision=retry",
        &["Time limit"],
    ),
];

#[tokio::test]
async fn every_page_opens_and_says_what_is_there() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    for (path, words) in SHOWN {
        let page = ops.see(path).await;
        for said in *words {
            assert!(
                page.to_lowercase().contains(&said.to_lowercase()),
                "{path}: {said}\n{page}"
            );
        }
        assert!(!page.contains("{{#"), "{path}\n{page}");
    }
}

#[tokio::test]
async fn an_empty_page_says_what_would_be_there() {
    let scene = Scene::local().await;
    let nothing = "TRUNCATE hapax.outbox_event, hapax.delivery, hapax.attempt, hapax.inbox_message,
        hapax.idempotency_key, hapax.job, hapax.endpoint, hapax.endpoint_delivery, hapax.poll_endpoint,
        hapax.poll_previous_token;
        DELETE FROM hapax.saga_step; DELETE FROM hapax.saga";
    scene.client.batch_execute(nothing).await.unwrap();
    for (list, said) in [
        ("events", "An event appears here when"),
        ("deliveries", "A delivery appears here when"),
        ("dead-letters", "A delivery becomes one when"),
        ("keys", "A key appears here when"),
        ("inbox", "A message appears here when"),
        ("sagas", "A saga appears here when"),
        ("endpoints", "An endpoint appears here when"),
        ("polling", "One appears here when"),
        ("advanced", "A job appears here when"),
    ] {
        let path = format!("/console/{list}");
        let page = scene.send(Method::GET, &path, &[], "").await.text();
        assert!(page.contains(said), "{list}: {said}\n{page}");
    }
}

#[tokio::test]
async fn a_list_of_events_says_which_of_them_failed_and_where() {
    let scene = Scene::local().await;
    for (q, said) in [
        ("type:order.created", ["dead</span>", "mail"]),
        ("type:order.paid", ["retrying</span>", "hooks"]),
        ("type:order.shipped", ["blocked</span>", "mail"]),
    ] {
        let path = url("/console/events?q=", q);
        let page = results(&scene.send(Method::GET, &path, &[], "").await.text());
        for said in said {
            assert!(page.contains(said), "{q}: {said}\n{page}");
        }
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_so() {
    let scene = Scene::local().await;
    for path in [
        "/console/nowhere",
        "/console/events/999999",
        "/console/events/0190c2f4-0000-7000-8000-000000000000",
        "/console/destinations/nobody",
        "/console/endpoints/ep_none",
        "/console/polling/none",
        "/console/catalogue/order.none",
        "/console/sagas/none",
        "/console/timeline?key=none",
        "/console/reference/none",
        "/console/act?act=pause&dest=nobody",
    ] {
        let answer = scene.send(Method::GET, path, &[], "").await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
        assert!(answer.text().contains("<h1>Not found"), "{path}");
    }
    let wrong = scene
        .send(Method::GET, "/console/act?act=nonsense", &[], "")
        .await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn lists_have_pages_that_follow_each_other() {
    let scene = Scene::local().await;
    let more =
        "SELECT hapax.emit('many.made', '{}', 'many', n::text) FROM generate_series(1, 120) AS n";
    scene.client.batch_execute(more).await.unwrap();
    let mut path = "/console/events?q=type:many.*".to_owned();
    let mut seen = 0;
    for _ in 0..5 {
        let page = scene.send(Method::GET, &path, &[], "").await.text();
        seen += page.matches("many.made</span></a>").count();
        let Some((_, rest)) =
            page.split_once("href=\"/console/events?q=type%3Amany.%2A&amp;before=")
        else {
            break;
        };
        let before = rest.split('"').next().unwrap();
        path = format!("/console/events?q=type:many.*&before={before}");
    }
    assert_eq!(seen, 120);
}

#[tokio::test]
async fn the_timeline_ends_with_the_consumer_or_says_that_its_inbox_is_elsewhere() {
    const ELSEWHERE: &str = "No inbox of this database has a message with the id";
    const TIMELINE: &str = "/console/timeline?key=key-of-acme";
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    assert!(!ops.see(TIMELINE).await.contains(ELSEWHERE));
    let delivered = "INSERT INTO hapax.attempt
            (destination, position, number, started_at, duration_ms, outcome, status, response_head)
        SELECT 'hooks', id, 1, now(), 5, 'delivered', 200, ''
        FROM hapax.outbox_event WHERE type = 'order.created'";
    scene.client.batch_execute(delivered).await.unwrap();
    let page = ops.see(TIMELINE).await;
    assert!(page.contains(ELSEWHERE), "{page}");
    let accepted = "INSERT INTO hapax.inbox_message
            (consumer, message_id, source, payload_hash, received_at, processed_at, result)
        SELECT 'ledger', event_id::text, 'shop', sha256('m'), now(), now(), 'booked'
        FROM hapax.outbox_event WHERE type = 'order.created'";
    scene.client.batch_execute(accepted).await.unwrap();
    let page = ops.see(TIMELINE).await;
    assert!(page.contains("Accepted by <code>ledger</code>"), "{page}");
    assert!(page.contains(": booked"), "{page}");
    assert!(!page.contains(ELSEWHERE), "{page}");
}

#[tokio::test]
async fn what_is_nobodys_business_is_masked() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    for path in [
        "/console/events/1",
        "/console/timeline?key=key-of-acme",
        "/console/sagas/saga-1",
    ] {
        let page = ops.see(path).await;
        assert!(!page.contains("4111"), "{path}");
        assert!(!page.contains("ann@example.com"), "{path}");
        assert!(page.contains("***"), "{path}");
    }
}

fn url(path: &str, q: &str) -> String {
    format!("{path}{}", utf8_percent_encode(q, NON_ALPHANUMERIC))
}

fn results(page: &str) -> String {
    let (_, results) = page.split_once("id=\"results\"").unwrap();
    results.to_owned()
}
