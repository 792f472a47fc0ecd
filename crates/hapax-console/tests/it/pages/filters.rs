//! Tests that a filter narrows its list, or is refused with a reason.

use http::Method;

use super::{results, url};
use crate::scene::{OPERATOR, Scene};

/// Lists with a filter under which `there` is listed, and a word: `(list, filter, there, word)`.
/// If the word is added to the filter, `there` is neither listed nor affected by an operation.
const NARROWED: &[(&str, &str, &str, &str)] = &[
    (
        "deliveries",
        "error:refused",
        "connection refused",
        "mailbox",
    ),
    (
        "deliveries",
        "error:refused state:retrying",
        "connection refused",
        "mailbox",
    ),
    ("deliveries", "refused", "connection refused", "mailbox"),
    (
        "dead-letters",
        "dest:mail error:550",
        "no such mailbox",
        "timeout",
    ),
    (
        "dead-letters",
        "dest:mail mailbox",
        "no such mailbox",
        "timeout",
    ),
    ("dead-letters", "dest:mail", "no such mailbox", "timeout"),
    (
        "dead-letters",
        "dest:mail",
        "no such mailbox",
        "state:retrying",
    ),
    ("events", "type:order.paid", "order.paid", "globex"),
    ("events", "type:order.paid", "order.paid", "error:globex"),
    ("keys", "key:key-of-a", "key-of-acme", "globex"),
    ("keys", "key-of-a", "key-of-acme", "globex"),
    (
        "keys",
        "state:completed",
        "key-of-acme",
        "state:in_progress",
    ),
    (
        "keys",
        "state:completed",
        "key-of-acme",
        "state:in_progress,abandoned",
    ),
    ("inbox", "id:m-1", "billing", "m-2"),
    ("inbox", "m-1", "billing", "m-2"),
    ("sagas", "state:running", "saga-2", "state:failed"),
    ("sagas", "saga:checkout", "saga-2", "globex"),
    ("advanced", "state:waiting", "replay dead letters", "pause"),
    ("destinations", "mai", ">mail<", "hooks"),
    ("endpoints", "state:disabled", "ep_gone", "globex"),
    ("endpoints", "tenant:acme", "ep_gone", "orders"),
];

/// A page with a filter, something that it shows, and something that it leaves out.
const FILTERED: &[(&str, &str, &str)] = &[
    (
        "/console/events?q=type:order.paid",
        "o-globex",
        "order.created",
    ),
    (
        "/console/events?q=tenant:globex",
        "order.paid",
        "order.created",
    ),
    (
        "/console/events?q=about:order/o-globex",
        "order.paid",
        "order.created",
    ),
    (
        "/console/events?q=age%3E1h",
        "No event matches",
        "order.created",
    ),
    (
        "/console/deliveries?q=attempt%3E3+state:retrying",
        "connection refused",
        "mailbox",
    ),
    (
        "/console/deliveries?q=refused",
        "connection refused",
        "mailbox",
    ),
    (
        "/console/deliveries?q=dest:mail",
        "mailbox",
        "connection refused",
    ),
    (
        "/console/keys?q=operation:%22POST+/orders%22+tenant:acme",
        "key-of-acme",
        "key-of-globex",
    ),
    (
        "/console/keys?q=state:in_progress",
        "No key matches",
        "key-of-acme",
    ),
    ("/console/inbox?q=consumer:billing", "m-1", "alert"),
    ("/console/sagas?q=state:running", "saga-2", "saga-1"),
    ("/console/destinations?q=hoo", ">hooks<", ">mail<"),
    ("/console/endpoints?q=state:slowed", "ep_orders", "ep_gone"),
    ("/console/endpoints?q=tenant:globex", "ep_globex", "ep_gone"),
    ("/console/endpoints?q=ep_gl", "ep_globex", "ep_orders"),
    ("/console/endpoints?q=the+orders", "ep_orders", "ep_gone"),
    (
        "/console/endpoints?q=nothing",
        "No endpoint matches",
        "ep_orders",
    ),
    (
        "/console/reference/cli?q=completions",
        "hapax completions",
        "hapax doctor",
    ),
    (
        "/console/reference?q=AUTH.forbidden",
        "/console/reference/errors?q=auth.forbidden",
        "hapax doctor",
    ),
    (
        "/console/reference?q=no-such-word",
        "No section of a page contains",
        "hapax doctor",
    ),
    (
        "/console/configuration?q=nothing",
        "No setting matches",
        "relay.lease",
    ),
];

