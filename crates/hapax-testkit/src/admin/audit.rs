//! Conformance tests of the audit log: what is written, by whom, and in which transaction.

use hapax::{
    admin::{Actor, AuditEntry, AuditFilter, EventFilter, JobFilter, JobOptions},
    saga::Decision,
};
use serde_json::json;

use super::{
    AdminUnderTest, Table,
    checks::{Must, check_missing, check_store_failed, hostile, pages},
    scene::{OPERATION, Scene, line, of},
};

/// Entries are listed by every field of the filter, the newest first.
pub async fn every_field_of_the_filter_selects_entries<S: AdminUnderTest>() {
    let scene = some_acts::<S>().await;
    check(&scene, 5, |_| {}).await;
    check(&scene, 4, |it| it.actor = Some("ops".to_owned())).await;
    check(&scene, 0, |it| it.actor = Some("Ops".to_owned())).await;
    check(&scene, 2, |it| it.action = Some("create".to_owned())).await;
    check(&scene, 3, |it| {
        it.object = Some("destination two".to_owned());
    })
    .await;
    check(&scene, 1, |it| {
        (it.actor, it.action) = (Some("ops".to_owned()), Some("create".to_owned()));
        it.object = Some("destination one".to_owned());
    })
    .await;
    let mut words = hostile();
    words.extend(["", "%", "ops\0"].map(str::to_owned));
    for word in words {
        let word = Some(word);
        check(&scene, 0, |it| it.actor.clone_from(&word)).await;
        check(&scene, 0, |it| it.action.clone_from(&word)).await;
        check(&scene, 0, |it| it.object.clone_from(&word)).await;
    }
}

/// An entry says who did what to which object, and how it ended.
pub async fn an_entry_says_who_did_what<S: AdminUnderTest>() {
    let scene = some_acts::<S>().await;
    let log = scene.log().await;
    assert!(log.is_sorted_by(|one, next| one.id < next.id && one.at <= next.at));
    let said: Vec<_> = log
        .iter()
        .map(|it| (it.actor.as_str(), it.action.as_str(), it.outcome.as_str()))
        .collect();
    let expected = [
        ("ops", "create", "done"),
        ("a", "create", "done"),
        ("ops", "pause", "done"),
        ("ops", "pause", "nothing"),
        ("ops", "resume", "nothing"),
    ];
    assert_eq!(said, expected);
    assert_eq!(log[0].object, "destination one");
    assert_eq!(
        (&log[0].tenant, log[1].tenant.as_deref()),
        (&None, Some("a"))
    );
}

/// The reason of an operator is in the details of every operation, also if its own reason is asked
/// for.
pub async fn the_reason_of_an_operator_is_in_the_details<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let why = "it's \"ticket\" 7\0\n";
    let ops = Actor::new("ops").because(why);
    let at = scene.emit("order.created", None, 2).await;
    scene.pass("a", &at).await;
    let admin = &scene.admin;
    admin.create_destination(&ops, "b", "{}", None).await.must();
    admin.pause_destination(&ops, "b").await.must();
    admin.replay_dead_letter(&ops, "a", at[0]).await.must();
    let discarded = admin.discard_dead_letter(&ops, "a", at[1], "no such shop");
    discarded.await.must();
    let log = scene.log().await;
    for line in &log[..3] {
        let reason = line.detail["reason"].as_str().expect("there is a reason");
        // A database may not be able to store a NUL.
        assert!(reason.starts_with("it's \"ticket\" 7"), "{line:?}");
    }
    assert_eq!(log[3].detail["reason"], "no such shop");
}

/// An operation that changes nothing in the store has an entry all the same.
pub async fn an_operation_that_changes_nothing_is_recorded<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let hers = of("a").because("is it up?");
    let detail = json!({"event_id": "e"});
    let recorded = scene.admin.record(&hers, "test", "destination b", &detail);
    recorded.await.must();
    let log = scene.log().await;
    let [entry] = &log[..] else {
        panic!("there is one entry: {log:?}");
    };
    let said = (entry.actor.as_str(), entry.tenant.as_deref());
    assert_eq!(said, ("a", Some("a")));
    assert_eq!(
        (entry.action.as_str(), entry.object.as_str()),
        ("test", "destination b")
    );
    assert_eq!(entry.outcome, "done");
    let expected = json!({"event_id": "e", "reason": "is it up?"});
    assert_eq!(entry.detail, expected);
    scene.break_table(Table::AuditLog).await;
    check_store_failed(&scene.admin.record(&hers, "test", "b", &detail).await);
    scene.mend(Table::AuditLog).await;
}

/// An operator's name is stored as it is.
pub async fn a_hostile_name_of_an_operator_is_stored<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.pass("a", &[]).await;
    for (number, name) in ["it's", "\"; --", "é\u{202e}", "%", ""].iter().enumerate() {
        let ops = Actor::new(*name);
        scene.admin.pause_destination(&ops, "a").await.must();
        let log = scene.log().await;
        assert_eq!((log.len(), log[number].actor.as_str()), (number + 1, *name));
    }
    // A database may not be able to store a NUL; it must not fail.
    let ops = Actor::new("a\0b");
    scene.admin.pause_destination(&ops, "a").await.must();
}

/// An operator of a tenant sees the entries of that tenant's operators.
pub async fn an_operator_of_a_tenant_sees_its_own_entries<S: AdminUnderTest>() {
    let scene = some_acts::<S>().await;
    let list = async |actor: &Actor, filter: &AuditFilter| {
        pages(1, async |before: Option<String>| {
            let before = before.as_deref();
            scene.admin.audit_log(actor, filter, before, 1).await
        })
        .await
    };
    let hers = list(&of("a"), &AuditFilter::default()).await;
    assert_eq!(hers.len(), 1);
    assert_eq!(
        (hers[0].actor.as_str(), hers[0].object.as_str()),
        ("a", "destination two")
    );
    let by_ops = AuditFilter {
        actor: Some("ops".to_owned()),
        ..AuditFilter::default()
    };
    assert!(list(&of("a"), &by_ops).await.is_empty());
    assert!(list(&of("b"), &AuditFilter::default()).await.is_empty());
}

