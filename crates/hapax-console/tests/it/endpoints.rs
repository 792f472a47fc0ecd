//! Tests of the pages of endpoints: secrets are not shown, an action applies to what its page showed,
//! and a test event is sent once.

use std::{sync::mpsc, time::Duration};

use futures_util::future::join_all;
use hapax::limits::FILTERED_INLINE_BYTES;
use hapax_testkit::wait::{answered, eventually};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::{task::spawn_blocking, time::timeout};

use crate::scene::{ALICE, EVIL, OPERATOR, Scene, VIEWER, form_of};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_attempts_at_an_event_are_shown_masked_and_without_secrets() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let event = event_of(&scene, "order.created").await;
    let path = format!("/console/endpoints/ep_orders?event={event}");
    let page = ops.see(&path).await;
    for said in ["msg_1", "Status 503", "no field", "***", "Send it again"] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    assert!(page.contains(&format!("/console/events/{event}")), "{page}");
    for path in [path.as_str(), "/console/endpoints/ep_orders"] {
        let page = ops.see(path).await;
        for secret in ["4111", "ann@example.com", "secret-path", "secret-key"] {
            assert!(!page.contains(secret), "{path}: {secret}\n{page}");
        }
    }
    let wrong = ops.get("/console/endpoints/ep_orders?event=7").await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
}

#[tokio::test]
async fn one_event_is_sent_again() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let event = event_of(&scene, "order.shipped").await;
    let ask = format!("act=replay-endpoint-event&tenant=acme&endpoint=ep_orders&event={event}");
    let answer = ops.act(&ask).await;
    let lands = format!("/console/endpoints/ep_orders?event={event}&said=endpoint-replayed&done=1");
    assert_eq!(answer.header("location"), Some(lands.as_str()));
    let page = ops.see(&lands).await;
    assert!(page.contains("1 delivery is due now"), "{page}");
    let due = "hapax.endpoint_delivery WHERE type = 'order.shipped' AND state = 'waiting'";
    assert_eq!(scene.count(due).await, 1);
}

#[tokio::test]
async fn dropped_deliveries_are_sent_again_without_the_others() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let ask = "act=replay-endpoint&tenant=acme&endpoint=ep_orders&since=1h&dropped";
    let page = ops.see(&format!("/console/act?{ask}=true")).await;
    let chosen = "<option value=\"true\" selected>";
    assert!(page.contains(chosen), "{page}");
    for (dropped, done) in [("true", 0), ("false", 1)] {
        let answer = ops.act(&format!("{ask}={dropped}")).await;
        let lands = format!("/console/endpoints/ep_orders?said=endpoint-replayed&done={done}");
        assert_eq!(answer.header("location"), Some(lands.as_str()));
    }
}

#[tokio::test]
async fn an_endpoint_that_has_changed_since_its_form_was_opened_is_left_alone() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let ask = "/console/act?act=disable-endpoint&tenant=acme&endpoint=ep_orders";
    let page = ops.get(ask).await;
    let form = format!("{}&reason=a+test", form_of(&page));
    let changed = "UPDATE hapax.endpoint SET version = 9 WHERE id = 'ep_orders'";
    scene.client.batch_execute(changed).await.unwrap();
    let late = ops.post("/console/act", &form).await;
    assert_eq!(late.status, 409, "{}", late.text());
    let enabled = "hapax.endpoint WHERE id = 'ep_orders' AND disabled_reason IS NULL";
    assert_eq!(scene.count(enabled).await, 1);
    // One that is enabled is not enabled, and the reverse.
    for ask in [
        "act=enable-endpoint&tenant=acme&endpoint=ep_orders",
        "act=disable-endpoint&tenant=acme&endpoint=ep_gone",
    ] {
        let refused = ops.get(&format!("/console/act?{ask}")).await;
        assert_eq!(refused.status, 409, "{ask}: {}", refused.text());
    }
}

#[tokio::test]
async fn a_test_event_is_sent_to_an_endpoint_and_its_attempt_is_shown() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let viewer = scene.sign_in(VIEWER).await;
    let button = "act=test-endpoint";
    assert!(
        ops.see("/console/endpoints/ep_orders")
            .await
            .contains(button)
    );
    assert!(
        !viewer
            .see("/console/endpoints/ep_orders")
            .await
            .contains(button)
    );
    for (id, said) in [
        ("ep_orders", "ep_orders accepted the test event."),
        ("ep_gone", "ep_gone did not accept the test event."),
    ] {
        let ask = format!("act=test-endpoint&tenant=acme&endpoint={id}");
        let answer = ops.act(&ask).await;
        let page = answer.text();
        assert_eq!(answer.status, 200, "{page}");
        assert!(page.contains(said) && page.contains("msg_test"), "{page}");
        assert!(!page.contains("ann@example.com"), "{page}");
    }
}

