//! Conformance tests of sagas: their list, and operators' decisions.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    admin::{Actor, AdminError, REASON_BYTES_MAX, SagaLook},
    limits::SAGA_INPUT_BYTES_MAX,
    saga::{
        Decision, Direction, Filter, Kind, NewSaga, Owned, SagaRecord, State, StepRecord, StepState,
    },
    store::{Sagas, StoreError},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid, check_missing, check_one_done, hostile, pages},
    scene::{LEASE, Scene, line, new_saga, of},
};
use crate::store::saga_steps::{kind, step};

/// Sagas are listed by id, by every field of the filter, in pages.
pub async fn every_field_of_the_filter_selects_sagas<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let of_kind = |name: &str, version| Kind {
        name: name.to_owned(),
        version,
    };
    let sagas = (0..12).map(|number| NewSaga {
        kind: of_kind(["checkout", "refund"][number % 2], if number < 6 { 1 } else { 2 }),
        ..new_saga(&format!("s{number:02}"), None)
    });
    scene.start_sagas(sagas).await;
    scene.put_saga("s00", &[], State::NeedsAttention).await;
    scene.put_saga("s01", &[], State::Completed).await;
    scene.put_saga("s02", &[], State::Failed).await;
    let check = async |expected: usize, set: &dyn Fn(&mut Filter)| {
        let mut filter = Filter::default();
        set(&mut filter);
        for limit in [1, 5, 100] {
            let found = listed(&scene, &scene.ops, &filter, limit).await;
            assert!(found.is_sorted(), "{found:?}");
            assert_eq!(found.len(), expected, "{filter:?}");
        }
    };
    check(12, &|_| {}).await;
    check(6, &|it| it.name = Some("refund".to_owned())).await;
    check(0, &|it| it.name = Some("Refund".to_owned())).await;
    check(6, &|it| it.version = Some(2)).await;
    check(0, &|it| it.version = Some(u32::MAX)).await;
    check(9, &|it| it.state = Some(State::Running)).await;
    for state in [State::NeedsAttention, State::Completed, State::Failed] {
        check(1, &|it| it.state = Some(state)).await;
    }
    check(6, &|it| it.after = Some("s05".to_owned())).await;
    check(6, &|it| it.after = Some("s05x".to_owned())).await;
    check(3, &|it| {
        (it.name, it.version) = (Some("checkout".to_owned()), Some(1));
    })
    .await;
    check(2, &|it| {
        (it.name, it.state) = (Some("checkout".to_owned()), Some(State::Running));
        it.version = Some(2);
        it.after = Some("s06".to_owned());
    })
    .await;
}

/// A value of a filter, or an id, is never interpreted.
pub async fn a_hostile_filter_of_sagas_finds_nothing<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.start_sagas([new_saga("s1", None)]).await;
    let mut words = hostile();
    words.extend(["%", "*", "checkout\0"].map(str::to_owned));
    for word in words {
        let by_name = Filter {
            name: Some(word.clone()),
            ..Filter::default()
        };
        let found = listed(&scene, &scene.ops, &by_name, 5).await;
        assert!(found.is_empty(), "{found:?}");
        let after = Filter {
            after: Some(word.clone()),
            ..Filter::default()
        };
        let page = scene.admin.list_sagas(&scene.ops, &after, 5).await.must();
        assert_eq!(page.items.len(), usize::from(*word < *"s1"), "{word:?}");
        check_missing(&scene.admin.look_at_saga(&scene.ops, &word).await);
        let close = Decision::Close;
        let decided = scene.admin.decide(&scene.ops, &word, 1, &close, "why");
        check_missing(&decided.await);
    }
}

/// A single saga is read with its steps; a list contains no steps and no input.
pub async fn a_single_saga_is_read_with_its_steps<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let saga = NewSaga {
        input: Bytes::from_static(b"{\"order\":1}"),
        ..new_saga("it's \"1\"", Some("a"))
    };
    scene.start_sagas([saga.clone()]).await;
    let steps = [
        step("reserve", Direction::Forward),
        open_step("pay", Direction::Forward),
    ];
    scene.put_saga(&saga.id, &steps, State::NeedsAttention).await;
    let look = scene.admin.look_at_saga(&scene.ops, &saga.id).await.must();
    assert_eq!((look.at, look.held()), (scene.now(), None));
    assert_eq!(look.saga.steps, steps);
    assert_eq!((&look.saga.input, &look.saga.kind), (&saga.input, &saga.kind));
    assert_eq!((&look.saga.tenant, &look.saga.id), (&saga.tenant, &saga.id));
    assert_eq!(look.saga.status.state, State::NeedsAttention);
    assert_eq!(look.saga.wake_at, None);
    let all = Filter::default();
    let page = scene.admin.list_sagas(&scene.ops, &all, 5).await.must();
    let [item] = page.items.as_slice() else {
        panic!("{page:?}");
    };
    assert!(item.saga.steps.is_empty() && item.saga.input.is_empty());
    assert_eq!(item.saga.epoch, look.saga.epoch);
}

