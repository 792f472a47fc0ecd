//! Tests of the overview: everything that is blocked, fails or waits for a person is named, and nothing
//! else.

use http::Method;

use crate::scene::{OPERATOR, Scene};

const NOTHING: &str = "Nothing is blocked";

/// Everything that needs attention in the fixture, removed.
const QUIET: &str = "
    DELETE FROM hapax.delivery;
    DELETE FROM hapax.attempt;
    DELETE FROM hapax.saga_step;
    DELETE FROM hapax.saga;
    DELETE FROM hapax.job;
    DELETE FROM hapax.endpoint;
    DELETE FROM hapax.declaration";

#[tokio::test]
async fn nothing_is_said_to_be_well_beside_what_is_not() {
    let scene = Scene::quiet().await;
    scene.client.batch_execute(QUIET).await.unwrap();
    assert!(overview(&scene).await.contains(NOTHING));
    for (change, said) in [
        (
            "INSERT INTO hapax.delivery (destination, position, state, attempt, next_at, changed_at)
             VALUES ('mail', 1, 'dead', 3, now(), now())",
            "1 dead letter is not delivered any more",
        ),
        (
            "INSERT INTO hapax.delivery (destination, position, state, attempt, next_at, changed_at)
             VALUES ('mail', 1, 'retrying', 3, now() + interval '1 hour', now())",
            "waits for attempt 4",
        ),
        (
            "INSERT INTO hapax.declaration
                 (name, spec, version, created_at, changed_at, changed_by, paused_at, paused_by)
             VALUES ('turtle', '{}', nextval('hapax.declaration_version'), now(), now(), 'bob',
                     now(), 'bob')",
            "Paused by bob",
        ),
        (
            "UPDATE hapax.destination SET disabled_at = now(), disabled_reason = 'it said 410'
             WHERE name = 'mail'",
            "Disabled: it said 410",
        ),
        (
            "INSERT INTO hapax.endpoint
                 (id, tenant, url, description, types, headers, disabled_reason, disabled_at,
                  created_at, created_by, changed_at, changed_by, version)
             VALUES ('ep_1', 'acme', 'https://a.example/', '', '[]', '[]', 'it said 410', now(),
                     now(), 'bob', now(), 'relay', 9)",
            "Disabled: it said 410 (for ",
        ),
        (
            "INSERT INTO hapax.saga (id, name, version, input, headers, state, deadline_at, created_at)
             VALUES ('s', 'checkout', 1, '', '{}', 'needs_attention', now(), now())",
            "decision of an operator",
        ),
        (
            "INSERT INTO hapax.job (kind, destination, arguments, state, total, next_at, actor,
                                    created_at)
             VALUES ('replay_dead_letters', 'mail', '{}', 'waiting', 10, now(), 'bob',
                     now() - interval '2 minutes')",
            "No relay has begun this job in 2 min: 0 of 10 done",
        ),
        (
            "INSERT INTO hapax.attempt (destination, position, number, started_at, duration_ms,
                                        outcome, status, error, response_head)
             VALUES ('mail', 1, 1, now(), 5, 'unavailable', 503, 'no', '')",
            "1 attempt failed in the last 1 min, 0 succeeded",
        ),
    ] {
        scene.client.batch_execute(change).await.unwrap();
        let page = overview(&scene).await;
        assert!(page.contains(said), "{change}: {said}\n{page}");
        assert!(!page.contains(NOTHING), "{change}\n{page}");
        let back = "UPDATE hapax.destination SET disabled_at = NULL, disabled_reason = NULL";
        scene.client.batch_execute(QUIET).await.unwrap();
        scene.client.batch_execute(back).await.unwrap();
    }
}

#[tokio::test]
async fn an_open_breaker_is_the_state_of_its_destination() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    for path in [
        "/console",
        "/console/destinations",
        "/console/destinations/hooks",
    ] {
        let page = ops.see(path).await;
        assert!(page.contains("breaker open</span>"), "{path}\n{page}");
    }
    let page = ops.see("/console/destinations?q=state:breaker_open").await;
    let (_, results) = page.split_once("id=\"results\"").unwrap();
    assert!(
        results.contains(">hooks<") && !results.contains(">mail<"),
        "{results}"
    );
    let page = ops.see("/console/destinations?sort=dead").await;
    let (_, results) = page.split_once("id=\"results\"").unwrap();
    let at = |name: &str| results.find(name).unwrap();
    assert!(at(">mail<") < at(">hooks<"), "{results}");
}

#[tokio::test]
async fn the_navigation_counts_dead_letters_and_sagas_that_need_attention() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    // A page shows the numbers of the last sample and does not wait long for a new one.
    ops.see("/console").await;
    let page = ops.see("/console/reference").await;
    assert!(page.contains("data-live=\"nav-dead\">2</span>"), "{page}");
    assert!(
        page.contains("data-live=\"nav-attention\">2</span>"),
        "{page}"
    );
}

#[tokio::test]
async fn a_figure_that_this_process_cannot_know_has_no_card() {
    let quiet = figures(&Scene::quiet().await).await;
    assert!(
        quiet.contains("Lag") && !quiet.contains("unknown"),
        "{quiet}"
    );
    assert!(
        !quiet.contains("Conflicts") && !quiet.contains("Replays"),
        "{quiet}"
    );
    let local = figures(&Scene::local().await).await;
    assert!(
        local.contains("Conflicts") && local.contains("Replays"),
        "{local}"
    );
}

async fn figures(scene: &Scene) -> String {
    let page = overview(scene).await;
    let (_, figures) = page.split_once("data-live=\"figures\"").unwrap();
    let (figures, _) = figures.split_once("data-live=\"places\"").unwrap();
    figures.to_owned()
}

async fn overview(scene: &Scene) -> String {
    scene.move_on();
    let path = "/console?range=24h";
    let answer = scene.send(Method::GET, path, &[], "").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text()
}
