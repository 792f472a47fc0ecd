//! Tests of operations in the console: the store executes each operation once, and the audit log
//! holds its reason.

use std::time::Duration;

use hapax_testkit::{http::HttpResponse, wait::eventually};

use crate::scene::{OPERATOR, Scene, VIEWER, clock, field_of, form_of};

const PATIENCE: Duration = Duration::from_secs(20);

/// The form of each action, the page that it leads to, and the action and object in the audit log.
const ACTS: [(&str, &str, &str, &str); 11] = [
    (
        "act=pause&dest=mail",
        "/console/destinations/mail?said=paused",
        "pause",
        "destination mail",
    ),
    (
        "act=resume&dest=mail",
        "/console/destinations/mail?said=resumed",
        "resume",
        "destination mail",
    ),
    (
        "act=replay&partition=mail&position=1",
        "/console/events/1?said=replayed",
        "replay",
        "delivery mail 1",
    ),
    (
        "act=edit&partition=%3Cscript%3Eevil&position=3&patch=%7B%22said%22%3A%22sorry%22%7D",
        "/console/events/3?said=edited",
        "edit",
        "delivery <script>evil 3",
    ),
    (
        "act=decide&saga=saga-1&decision=retry&within=5m",
        "/console/sagas/saga-1?said=decided",
        "decide",
        "saga saga-1",
    ),
    (
        "act=purge-key&tenant=acme&operation=POST+%2Forders&key=key-of-acme",
        "/console/keys?said=purged",
        "purge",
        "key",
    ),
    (
        "act=disable-endpoint&tenant=globex&endpoint=ep_globex",
        "/console/endpoints/ep_globex?said=endpoint-disabled",
        "disable",
        "endpoint ep_globex",
    ),
    (
        "act=enable-endpoint&tenant=acme&endpoint=ep_gone",
        "/console/endpoints/ep_gone?said=endpoint-enabled",
        "enable",
        "endpoint ep_gone",
    ),
    (
        "act=replay-endpoint&tenant=acme&endpoint=ep_orders&since=1h&until=0s",
        "/console/endpoints/ep_orders?said=endpoint-replayed&done=1",
        "replay",
        "endpoint ep_orders",
    ),
    (
        "act=seek&polling=acme-poll&to=now",
        "/console/polling/acme-poll?said=sought",
        "seek",
        "polling endpoint acme-poll",
    ),
    (
        "act=cancel&job=1",
        "/console/advanced?said=cancelled",
        "cancel",
        "job 1",
    ),
];

#[tokio::test]
async fn what_is_agreed_to_is_done_and_written_down_with_its_reason() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    for (ask, lands, action, object) in ACTS {
        let answer = ops.act(ask).await;
        assert_eq!(answer.status, 303, "{ask}: {}", answer.text());
        let to = answer.header("location").unwrap();
        assert_eq!(to, lands, "{ask}");
        assert!(ops.see(to).await.contains("class=\"told\""), "{to}");
        let line = format!(
            "hapax.audit_log WHERE actor = 'ops' AND action LIKE '{action}%' AND object LIKE '{object}%' \
             AND detail::json ->> 'reason' = 'because of a test'"
        );
        assert_eq!(scene.count(&line).await, 1, "{ask}");
    }
    let due = "hapax.delivery WHERE destination = 'mail' AND position = 1 AND state = 'retrying'";
    assert_eq!(scene.count(due).await, 1);
    assert_eq!(
        scene
            .count("hapax.idempotency_key WHERE key = 'key-of-acme'")
            .await,
        0
    );
}