/// The lease of the worker that holds a saga is shown until it has passed.
pub async fn the_lease_of_a_saga_is_shown<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.start_sagas([new_saga("s1", None)]).await;
    let look = async || {
        let look = scene.admin.look_at_saga(&scene.ops, "s1").await;
        look.must()
    };
    assert_eq!(look().await.held_until, None);
    let taken = scene.store().take_sagas(&[kind(1)], LEASE, 10).await.must();
    assert_eq!(look().await.held(), Some(scene.now().after(LEASE)));
    assert_eq!(look().await.saga.epoch, taken[0].epoch);
    scene.advance(LEASE).await;
    assert_eq!(look().await.held(), None);
}

/// Each decision changes the rows and the status, and the saga is due at once unless it has ended.
pub async fn each_decision_has_its_effect<S: AdminUnderTest>() {
    let within = Duration::from_mins(15);
    let (step, made) = ("pay".to_owned(), Bytes::from_static(b"{\"id\":7}"));
    for (decision, state, of_step) in [
        (Decision::Retry { within }, State::Running, StepState::Open),
        (Decision::Done { step: step.clone(), made: made.clone() }, State::Running, StepState::Done),
        (Decision::Refused { step: step.clone() }, State::Running, StepState::Refused),
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
        assert_eq!((line.action.as_str(), line.object.as_str()), ("decide", "saga s1"));
        assert_eq!(line.outcome, "done");
        assert_eq!(line.detail["reason"], "asked the bank");
        assert_eq!(line.detail["decision"], decision.as_str());
        assert!(!line.detail.to_string().contains("{\"id\""), "{line:?}");
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
        let decision = if number % 2 == 0 {
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
    let expected = if done % 2 == 0 { State::Failed } else { State::Running };
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

/// An operator of a tenant sees that tenant's sagas and decides about them.
pub async fn an_operator_of_a_tenant_has_its_own_sagas<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for (id, tenant) in [("s1", None), ("s2", Some("a")), ("s3", Some("b"))] {
        scene.saga_in_attention(id, tenant).await;
    }
    let (alice, all, close) = (&of("a"), Filter::default(), Decision::Close);
    assert_eq!(listed(&scene, &scene.ops, &all, 10).await, ["s1", "s2", "s3"]);
    assert_eq!(listed(&scene, alice, &all, 10).await, ["s2"]);
    for id in ["s1", "s3"] {
        let saga = scene.admin.look_at_saga(&scene.ops, id).await.must().saga;
        check_missing(&scene.admin.look_at_saga(alice, id).await);
        check_missing(&decide(&scene, alice, id, saga.epoch, &close).await);
        let after = scene.admin.look_at_saga(&scene.ops, id).await.must().saga;
        assert_eq!(after, saga);
    }
    let own = scene.admin.look_at_saga(alice, "s2").await.must().saga;
    decide(&scene, alice, "s2", own.epoch, &close).await.must();
}

/// The pages of a tenant omit none of its sagas, and their cursors name no saga of another tenant:
/// an id is a name that a service has chosen.
pub async fn the_pages_of_a_tenant_name_no_saga_of_another<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (own, others) = (12, 5_500);
    let saga = |number: usize, name: &str, tenant: &str| NewSaga {
        kind: Kind {
            name: name.to_owned(),
            version: 1,
        },
        ..new_saga(&format!("{tenant}-{number:04}"), Some(&tenant[..1]))
    };
    let hers = (0..own).map(|number| {
        // Half of them are before those of the other tenant, half after them.
        let prefix = if number < own / 2 { "a" } else { "az" };
        saga(number, ["checkout", "refund"][number % 2], prefix)
    });
    let hers: Vec<NewSaga> = hers
        .map(|it| NewSaga { id: it.id.replace("az", "c"), ..it })
        .collect();
    scene.start_sagas(hers).await;
    scene
        .start_sagas((0..others).map(|number| saga(number, "checkout", "b")))
        .await;
    for (limit, name, count) in [(5, None, own), (50, None, own), (3, Some("refund"), own / 2)] {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let filter = Filter {
                name: name.map(str::to_owned),
                after,
                ..Filter::default()
            };
            let page = scene.admin.list_sagas(&of("a"), &filter, limit).await.must();
            seen.extend(page.items.into_iter().map(|look| look.saga.id));
            after = page.next;
            let Some(after) = &after else { break };
            assert!(!after.starts_with('b'), "the cursor is {after}");
        }
        assert_eq!(seen.len(), count, "{seen:?}");
    }
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

/// A step whose remote system was called, with an unknown outcome.
fn open_step(name: &str, direction: Direction) -> StepRecord {
    StepRecord {
        state: StepState::Open,
        provider_key: Some("key".to_owned()),
        made: Bytes::new(),
        ended_at: None,
        ..step(name, direction)
    }
}

async fn decide<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    id: &str,
    epoch: i64,
    decision: &Decision,
) -> Result<(), AdminError> {
    scene.admin.decide(actor, id, epoch, decision, "why").await
}

/// The ids of the sagas that match a filter.
async fn listed<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    filter: &Filter,
    limit: usize,
) -> Vec<String> {
    let all = pages(limit, async |after: Option<String>| {
        let filter = Filter {
            after: after.or_else(|| filter.after.clone()),
            ..filter.clone()
        };
        scene.admin.list_sagas(actor, &filter, limit).await
    });
    let ids = |look: SagaLook| look.saga.id;
    all.await.into_iter().map(ids).collect()
}
