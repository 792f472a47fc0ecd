//! Conformance tests of sagas: lists by a filter, and single sagas.

use bytes::Bytes;
use hapax::{
    admin::{Actor, AdminError, SagaLook},
    saga::{Decision, Direction, Filter, Kind, NewSaga, State, StepRecord, StepState},
    store::Sagas,
};

use super::{
    AdminUnderTest,
    checks::{Must, check_missing, hostile, pages},
    scene::{LEASE, Scene, new_saga, of},
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
        kind: of_kind(
            ["checkout", "refund"][number % 2],
            if number < 6 { 1 } else { 2 },
        ),
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
        // The order of names depends on the database.
        assert!(page.items.len() <= 1 && page.next.is_none(), "{page:?}");
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
    scene
        .put_saga(&saga.id, &steps, State::NeedsAttention)
        .await;
    let look = scene.admin.look_at_saga(&scene.ops, &saga.id).await.must();
    assert_eq!((look.at, look.held()), (scene.now(), None));
    assert_eq!(look.saga.steps, steps);
    assert_eq!(
        (&look.saga.input, &look.saga.kind),
        (&saga.input, &saga.kind)
    );
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

/// An operator of a tenant sees that tenant's sagas and decides about them.
pub async fn an_operator_of_a_tenant_has_its_own_sagas<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    for (id, tenant) in [("s1", None), ("s2", Some("a")), ("s3", Some("b"))] {
        scene.saga_in_attention(id, tenant).await;
    }
    let (alice, all, close) = (&of("a"), Filter::default(), Decision::Close);
    assert_eq!(
        listed(&scene, &scene.ops, &all, 10).await,
        ["s1", "s2", "s3"]
    );
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
    let (own, others) = (12, 300);
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
        .map(|it| NewSaga {
            id: it.id.replace("az", "c"),
            ..it
        })
        .collect();
    scene.start_sagas(hers).await;
    let others = (0..others).map(|number| saga(number, "checkout", "b"));
    scene.start_sagas(others).await;
    for (limit, name, count) in [
        (5, None, own),
        (50, None, own),
        (3, Some("refund"), own / 2),
    ] {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let filter = Filter {
                name: name.map(str::to_owned),
                after,
                ..Filter::default()
            };
            let page = scene
                .admin
                .list_sagas(&of("a"), &filter, limit)
                .await
                .must();
            seen.extend(page.items.into_iter().map(|look| look.saga.id));
            after = page.next;
            let Some(after) = &after else { break };
            assert!(!after.starts_with('b'), "the cursor is {after}");
        }
        assert_eq!(seen.len(), count, "{seen:?}");
    }
}

/// A step whose remote system was called, with an unknown outcome.
pub(super) fn open_step(name: &str, direction: Direction) -> StepRecord {
    StepRecord {
        state: StepState::Open,
        provider_key: Some("key".to_owned()),
        made: Bytes::new(),
        ended_at: None,
        ..step(name, direction)
    }
}

/// Decides about a saga.
pub(super) async fn decide<S: AdminUnderTest>(
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