#[tokio::test]
async fn a_test_event_is_sent_once_and_its_attempt_is_shown() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let viewer = scene.sign_in(VIEWER).await;
    let (path, button) = ("/console/destinations/held", "act=test&amp;dest=held");
    assert!(ops.see(path).await.contains(button));
    assert!(!viewer.see(path).await.contains(button));
    for (dest, shown) in [
        ("held", ["held accepted the test event.", "204"]),
        (
            "mail",
            ["mail did not accept the test event.", "no such field"],
        ),
    ] {
        let answer = ops.act(&format!("act=test&dest={dest}")).await;
        let page = answer.text();
        assert_eq!(answer.status, 200, "{page}");
        for text in shown {
            assert!(page.contains(text), "{text}: {page}");
        }
        let entry = format!(
            "hapax.audit_log WHERE actor = 'ops' AND action = 'test' \
             AND object = 'destination {dest}' \
             AND detail::json ->> 'reason' = 'because of a test'"
        );
        assert_eq!(scene.count(&entry).await, 1, "{dest}");
    }
    let emitted = "hapax.outbox_event WHERE type = 'hapax.test'";
    assert_eq!(scene.count(emitted).await, 0);
}

#[tokio::test]
async fn a_process_without_destinations_sends_no_test_events() {
    let scene = Scene::quiet().await;
    let get = async |path| scene.send(http::Method::GET, path, &[], "").await;
    let page = get("/console/destinations/mail").await.text();
    assert!(
        page.contains("act=pause") && !page.contains("act=test"),
        "{page}"
    );
    let refused = get("/console/act?act=test&dest=mail").await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let unknown = get("/console/act?act=test&dest=nobody").await;
    assert_eq!(unknown.status, 404, "{}", unknown.text());
}

#[tokio::test]
async fn many_dead_letters_are_counted_and_one_job_is_begun_however_often_the_form_is_sent() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let ask = "act=discard-dead&dest=mail&q=dest%3Amail";
    for _ in 0..2 {
        let answer = ops.act(ask).await;
        assert_eq!(
            answer.header("location"),
            Some("/console/advanced?said=job")
        );
    }
    let jobs = "hapax.job WHERE kind = 'discard_dead_letters' AND total = 1 AND actor = 'ops'";
    assert_eq!(scene.count(jobs).await, 1);
}

#[tokio::test]
async fn many_are_touched_by_nothing_that_their_filter_leaves_out() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let csrf_token = crate::scene::seal_of(&ops.get("/console/act?act=pause&dest=mail").await);
    for act in ["replay-dead", "discard-dead"] {
        for (q, why) in [
            ("error%3A550+timeout", "&quot;timeout&quot; is one too many"),
            (
                "timeout+dest%3Amail+error%3A550",
                "&quot;timeout&quot; is one too many",
            ),
            (
                "dest%3Ahooks",
                "dest: is &quot;hooks&quot;, and not &quot;mail&quot;",
            ),
        ] {
            let ask = format!("act={act}&dest=mail&q={q}");
            let asked = ops.get(&format!("/console/act?{ask}")).await;
            let form = format!("seal={csrf_token}&{ask}&reason=x&request_key=k");
            let done = ops.post("/console/act", &form).await;
            for answer in [asked, done] {
                assert_eq!(answer.status, 400, "{ask}: {}", answer.text());
                assert!(answer.text().contains(why), "{ask}: {}", answer.text());
            }
        }
        // A word without a qualifier also filters the dead letters that are counted.
        let page = ops
            .see(&format!("/console/act?act={act}&dest=mail&q=timeout"))
            .await;
        assert!(page.contains("0 dead letters of mail"), "{page}");
    }
    assert_eq!(scene.count("hapax.job WHERE actor = 'ops'").await, 0);
}

