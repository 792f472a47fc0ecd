//! Operators' decisions about sagas: the decision and its log line are one transaction, and an
//! actor sees only the sagas of its tenant.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    admin::{Actor, AdminError, AuditAdmin as _, AuditFilter, SagaAdmin as _},
    event::Headers,
    key::Tenant,
    saga::{Decision, Definition, Filter, Owned, SagaRecord, SagaStatus, State},
    store::{Keys as _, SagaRecords as _, SagaRows as _, Sagas as _, StoreError, Transaction as _},
};
use hapax_postgres::{Postgres, Tx};

use super::scene::Scene;

const LEASE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_decision_and_its_line_are_one_transaction() {
    let scene = Scene::new().await;
    let store = scene.store();
    asking(store, "s1", None).await;
    let spoil = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE 'no'; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON hapax.audit_log
        FOR EACH ROW EXECUTE FUNCTION refuse()";
    scene.fixture.plain.batch_execute(spoil).await.unwrap();
    let result = decide(store, &scene.ops, "s1").await;
    assert!(matches!(result, Err(AdminError::Store(_))), "{result:?}");
    let saga = store.saga("s1").await.unwrap().unwrap();
    assert_eq!(saga.status.state, State::NeedsAttention);
    // No worker owns the saga, and it still needs attention.
    assert_eq!(saga.wake_at, None);
    let mend = "DROP TRIGGER refuse ON hapax.audit_log";
    scene.fixture.plain.batch_execute(mend).await.unwrap();
    decide(store, &scene.ops, "s1").await.unwrap();
    let log = store
        .audit_log(&scene.ops, &AuditFilter::default(), None, 10)
        .await;
    let log = log.unwrap().items;
    assert_eq!(log.len(), 1);
    assert_eq!(
        (log[0].object.as_str(), log[0].outcome.as_str()),
        ("saga s1", "done")
    );
    scene.fixture.idle().await;
}

#[tokio::test]
async fn a_saga_that_somebody_has_had_since_it_was_looked_at_is_not_decided_about() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    asking(store, "s1", None).await;
    let seen = store.look_at_saga(ops, "s1").await.unwrap().saga.epoch;
    let decide = async |epoch: i64, decision: &Decision| {
        store.decide(ops, "s1", epoch, decision, "asked them").await
    };
    // Another operator has the saga retried, and it needs attention again.
    let within = Duration::from_mins(15);
    decide(seen, &Decision::Retry { within }).await.unwrap();
    let attention = "UPDATE hapax.saga SET state = 'needs_attention', wake_at = NULL";
    scene.fixture.plain.batch_execute(attention).await.unwrap();
    let outcome = decide(seen, &Decision::Close).await;
    assert!(
        matches!(&outcome, Err(AdminError::Conflict { what }) if what.contains("look at it again")),
        "{outcome:?}"
    );
    let look = store.look_at_saga(ops, "s1").await.unwrap();
    assert_eq!(look.saga.status.state, State::NeedsAttention);
    assert_eq!(
        look.saga.epoch,
        seen + 1,
        "a rejected decision has changed the epoch"
    );
    decide(look.saga.epoch, &Decision::Close).await.unwrap();
    let acts: Vec<_> = scene.acts().await.into_iter().map(|act| act.1).collect();
    assert_eq!(acts, ["done", "refused", "done"]);
}

/// Several operators decide concurrently about the same version: one decision is applied.
#[tokio::test]
async fn of_many_decisions_about_one_epoch_at_once_one_is_carried_out() {
    let scene = Scene::new().await;
    let (store, ops) = (scene.store(), &scene.ops);
    asking(store, "s1", None).await;
    let seen = store.look_at_saga(ops, "s1").await.unwrap().saga.epoch;
    let decided = (0..10).map(|_| {
        let (store, ops) = (store.clone(), ops.clone());
        let within = Duration::from_mins(15);
        tokio::spawn(async move {
            let retry = Decision::Retry { within };
            store.decide(&ops, "s1", seen, &retry, "why").await
        })
    });
    let decided = futures_util::future::join_all(decided).await;
    let done = decided.iter().filter(|it| matches!(it, Ok(Ok(())))).count();
    assert_eq!(done, 1, "{decided:?}");
    let acts = scene.acts().await;
    assert_eq!(acts.iter().filter(|act| act.1 == "done").count(), 1);
    let saga = store.look_at_saga(ops, "s1").await.unwrap().saga;
    assert_eq!(saga.status.state, State::Running);
}

#[tokio::test]
async fn a_saga_that_was_decided_about_is_due_and_its_worker_is_fenced() {
    let scene = Scene::new().await;
    let store = scene.store();
    let saga = asking(store, "s1", None).await;
    decide(store, &scene.ops, "s1").await.unwrap();
    let fenced = store.lock_saga(&Owned::of(&saga), LEASE).await;
    assert!(matches!(fenced, Err(StoreError::Fenced)), "{fenced:?}");
    let kinds = [checkout().kind().clone()];
    let taken = store.take_sagas(&kinds, LEASE, 10).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].status.state, State::Running);
}