/// An operation that fails leaves no entry.
pub async fn an_operation_that_fails_leaves_no_entry<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    scene.break_table(Table::Declarations).await;
    check_store_failed(&admin.create_destination(ops, "b", "{}", None).await);
    check_store_failed(&admin.pause_destination(ops, "a").await);
    check_store_failed(&admin.remove_destination(ops, "a").await);
    scene.mend(Table::Declarations).await;
    scene.break_table(Table::Deliveries).await;
    check_store_failed(&admin.replay_dead_letter(ops, "a", at[0]).await);
    check_store_failed(&admin.edit_dead_letter(ops, "a", at[0], "{}").await);
    check_store_failed(&admin.discard_dead_letter(ops, "a", at[0], "why").await);
    scene.mend(Table::Deliveries).await;
    scene.break_table(Table::Jobs).await;
    let (all, options) = (EventFilter::default(), JobOptions::default());
    let job = admin.start_dead_letter_job(ops, "a", &all, None, &options);
    check_store_failed(&job.await);
    // A removal is a declaration and a job.
    check_store_failed(&admin.remove_destination(ops, "a").await);
    scene.mend(Table::Jobs).await;
    assert!(scene.acts().await.is_empty());
    check_missing(&admin.declaration(ops, "a").await);
    assert_eq!(scene.positions_in("a", "dead").await, at);
    admin.replay_dead_letter(ops, "a", at[0]).await.must();
    assert_eq!(scene.acts().await, [line("replay", "done")]);
}

/// An operation whose entry cannot be written has no effect.
pub async fn an_operation_whose_entry_cannot_be_written_has_no_effect<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let at = scene.emit("order.created", None, 1).await;
    scene.pass("a", &at).await;
    let declared = admin.create_destination(ops, "b", "{}", None).await.must();
    let (all, options) = (EventFilter::default(), JobOptions::default());
    let job = admin.start_dead_letter_job(ops, "a", &all, None, &options);
    let job = job.await.must();
    scene.complete("alice", "k").await;
    let key = admin.key(ops, None, OPERATION, "k").await.must();
    let saga = scene.saga_in_attention("s1", None).await;
    let before = scene.log().await;
    scene.break_table(Table::AuditLog).await;
    check_store_failed(&admin.create_destination(ops, "c", "{}", None).await);
    let changed = admin.change_destination(ops, "b", declared.version, "{}", None);
    check_store_failed(&changed.await);
    check_store_failed(&admin.pause_destination(ops, "b").await);
    check_store_failed(&admin.resume_destination(ops, "b").await);
    check_store_failed(&admin.remove_destination(ops, "b").await);
    check_store_failed(&admin.replay_dead_letter(ops, "a", at[0]).await);
    check_store_failed(&admin.edit_dead_letter(ops, "a", at[0], "{}").await);
    check_store_failed(&admin.discard_dead_letter(ops, "a", at[0], "why").await);
    let started = admin.start_dead_letter_job(ops, "a", &all, None, &options);
    check_store_failed(&started.await);
    let started = admin.start_event_job(ops, "a", &all, None, &options);
    check_store_failed(&started.await);
    check_store_failed(&admin.cancel_job(ops, job.id).await);
    check_store_failed(&scene.purge(ops, None, "k", "why").await);
    let close = Decision::Close;
    check_store_failed(&admin.decide(ops, "s1", saga.epoch, &close, "why").await);
    scene.mend(Table::AuditLog).await;
    assert_eq!(scene.log().await, before);
    check_missing(&admin.declaration(ops, "c").await);
    assert_eq!(admin.declaration(ops, "b").await.must(), declared);
    assert_eq!(scene.positions_in("a", "dead").await, at);
    let all = JobFilter::default();
    let jobs = admin.jobs(ops, &all, None, 10);
    assert_eq!(jobs.await.must().items, [job]);
    let left = admin.key(ops, None, OPERATION, "k").await.must();
    assert_eq!(left.version, key.version);
    let left = admin.look_at_saga(ops, "s1").await.must().saga;
    assert_eq!((left.status, left.wake_at), (saga.status, None));
    let decided = admin.decide(ops, "s1", left.epoch, &close, "why");
    decided.await.must();
}

/// Five acts of two operators on two destinations.
async fn some_acts<S: AdminUnderTest>() -> Scene<S> {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    admin
        .create_destination(ops, "one", "{}", None)
        .await
        .must();
    let spec = r#"{"tenant":"a"}"#;
    let hers = of("a");
    let created = admin.create_destination(&hers, "two", spec, None);
    created.await.must();
    assert!(admin.pause_destination(ops, "two").await.must());
    assert!(!admin.pause_destination(ops, "two").await.must());
    assert!(!admin.resume_destination(ops, "one").await.must());
    scene
}

async fn check<S: AdminUnderTest>(
    scene: &Scene<S>,
    expected: usize,
    set: impl FnOnce(&mut AuditFilter),
) {
    let mut filter = AuditFilter::default();
    set(&mut filter);
    let found: Vec<AuditEntry> = pages(2, async |before: Option<String>| {
        let before = before.as_deref();
        scene.admin.audit_log(&scene.ops, &filter, before, 2).await
    })
    .await;
    assert!(found.is_sorted_by(|one, next| one.id > next.id));
    assert_eq!(found.len(), expected, "{}", super::checks::short(&filter));
}