#[tokio::test]
async fn the_settings_of_an_endpoint_are_tried_and_the_bodies_are_masked_text() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let path = "/console/endpoints/ep_orders/try";
    let seal = form_of(&ops.get(path).await);
    let form = |filter: &str, mapping: &str| {
        let coded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let (filter, mapping) = (coded(filter), coded(mapping));
        format!("{seal}&types=*&filter={filter}&mapping={mapping}")
    };
    let mapping = r#"{"said": "$.data.said", "c": "$.data.card", "n": "$.data.amount"}"#;
    let tried = ops.post(path, &form("", mapping)).await;
    let page = tried.text();
    assert_eq!(tried.status, 200, "{page}");
    for said in [
        "3 of the newest 3 events",
        "&lt;script&gt;",
        "***",
        "Body of order.shipped",
    ] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    for hidden in ["4111", EVIL, "globex"] {
        assert!(!page.contains(hidden), "{hidden}\n{page}");
    }
    let filtered = form(r#"{"/n": 4}"#, r#"{"$each": "$.data.n", "as": "@"}"#);
    let page = ops.post(path, &filtered).await.text();
    for said in ["0 of the newest 3 events", "is not a list", "/n"] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    let wrong = ops.post(path, &form("", "{")).await;
    let page = wrong.text();
    assert_eq!(wrong.status, 400, "{page}");
    assert!(page.contains("Mapping is not valid JSON."), "{page}");
    let viewer = scene.sign_in(VIEWER).await;
    assert_eq!(viewer.get(path).await.status, 400);
    let sent = viewer.post(path, &form("", mapping)).await;
    assert_eq!(sent.status, 403, "{}", sent.text());
    let alice = scene.sign_in(ALICE).await;
    let seal = form_of(&alice.get(path).await);
    let other = alice.post("/console/endpoints/ep_globex/try", &seal).await;
    assert_eq!(other.status, 404, "{}", other.text());
}

#[tokio::test]
async fn a_third_trial_of_a_tenant_at_the_same_time_is_refused() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let members: Vec<_> = (0..70_000).map(|at| format!("\"zz{at}\":1")).collect();
    let payload = format!("{{{}}}", members.join(","));
    emit(&scene, &payload, 20).await;
    let own = "/console/endpoints/ep_orders/try";
    let other = "/console/endpoints/ep_globex/try";
    let seal = form_of(&ops.get(own).await);
    let filter = utf8_percent_encode(r#"{"/zz1": 1}"#, NON_ALPHANUMERIC);
    let form = format!("{seal}&types=*&filter={filter}");
    // The refusal takes much less time than the trials.
    let tried = [own, own, own, other].map(|path| ops.post(path, &form));
    let tried = join_all(tried).await;
    let mut statuses: Vec<_> = tried.iter().map(|it| it.status).collect();
    statuses[..3].sort_unstable();
    assert_eq!(statuses, [200, 200, 409, 200]);
    let refused = tried.iter().find(|it| it.status == 409).unwrap();
    let page = refused.text();
    assert!(page.contains("Other trials are running"), "{page}");
    assert_eq!(ops.post(own, &seal).await.status, 200);
}

#[test]
fn a_trial_whose_client_has_disconnected_keeps_its_place_until_its_work_has_ended() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let scene = Scene::with_tokens().await;
        let ops = scene.sign_in(OPERATOR).await;
        let payload = format!("\"{}\"", "x".repeat(FILTERED_INLINE_BYTES));
        emit(&scene, &payload, 1).await;
        let own = "/console/endpoints/ep_orders/try";
        let other = "/console/endpoints/ep_globex/try";
        let seal = form_of(&ops.get(own).await);
        let form = format!("{seal}&types=*");
        let ask = async |path| answered(PATIENCE, ops.post(path, &form)).await.status;
        // The store has its connections before the thread is taken, which may also look up names.
        assert_eq!(tokio::join!(ask(own), ask(other)), (200, 200));
        // The work of a trial waits for the only thread.
        let (end, ended) = mpsc::channel::<()>();
        let busy = spawn_blocking(move || ended.recv().is_err());
        // A client that disconnects before the work is handed to the thread leaves the place free.
        let mut waits = Duration::from_millis(10);
        eventually(PATIENCE, async || {
            waits *= 2;
            timeout(waits, ask(own)).await == Ok(409)
        })
        .await;
        // Two trials have places, and no client waits for either.
        for _ in 0..3 {
            assert_eq!(ask(own).await, 409);
        }
        assert_eq!(ask(other).await, 200);
        drop(end);
        assert!(busy.await.unwrap());
        eventually(PATIENCE, async || ask(own).await == 200).await;
    });
}