#[tokio::test]
async fn an_actor_of_a_tenant_sees_and_decides_about_its_own_sagas() {
    let scene = Scene::new().await;
    let store = scene.store();
    for (id, tenant) in [("s1", None), ("s2", Some("a")), ("s3", Some("b"))] {
        asking(store, id, tenant).await;
    }
    let alice = Actor::new("alice").of(Tenant::new("a").unwrap());
    let seen = async |actor: &Actor| {
        let page = store.list_sagas(actor, &Filter::default(), 10).await;
        let items = page.unwrap().items.into_iter();
        items.map(|look| look.saga.id).collect::<Vec<_>>()
    };
    assert_eq!(seen(&scene.ops).await, ["s1", "s2", "s3"]);
    assert_eq!(seen(&alice).await, ["s2"]);
    for id in ["s1", "s3", "s4"] {
        let outcome = store.look_at_saga(&alice, id).await;
        assert!(
            matches!(outcome, Err(AdminError::NotFound { .. })),
            "{outcome:?}"
        );
        let outcome = decide(store, &alice, id).await;
        assert!(
            matches!(outcome, Err(AdminError::NotFound { .. })),
            "{outcome:?}"
        );
    }
    decide(store, &alice, "s2").await.unwrap();
}

/// A saga's id is a name chosen by the service. The cursor of a tenant's page must not contain the
/// id of another tenant's saga.
#[tokio::test]
async fn the_pages_of_a_tenant_end_at_its_own_sagas_and_leave_none_out() {
    let scene = Scene::new().await;
    let (own, others) = (12, 6_000);
    let plant = format!(
        "INSERT INTO hapax.saga
             (id, name, version, tenant, input, headers, state, deadline_at, created_at)
         SELECT tenant || '-' || to_char(number, 'FM0000'), name, 1, tenant, '', '{{}}', state, now(), now()
         FROM (VALUES ('a', {own}), ('b', {others})) AS of (tenant, count),
              LATERAL generate_series(1, count) AS number,
              LATERAL (SELECT (ARRAY['running', 'failed'])[number % 2 + 1] AS state,
                              (ARRAY['checkout', 'refund'])[number % 3 / 2 + 1] AS name) AS row;
         UPDATE hapax.saga SET id = 'c' || substr(id, 2) WHERE tenant = 'a' AND id > 'a-0006'"
    );
    scene.fixture.plain.batch_execute(&plant).await.unwrap();
    let alice = Actor::new("alice").of(Tenant::new("a").unwrap());
    for (limit, name, count) in [
        (5, None, own),
        (50, None, own),
        (3, Some("refund"), own / 3),
    ] {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let filter = Filter {
                name: name.map(str::to_owned),
                after,
                ..Filter::default()
            };
            let page = scene.store().list_sagas(&alice, &filter, limit).await;
            let page = page.unwrap();
            seen.extend(page.items.into_iter().map(|look| look.saga.id));
            after = page.next;
            let Some(after) = &after else { break };
            assert!(
                !after.starts_with('b'),
                "the cursor is another tenant's saga, {after}"
            );
        }
        assert_eq!(seen.len(), count, "{seen:?}");
    }
}

fn checkout() -> Definition<Tx> {
    Definition::new("checkout", 1)
}

async fn decide(store: &Postgres, actor: &Actor, id: &str) -> Result<(), AdminError> {
    let within = Duration::from_mins(15);
    let epoch = match store.look_at_saga(actor, id).await {
        Ok(look) => look.saga.epoch,
        Err(_) => 0,
    };
    store
        .decide(
            actor,
            id,
            epoch,
            &Decision::Retry { within },
            "it is well again",
        )
        .await
}

/// A saga that needs attention, as its worker gave it back.
async fn asking(store: &Postgres, id: &str, tenant: Option<&str>) -> SagaRecord {
    let tenant = tenant.map(|name| Tenant::new(name).unwrap());
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let new = checkout().begin(id, tenant, Bytes::new());
    tx.start_saga(&new).await.unwrap();
    tx.commit().await.unwrap();
    let saga = store.seize_saga(id, LEASE).await.unwrap().unwrap();
    let owned = Owned::of(&saga);
    let status = SagaStatus {
        state: State::NeedsAttention,
        ..saga.status.clone()
    };
    let mut tx = store.lock_saga(&owned, LEASE).await.unwrap().tx;
    tx.write_status(&owned, &status).await.unwrap();
    tx.commit().await.unwrap();
    let given = store.give_back_saga(&owned, Duration::ZERO, "a person", 0);
    given.await.unwrap();
    saga
}