#[tokio::test]
async fn a_filter_leaves_out_what_it_does_not_fit() {
    let scene = Scene::local().await;
    for (path, present, absent) in FILTERED {
        let page = scene.send(Method::GET, path, &[], "").await.text();
        let (_, results) = page.split_once("id=\"results\"").unwrap();
        assert!(results.contains(present), "{path}: {present}\n{results}");
        assert!(!results.contains(absent), "{path}: {absent}\n{results}");
    }
}

#[tokio::test]
async fn a_filter_that_is_not_understood_is_refused_and_fits_nothing() {
    let scene = Scene::local().await;
    for (path, why) in [
        ("/console/events?q=typ:order", "did you mean type:?"),
        (
            "/console/events?q=dest:mail",
            "dest: is not supported on this page",
        ),
        (
            "/console/deliveries?q=state:ded",
            "did you mean state:dead?",
        ),
        (
            "/console/deliveries?q=attempt%3Emany",
            "takes a whole number",
        ),
        ("/console/events?q=id:7", "takes a UUID"),
    ] {
        let page = scene.send(Method::GET, path, &[], "").await.text();
        assert!(page.contains(why), "{path}: {why}\n{page}");
        assert!(page.contains("aria-invalid=\"true\""));
        assert!(!page.contains("<table"), "{path}");
    }
}

#[tokio::test]
async fn every_page_accepts_the_examples_of_its_own_hint() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    for list in [
        "events",
        "deliveries",
        "dead-letters",
        "keys",
        "inbox",
        "sagas",
        "destinations",
        "endpoints",
        "advanced",
    ] {
        let page = ops.see(&format!("/console/{list}")).await;
        let (_, hint) = page.split_once("id=\"filter-note\"").unwrap();
        let (hint, _) = hint.split_once("</p>").unwrap();
        let examples = hint.split("<code>").skip(1);
        let examples = examples.map(|it| it.split("</code>").next().unwrap_or_default());
        let examples: Vec<String> = examples.map(plain).collect();
        assert!(examples.len() >= 2, "{list}: {hint}");
        let together = examples.join(" ");
        for example in examples.iter().chain([&together]) {
            let page = ops.see(&url(&format!("/console/{list}?q="), example)).await;
            let is_refused = page.contains("aria-invalid=\"true\"");
            assert!(!is_refused, "{list}: {example}\n{page}");
        }
    }
}

#[tokio::test]
async fn whatever_a_filter_says_narrows_a_list_or_is_refused_by_its_word() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    for (list, q, there, word) in NARROWED {
        let path = |q: &str| url(&format!("/console/{list}?q="), q);
        let page = results(&ops.see(&path(q)).await);
        assert!(page.contains(there), "{list} {q}: {there}\n{page}");
        for q in [format!("{q} {word}"), format!("{word} {q}")] {
            let whole = ops.see(&path(&q)).await;
            assert!(
                !results(&whole).contains(there),
                "{list} {q}: {there}\n{whole}"
            );
            check_refusal_is_explained(list, &q, &whole);
        }
    }
}

/// Checks that a page whose filter was refused names a word of the filter or says that it is not
/// supported.
#[track_caller]
fn check_refusal_is_explained(list: &str, q: &str, page: &str) {
    let is_refused = page.contains("aria-invalid=\"true\"");
    let is_named = |word: &str| page.contains(&format!("{word}&quot;"));
    let says_why = page.contains("is not supported") || q.split([' ', ':', ',']).any(is_named);
    assert!(!is_refused || says_why, "{list} {q}\n{page}");
}

/// The text of markup.
fn plain(html: &str) -> String {
    html.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
}