#[tokio::test]
async fn a_filter_by_age_means_the_moment_at_which_it_was_asked_for() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let page = ops
        .get("/console/act?act=replay-dead&dest=mail&q=dest:mail+age%3C1h")
        .await;
    assert!(
        page.text().contains("1 dead letter of mail"),
        "{}",
        page.text()
    );
    let form = format!("{}&reason=again", form_of(&page));
    for _ in 0..2 {
        let answer = ops.post("/console/act", &form).await;
        let lands = Some("/console/advanced?said=job");
        assert_eq!(answer.header("location"), lands, "{}", answer.text());
        // The form is sent again at a later time.
        let sent_at = clock().now();
        eventually(PATIENCE, async || clock().now() > sent_at).await;
    }
    let jobs = "hapax.job WHERE kind = 'replay_dead_letters' AND total = 1 AND actor = 'ops'";
    assert_eq!(scene.count(jobs).await, 1);
    // The time of a form must not be in the future, and must not be older than the longest session.
    let asked_at = field_of(&page, "asked_at").parse::<i64>().unwrap();
    for forged in [
        i64::MAX,
        asked_at + 3_600_000,
        asked_at - 12 * 3_600_000 - 1,
        i64::MIN,
    ] {
        let form = form.replace(&asked_at.to_string(), &forged.to_string());
        assert_eq!(
            ops.post("/console/act", &form).await.status,
            400,
            "{forged}"
        );
    }
}

/// An operation applies only to what its page showed. After the page was opened, the key is used
/// again, the saga is taken by a worker, and another event becomes a dead letter: none of these is
/// changed.
#[tokio::test]
async fn what_has_changed_since_its_page_was_opened_is_left_alone() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let key = "/console/act?act=purge-key&tenant=acme&operation=POST+%2Forders&key=key-of-acme";
    let saga = "/console/act?act=decide&saga=saga-1&decision=close";
    let dead = "/console/act?act=discard-dead&dest=mail&q=";
    let form = |page: &HttpResponse| format!("{}&reason=a+test", form_of(page));
    let (of_key, of_saga, of_dead) = (ops.get(key).await, ops.get(saga).await, ops.get(dead).await);
    let change =
        "UPDATE hapax.idempotency_key SET on_expired = on_expired WHERE key = 'key-of-acme';
        UPDATE hapax.saga SET epoch = epoch + 1 WHERE id = 'saga-1';
        INSERT INTO hapax.delivery
            (destination, position, state, attempt, next_at, changed_at)
        VALUES ('mail', 2, 'dead', 1, now(), now() - interval '1 hour')
        ON CONFLICT (destination, position) DO UPDATE SET state = 'dead'";
    scene.client.batch_execute(change).await.unwrap();
    for (page, why) in [
        (&of_key, "used again since"),
        (&of_saga, "changed since it was looked at"),
    ] {
        let late = ops.post("/console/act", &form(page)).await;
        assert_eq!(late.status, 409, "{}", late.text());
        assert!(late.text().contains(why), "{}", late.text());
    }
    let stands = "hapax.idempotency_key WHERE key = 'key-of-acme'";
    assert_eq!(scene.count(stands).await, 1);
    let asks = "hapax.saga WHERE id = 'saga-1' AND state = 'needs_attention'";
    assert_eq!(scene.count(asks).await, 1);
    // The job includes the dead letter that was counted, but not the one that was added later.
    assert!(of_dead.text().contains("1 dead letter of mail"));
    let begun = ops.post("/console/act", &form(&of_dead)).await;
    assert_eq!(begun.status, 303, "{}", begun.text());
    let job = "hapax.job WHERE kind = 'discard_dead_letters' AND total = 1 AND actor = 'ops'";
    assert_eq!(scene.count(job).await, 1);
    // After the pages are opened again, both operations succeed.
    for path in [key, saga] {
        let done = ops.post("/console/act", &form(&ops.get(path).await)).await;
        assert_eq!(done.status, 303, "{}", done.text());
    }
    assert_eq!(scene.count(stands).await, 0);
}

