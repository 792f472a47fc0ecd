//! Conformance tests of operators' decisions about sagas.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    admin::REASON_BYTES_MAX,
    limits::SAGA_INPUT_BYTES_MAX,
    saga::{Decision, Direction, Owned, SagaRecord, State, StepState},
    store::{Sagas, StoreError},
};

use super::{
    AdminUnderTest,
    checks::{HOSTILE, Must, check_conflict, check_invalid, check_missing, check_one_done},
    sagas::{decide, open_step},
    scene::{LEASE, Scene, line, new_saga},
};
use crate::store::saga_steps::{kind, step};

/// Each decision changes the rows and the status, and the saga is due at once unless it has ended.
pub async fn each_decision_has_its_effect<S: AdminUnderTest>() {
    let within = Duration::from_mins(15);
    let (step, made) = ("pay".to_owned(), Bytes::from_static(b"{\"id\":4711}"));
    for (decision, state, of_step) in [
        (Decision::Retry { within }, State::Running, StepState::Open),
        (
            Decision::Done {
                step: step.clone(),
                made: made.clone(),
            },
            State::Running,
            StepState::Done,
        ),
        (
            Decision::Refused { step: step.clone() },
            State::Running,
            StepState::Refused,
        ),
        (Decision::Close, State::Failed, StepState::Open),
    ] {
        let scene = Scene::<S>::new().await;
        let saga = stopped(&scene).await;
        let decided = scene
            .admin
            .decide(&scene.ops, "s1", saga.epoch, &decision, "asked the bank");
        decided.await.must();
        let found = scene.admin.look_at_saga(&scene.ops, "s1").await.must().saga;
        assert_eq!(found.status.state, state, "{decision:?}");
        let row = found.step("pay", Direction::Forward).expect("it exists");
        assert_eq!(row.state, of_step, "{decision:?}");
        let is_done = of_step == StepState::Done;
        assert_eq!(row.made, if is_done { made.clone() } else { Bytes::new() });
        assert!(found.epoch > saga.epoch);
        let due = scene.store().take_sagas(&[kind(1)], LEASE, 10).await.must();
        assert_eq!(due.len(), usize::from(!state.is_end()), "{decision:?}");
        let [line] = scene.log().await.try_into().must();
        assert_eq!(
            (line.action.as_str(), line.object.as_str()),
            ("decide", "saga s1")
        );
        assert_eq!(line.outcome, "done");
        assert_eq!(line.detail["reason"], "asked the bank");
        assert_eq!(line.detail["decision"], decision.as_str());
        assert!(!line.detail.to_string().contains("4711"), "{line:?}");
    }
}

/// The steps of a saga are compensated once no outcome is unknown.
pub async fn a_saga_is_compensated_once_no_outcome_is_unknown<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let saga = stopped(&scene).await;
    let undo = Decision::Compensate {
        within: Duration::from_mins(15),
    };
    check_conflict(&decide(&scene, &scene.ops, "s1", saga.epoch, &undo).await);
    scene.start_sagas([new_saga("s2", None)]).await;
    let done = [step("reserve", Direction::Forward)];
    scene.put_saga("s2", &done, State::NeedsAttention).await;
    let look = scene.admin.look_at_saga(&scene.ops, "s2").await.must();
    let undone = decide(&scene, &scene.ops, "s2", look.saga.epoch, &undo).await;
    undone.must();
    let look = scene.admin.look_at_saga(&scene.ops, "s2").await.must();
    assert!(look.saga.status.compensating);
    assert_eq!(look.saga.status.state, State::Running);
}

/// A decision that does not fit the saga changes nothing and does not take it from its worker.
pub async fn a_decision_that_does_not_fit_changes_nothing<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.start_sagas([new_saga("running", None)]).await;
    let taken = scene.store().take_sagas(&[kind(1)], LEASE, 10).await.must();
    let close = Decision::Close;
    let epoch = taken[0].epoch;
    check_conflict(&decide(&scene, &scene.ops, "running", epoch, &close).await);
    // Its worker still owns it.
    let owned = Owned::of(&taken[0]);
    scene.store().lock_saga(&owned, LEASE).await.must();
    let saga = stopped(&scene).await;
    for step in ["reserve", "unknown", ""] {
        let step = step.to_owned();
        let refused = Decision::Refused { step };
        check_conflict(&decide(&scene, &scene.ops, "s1", saga.epoch, &refused).await);
    }
    let look = scene.admin.look_at_saga(&scene.ops, "s1").await.must();
    assert_eq!(look.saga, saga);
    check_missing(&decide(&scene, &scene.ops, "unknown", 1, &close).await);
    assert_eq!(scene.acts().await, vec![line("decide", "refused"); 4]);
}

