//! Tests of the actions on selected deliveries, and of delivering events again.

use crate::scene::{OPERATOR, Scene, VIEWER};

#[tokio::test]
async fn selected_dead_letters_are_replayed_and_what_is_not_dead_is_left_alone() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let page = ops.see("/console/dead-letters").await;
    assert!(page.contains("name=\"one\" value=\"mail 1\""), "{page}");
    let eve = scene.sign_in(VIEWER).await;
    let page = eve.see("/console/dead-letters").await;
    assert!(
        !page.contains("checkbox") && !page.contains("replay-selected"),
        "{page}"
    );
    let answer = ops
        .act("act=replay-selected&one=mail+1&one=hooks+2&one=mail+99")
        .await;
    let to = answer.header("location").expect("a redirect").to_owned();
    assert_eq!(
        to,
        "/console/dead-letters?said=selected-replayed&done=1&of=3"
    );
    let page = ops.see(&to).await;
    assert!(
        page.contains("1 of 3 is due again. The other 2: no longer dead letters."),
        "{page}"
    );
    let again = "hapax.delivery WHERE destination = 'mail' AND position = 1 AND state = 'retrying'";
    assert_eq!(scene.count(again).await, 1);
    let answer = ops.act("act=discard-selected&one=%3Cscript%3Eevil+3").await;
    let to = answer.header("location").expect("a redirect").to_owned();
    assert_eq!(
        to,
        "/console/dead-letters?said=selected-discarded&done=1&of=1"
    );
    let line = "hapax.audit_log WHERE actor = 'ops' AND action = 'discard'
        AND detail::json ->> 'reason' = 'because of a test'";
    assert_eq!(scene.count(line).await, 1);
    for wrong in [
        "act=replay-selected",
        "act=replay-selected&one=mail",
        "act=replay-selected&one=mail+x",
        &format!("act=replay-selected{}", "&one=mail+1".repeat(201)),
    ] {
        let answer = ops.get(&format!("/console/act?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text());
    }
}

#[tokio::test]
async fn actions_on_many_dead_letters_are_offered_only_if_there_are_any() {
    const OFFERS: [&str; 3] = ["all matches", "Select dead letters", "replay-selected"];
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let page = ops.see("/console/dead-letters").await;
    assert!(
        page.contains(OFFERS[1]) && page.contains(OFFERS[2]),
        "{page}"
    );
    let page = ops.see("/console/dead-letters?q=dest:mail").await;
    assert!(
        page.contains("Replay all matches") && page.contains("Discard all matches"),
        "{page}"
    );
    let check_nothing_is_offered = async |path: &str| {
        let page = ops.see(path).await;
        for offer in OFFERS {
            assert!(!page.contains(offer), "{path}: {offer}\n{page}");
        }
    };
    check_nothing_is_offered("/console/dead-letters?q=dest:hooks").await;
    let none = "DELETE FROM hapax.delivery WHERE state = 'dead'";
    scene.client.batch_execute(none).await.unwrap();
    check_nothing_is_offered("/console/dead-letters").await;
    check_nothing_is_offered("/console/dead-letters?q=dest:mail").await;
}

#[tokio::test]
async fn a_delivery_that_waits_is_retried_now_alone_or_with_others() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let page = ops.see("/console/events/2").await;
    assert!(page.contains("act=retry&amp;partition=hooks"), "{page}");
    let waits = "hapax.delivery WHERE destination = 'hooks' AND next_at > now()";
    assert_eq!(scene.count(waits).await, 1);
    let answer = ops.act("act=retry&partition=hooks&position=2").await;
    let to = answer.header("location").expect("a redirect").to_owned();
    assert_eq!(to, "/console/events/2?said=retried");
    assert!(ops.see(&to).await.contains("It is due now"));
    assert_eq!(scene.count(waits).await, 0);
    let answer = ops.act("act=retry&partition=mail&position=1").await;
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains("is dead"), "{}", answer.text());
    let page = ops.see("/console/deliveries").await;
    assert!(page.contains("value=\"hooks 2\""), "{page}");
    assert!(!page.contains("value=\"mail 1\""), "{page}");
    let answer = ops.act("act=retry-selected&one=hooks+2").await;
    let to = "/console/deliveries?said=selected-retried&done=1&of=1";
    assert_eq!(answer.header("location"), Some(to));
}

#[tokio::test]
async fn an_event_is_delivered_again_only_where_that_changes_something() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    // Nothing says which events `hooks` takes, so the form would be refused.
    let page = ops.see("/console/events/1").await;
    assert!(!page.contains("Deliver to hooks"), "{page}");
    assert!(
        page.contains("This console cannot deliver it to "),
        "{page}"
    );
    let declare = "INSERT INTO hapax.declaration
            (name, spec, version, created_at, changed_at, changed_by)
        VALUES ('hooks', '{}', nextval('hapax.declaration_version'), now(), now(), 'bob')";
    scene.client.batch_execute(declare).await.unwrap();
    let page = ops.see("/console/events/1").await;
    assert!(page.contains("Deliver to hooks</a>"), "{page}");
    // There it waits for its next attempt.
    let page = ops.see("/console/events/2").await;
    assert!(!page.contains("Deliver to hooks"), "{page}");
    let id = "SELECT event_id::text FROM hapax.outbox_event WHERE id = 2";
    let id: String = scene.client.query_one(id, &[]).await.unwrap().get(0);
    let answer = ops
        .get(&format!(
            "/console/act?act=replay-events&dest=hooks&q=id:{id}"
        ))
        .await;
    assert_eq!(answer.status, 409);
    let why = "it waits for its next attempt there";
    assert!(answer.text().contains(why), "{}", answer.text());
}

#[tokio::test]
async fn many_events_are_estimated_before_they_are_delivered_again_and_counted_on_demand() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    let many = "INSERT INTO hapax.declaration
            (name, spec, version, created_at, changed_at, changed_by)
        VALUES ('hooks', '{}', nextval('hapax.declaration_version'), now(), now(), 'bob');
        INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
        SELECT gen_random_uuid(), 'many.made', '{}', '{}', now() FROM generate_series(1, 12000)";
    scene.client.batch_execute(many).await.unwrap();
    let ask = "/console/act?act=replay-events&dest=hooks&q=type:many.*";
    let page = ops.see(ask).await;
    assert!(page.contains("≈ 12"), "{page}");
    assert!(page.contains("Count them exactly"), "{page}");
    let page = ops.see(&format!("{ask}&count=exact")).await;
    assert!(page.contains("12\u{202f}000 events match"), "{page}");
    assert!(!page.contains("Count them exactly"), "{page}");
}

#[tokio::test]
async fn the_audit_log_has_words_and_a_job_says_what_it_left_unchanged() {
    let scene = Scene::with_tokens().await;
    let ops = scene.sign_in(OPERATOR).await;
    ops.act("act=discard-dead&dest=mail&q=dest%3Amail").await;
    let ended = "UPDATE hapax.job SET state = 'done', done = 0, total = 1, ended_at = now()";
    scene.client.batch_execute(ended).await.unwrap();
    let page = ops.see("/console/advanced").await;
    assert!(page.contains("because of a test"), "{page}");
    assert!(
        page.contains("1 unchanged: no longer dead letters"),
        "{page}"
    );
    for internal in ["seen: <", "counted at: <", "{&quot;"] {
        assert!(!page.contains(internal), "{internal}\n{page}");
    }
}