#[tokio::test]
async fn what_is_asked_about_a_step_is_asked_about_the_way_it_is_on() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let page = ops.see("/console/sagas/saga-1").await;
    assert!(page.contains("charge happened") && page.contains("charge did not happen"));
    let ask = "/console/act?act=decide&saga=saga-1&decision=done&step=charge";
    let before = ops.get(ask).await;
    assert!(
        before
            .text()
            .contains("as if step charge had happened, with its result")
    );
    let form = |page: &HttpResponse| format!("{}&reason=asked+them", form_of(page));
    // Meanwhile another operator has found out that the step happened, and the outcome of its
    // compensation is unknown.
    let compensating =
        "UPDATE hapax.saga_step SET state = 'done', ended_at = now() WHERE saga = 'saga-1';
        INSERT INTO hapax.saga_step
            (saga, name, direction, state, provider_key, request, made, attempts, next_at, began_at)
        VALUES ('saga-1', 'charge', 'compensate', 'open', 'key', '', '', 1, now(), now());
        UPDATE hapax.saga SET compensating = true WHERE id = 'saga-1'";
    scene.client.batch_execute(compensating).await.unwrap();
    let page = ops.see("/console/sagas/saga-1").await;
    assert!(page.contains("charge is undone") && page.contains("charge cannot be undone"));
    assert!(!page.contains("charge happened") && !page.contains("charge did not happen"));
    let late = ops.post("/console/act", &form(&before)).await;
    assert_eq!(late.status, 409, "{}", late.text());
    assert!(
        late.text().contains("whether it is undone"),
        "{}",
        late.text()
    );
    let undone =
        "hapax.saga_step WHERE saga = 'saga-1' AND direction = 'compensate' AND state = 'done'";
    assert_eq!(scene.count(undone).await, 0);
    let asked = ops.get(ask).await;
    assert!(asked.text().contains("as if step charge were undone"));
    assert!(
        !asked.text().contains("Result, as JSON"),
        "{}",
        asked.text()
    );
    assert_eq!(ops.post("/console/act", &form(&asked)).await.status, 303);
    assert_eq!(scene.count(undone).await, 1);
    // The saga continues, and no decision is needed any more.
    let page = ops.see("/console/sagas/saga-1").await;
    assert!(!page.contains("charge is undone"), "{page}");
    assert_eq!(ops.get(ask).await.status, 409);
}

#[tokio::test]
async fn what_is_refused_behind_the_pivot_can_be_taken_for_done() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let refused =
        "UPDATE hapax.saga_step SET state = 'refused', ended_at = now() WHERE saga = 'saga-1'";
    scene.client.batch_execute(refused).await.unwrap();
    let page = ops.see("/console/sagas/saga-1").await;
    assert!(page.contains("charge happened"), "{page}");
    let turned = "UPDATE hapax.saga SET compensating = true WHERE id = 'saga-1'";
    scene.client.batch_execute(turned).await.unwrap();
    let page = ops.see("/console/sagas/saga-1").await;
    assert!(!page.contains("charge happened"), "{page}");
}

#[tokio::test]
async fn an_act_without_a_reason_or_out_of_its_time_is_refused() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let page = ops.get("/console/act?act=pause&dest=mail").await;
    let csrf_token = crate::scene::seal_of(&page);
    let post = async |form: &str| {
        ops.post("/console/act", &format!("seal={csrf_token}&{form}"))
            .await
    };
    assert_eq!(post("act=pause&dest=mail&reason=+").await.status, 400);
    let long = "r".repeat(1_025);
    assert_eq!(
        post(&format!("act=pause&dest=mail&reason={long}"))
            .await
            .status,
        400
    );
    assert_eq!(
        post("act=replay&partition=hooks&position=2&reason=x")
            .await
            .status,
        409
    );
    assert_eq!(
        post("act=discard-dead&dest=mail&q=typ:a&reason=x")
            .await
            .status,
        400
    );
    assert_eq!(post("act=resume&dest=held&reason=x").await.status, 409);
    assert_eq!(
        post("act=decide&saga=saga-1&decision=done&step=charge&made=no&epoch=1&reason=x")
            .await
            .status,
        400
    );
    assert_eq!(post("act=cancel&job=77&reason=x").await.status, 404);
    assert_eq!(
        scene
            .count("hapax.audit_log WHERE actor = 'ops' AND outcome = 'done'")
            .await,
        0
    );
}