/// A decision needs a reason of 1 to [`REASON_BYTES_MAX`] bytes, and a result that is not too long.
pub async fn a_decision_needs_a_reason_and_a_short_result<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let saga = stopped(&scene).await;
    let (admin, ops, close) = (&scene.admin, &scene.ops, Decision::Close);
    let over = "x".repeat(REASON_BYTES_MAX + 1);
    for reason in ["", " ", "\t", &over] {
        let decided = admin.decide(ops, "s1", saga.epoch, &close, reason).await;
        check_invalid(&decided, "reason");
    }
    let long = Decision::Done {
        step: "pay".to_owned(),
        made: vec![b'x'; SAGA_INPUT_BYTES_MAX + 1].into(),
    };
    let decided = admin.decide(ops, "s1", saga.epoch, &long, "why").await;
    check_invalid(&decided, "made");
    assert!(scene.acts().await.is_empty());
    let look = admin.look_at_saga(ops, "s1").await.must();
    assert_eq!(look.saga, saga);
    let decided = admin.decide(ops, "s1", saga.epoch, &close, &over[1..]);
    decided.await.must();
}

/// The reason of a decision may contain any text.
pub async fn a_hostile_reason_of_a_decision_is_stored<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for (number, word) in HOSTILE.iter().enumerate() {
        let (id, reason) = (format!("s{number}"), format!("why {word}"));
        let saga = scene.saga_in_attention(&id, None).await;
        let close = Decision::Close;
        let decided = scene
            .admin
            .decide(&scene.ops, &id, saga.epoch, &close, &reason);
        decided.await.must();
        let look = scene.admin.look_at_saga(&scene.ops, &id).await.must();
        let kept = look.saga.status.reason.expect("there is a reason").detail;
        // A database may not be able to store a NUL.
        assert!(kept == reason || word.contains('\0'), "{kept:?}");
    }
}

/// A saga that a worker or another operator has had since it was read is not decided about.
pub async fn a_saga_that_has_changed_since_it_was_read_is_not_decided_about<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let seen = scene.saga_in_attention("s1", None).await.epoch;
    let retry = Decision::Retry {
        within: Duration::from_mins(15),
    };
    decide(&scene, &scene.ops, "s1", seen, &retry).await.must();
    scene.put_saga("s1", &[], State::NeedsAttention).await;
    let look = async || {
        let look = scene.admin.look_at_saga(&scene.ops, "s1").await;
        look.must().saga
    };
    let before = look().await;
    for epoch in [seen, i64::MIN, -1, 0, before.epoch + 1, i64::MAX] {
        let decided = decide(&scene, &scene.ops, "s1", epoch, &Decision::Close).await;
        check_conflict(&decided);
    }
    assert_eq!(look().await, before);
    let close = Decision::Close;
    let decided = decide(&scene, &scene.ops, "s1", before.epoch, &close);
    decided.await.must();
    assert_eq!(look().await.status.state, State::Failed);
}

/// Of operators who decide at the same time, in two processes, one decision is applied.
pub async fn of_many_decisions_at_once_one_is_applied<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let seen = scene.saga_in_attention("s1", None).await.epoch;
    let handles = [scene.admin.clone(), scene.beside().await];
    let decided = (0..10).map(async |number: usize| {
        let decision = if number.is_multiple_of(2) {
            Decision::Close
        } else {
            let within = Duration::from_mins(15);
            Decision::Retry { within }
        };
        let admin = &handles[number / 5];
        admin.decide(&scene.ops, "s1", seen, &decision, "why").await
    });
    let done = check_one_done(&join_all(decided).await);
    let look = scene.admin.look_at_saga(&scene.ops, "s1").await.must();
    let expected = if done % 2 == 0 {
        State::Failed
    } else {
        State::Running
    };
    assert_eq!(look.saga.status.state, expected);
    let acts = scene.acts().await;
    assert_eq!(acts.iter().filter(|act| act.1 == "done").count(), 1);
    assert_eq!(acts.len(), 10);
}

/// A worker that still believes to own the saga is fenced by a decision.
pub async fn a_decision_fences_the_worker_of_the_saga<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let saga = scene.saga_in_attention("s1", None).await;
    let retry = Decision::Retry {
        within: Duration::from_mins(15),
    };
    let decided = decide(&scene, &scene.ops, "s1", saga.epoch, &retry);
    decided.await.must();
    let fenced = scene.store().lock_saga(&Owned::of(&saga), LEASE).await;
    assert!(matches!(fenced, Err(StoreError::Fenced)));
    let taken = scene.store().take_sagas(&[kind(1)], LEASE, 10).await.must();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].status.state, State::Running);
}

/// A saga that needs attention, with a step that is done and one whose outcome is unknown.
async fn stopped<S: AdminUnderTest>(scene: &Scene<S>) -> SagaRecord {
    scene.start_sagas([new_saga("s1", None)]).await;
    let steps = [
        step("reserve", Direction::Forward),
        open_step("pay", Direction::Forward),
    ];
    scene.put_saga("s1", &steps, State::NeedsAttention).await;
    let look = scene.admin.look_at_saga(&scene.ops, "s1").await.must();
    look.saga
}