#[tokio::test]
async fn a_process_that_knows_no_secrets_sends_no_test_events_to_endpoints() {
    let scene = Scene::quiet().await;
    let get = async |path| scene.send(Method::GET, path, &[], "").await;
    let page = get("/console/endpoints/ep_orders").await.text();
    assert!(
        page.contains("act=disable-endpoint") && !page.contains("act=test-endpoint"),
        "{page}"
    );
    let ask = "/console/act?act=test-endpoint&tenant=acme&endpoint=ep_orders";
    assert_eq!(get(ask).await.status, 409);
}

#[tokio::test]
async fn endpoints_have_pages_that_follow_each_other() {
    let scene = Scene::local().await;
    let more = "INSERT INTO hapax.endpoint
            (id, tenant, url, description, types, headers, created_at, created_by, changed_at,
             changed_by, version)
        SELECT 'ep_many_' || n, 'many', 'https://a.example/', '', '[]', '[]', now(), 'ops', now(),
               'ops', 100 + n
        FROM generate_series(1, 120) AS n";
    scene.client.batch_execute(more).await.unwrap();
    let mut path = "/console/endpoints?q=tenant:many".to_owned();
    let mut seen = 0;
    for _ in 0..5 {
        let page = scene.send(Method::GET, &path, &[], "").await.text();
        seen += page.matches("href=\"/console/endpoints/ep_many_").count();
        let next = "href=\"/console/endpoints?q=tenant%3Amany&amp;before=";
        let Some((_, rest)) = page.split_once(next) else {
            break;
        };
        let before = rest.split('"').next().unwrap();
        path = format!("/console/endpoints?q=tenant:many&before={before}");
    }
    assert_eq!(seen, 120);
}

#[tokio::test]
async fn a_disabled_endpoint_shows_its_next_probe() {
    let scene = Scene::local().await;
    let probed = "UPDATE hapax.endpoint SET probe_at = now() + interval '150 minutes', probes = 2
        WHERE id = 'ep_gone'";
    scene.client.batch_execute(probed).await.unwrap();
    let see = async |path| scene.send(Method::GET, path, &[], "").await.text();
    let page = see("/console/endpoints/ep_gone").await;
    for said in ["A relay probes it in 2 h", "2 probes have failed"] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    let list = see("/console/endpoints?q=state:disabled").await;
    assert!(list.contains(", probed "), "{list}");
}

#[tokio::test]
async fn events_from_before_an_endpoint_are_counted_and_then_queued() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let more = "INSERT INTO hapax.endpoint
            (id, tenant, url, description, types, headers, created_at, created_by, changed_at,
             changed_by, version)
        VALUES ('ep_new', 'fresh', 'https://a.example/', '', '[\"*\"]', '[]', now(), 'ops', now(),
                'ops', 90);
        INSERT INTO hapax.outbox_event
            (event_id, type, tenant, aggregate_type, aggregate_id, payload, headers, created_at)
        SELECT gen_random_uuid(), 'order.created', 'fresh', 'order', '1', '{}', '{}',
               now() - n * interval '1 day'
        FROM generate_series(1, 3) AS n";
    scene.client.batch_execute(more).await.unwrap();
    let ask = "act=replay-missing&tenant=fresh&endpoint=ep_new&since=60h";
    let form = format!("/console/act?{ask}");
    let page = ops.see(&form).await;
    assert!(page.contains("2 events of its tenant match"), "{page}");
    let queued = "hapax.endpoint_delivery WHERE endpoint = 'ep_new'";
    assert_eq!(scene.count(queued).await, 0);
    let sent = ops.act(ask).await;
    let lands = "/console/endpoints/ep_new?said=endpoint-missing&done=2&rest=none";
    assert_eq!(sent.header("location"), Some(lands));
    let page = ops.see(lands).await;
    assert!(page.contains("2 events are queued"), "{page}");
    assert_eq!(scene.count(queued).await, 2);
    let page = ops.see(&form).await;
    assert!(page.contains("0 events of its tenant match"), "{page}");
    let wrong = ops.get(&format!("{form}&until=soon")).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
}

/// Writes events of the tenant `acme`.
async fn emit(scene: &Scene, payload: &str, count: i32) {
    const EMIT: &str = "
        INSERT INTO hapax.outbox_event (event_id, type, tenant, payload, headers, created_at)
        SELECT gen_random_uuid(), 'order.created', 'acme', $1::text, '{}', now()
        FROM generate_series(1, $2::integer)";
    let written = scene.client.execute(EMIT, &[&payload, &count]).await;
    written.unwrap();
}

/// The id of the event of this type, which belongs to the tenant `acme`.
async fn event_of(scene: &Scene, kind: &str) -> String {
    let sql = "SELECT event_id::text FROM hapax.outbox_event WHERE type = $1 AND tenant = 'acme'";
    let row = scene.client.query_one(sql, &[&kind]).await.unwrap();
    row.get(0)
}
