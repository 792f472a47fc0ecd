//! Conformance tests of destinations: their declaration, changes and pauses.

use std::time::Duration;

use hapax::{
    admin::{Actor, Declared},
    delivery::Settlement,
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid, check_missing, check_one_done, hostile, pages},
    scene::{Scene, line, of},
};
use crate::store::steps::settlement;

const SPEC: &str = r#"{"sink":{"webhook":{"url":"https://example.com/it's"}}}"#;

/// A declaration reads back as it was written, byte for byte, and each change has a higher version.
pub async fn a_declaration_reads_back_as_it_was_written<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let sealed = b"\x00\xff sealed".as_slice();
    let created = admin.create_destination(ops, "orders", SPEC, Some(sealed));
    let created = created.await.must();
    assert_eq!(created.name, "orders");
    assert_eq!(created.spec.as_deref(), Some(SPEC));
    assert_eq!(created.sealed.as_deref(), Some(sealed));
    assert_eq!(created.changed_by, "ops");
    assert_eq!(
        (created.paused_at, created.paused_by.as_ref()),
        (None, None)
    );
    assert_eq!((created.removed_at, created.purged_at), (None, None));
    assert_eq!(admin.declaration(ops, "orders").await.must(), created);
    let spec = "{ \"partitions\": 1 , \"note\": \"é\" }";
    let other = Actor::new("other");
    let changed = admin.change_destination(&other, "orders", created.version, spec, None);
    let changed = changed.await.must();
    assert!(changed.version > created.version);
    assert_eq!(
        (changed.spec.as_deref(), &changed.sealed),
        (Some(spec), &None)
    );
    assert_eq!(changed.changed_by, "other");
    assert_eq!(changed.created_at, created.created_at);
    assert_eq!(admin.declaration(ops, "orders").await.must(), changed);
    let log = scene.log().await;
    assert_eq!(log[0].object, "destination orders");
    assert_eq!(
        scene.acts().await,
        [line("create", "done"), line("change", "done")]
    );
    // Secrets are not in the log.
    assert!(!format!("{log:?}").contains("sealed"), "{log:?}");
}

/// A destination is paused and resumed once; doing it again does nothing and says so.
pub async fn a_destination_is_paused_and_resumed_once<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let created = admin.create_destination(ops, "a", SPEC, None).await.must();
    assert!(admin.pause_destination(ops, "a").await.must());
    let paused = admin.declaration(ops, "a").await.must();
    assert_eq!(paused.paused_by.as_deref(), Some("ops"));
    assert!(paused.paused_at.is_some() && paused.version > created.version);
    assert!(
        !admin
            .pause_destination(&Actor::new("other"), "a")
            .await
            .must()
    );
    assert_eq!(admin.declaration(ops, "a").await.must(), paused);
    assert!(admin.resume_destination(ops, "a").await.must());
    assert!(!admin.resume_destination(ops, "a").await.must());
    let resumed = admin.declaration(ops, "a").await.must();
    assert_eq!((resumed.paused_at, resumed.paused_by), (None, None));
    assert!(resumed.version > paused.version);
    let acts = [
        line("create", "done"),
        line("pause", "done"),
        line("pause", "nothing"),
        line("resume", "done"),
        line("resume", "nothing"),
    ];
    assert_eq!(scene.acts().await, acts);
}

/// A change of a paused destination leaves it paused.
pub async fn a_change_leaves_a_paused_destination_paused<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    admin.create_destination(ops, "a", SPEC, None).await.must();
    admin.pause_destination(ops, "a").await.must();
    let paused = admin.declaration(ops, "a").await.must();
    let changed = admin.change_destination(ops, "a", paused.version, "{}", None);
    assert_eq!(changed.await.must().paused_at, paused.paused_at);
}

/// Declarations are listed by name, in pages.
pub async fn declarations_are_listed_by_name<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut names = ["b", "a", "it's", "é", "A", "%", "a b", "a\"", "10"];
    for name in names {
        let created = scene.admin.create_destination(&scene.ops, name, SPEC, None);
        created.await.must();
    }
    names.sort_unstable();
    for limit in [1, 2, 100] {
        let all = listed(&scene, &scene.ops, limit).await;
        let mut found: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
        // The order of names depends on the database, but the pages are whole.
        found.sort_unstable();
        assert_eq!(found, names);
    }
    for name in names {
        let known = scene.admin.declaration(&scene.ops, name).await.must();
        assert_eq!(known.name, name);
    }
}

/// What is not a name, not a JSON object, or another number of partitions, is rejected.
pub async fn what_cannot_be_declared_is_rejected<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    for name in ["", "a/b", "/", "a\0b", &"a".repeat(256), &"é".repeat(128)] {
        let created = admin.create_destination(ops, name, SPEC, None).await;
        check_invalid(&created, "name");
    }
    for spec in ["", "7", "[]", "{", "null", "{} {}", "\0"] {
        let created = admin.create_destination(ops, "a", spec, None).await;
        check_invalid(&created, "spec");
    }
    assert!(scene.acts().await.is_empty());
    let spec = r#"{"partitions":4}"#;
    let created = admin.create_destination(ops, "a", spec, None).await.must();
    for spec in [r#"{"partitions":2}"#, "{}"] {
        let changed = admin.change_destination(ops, "a", created.version, spec, None);
        check_invalid(&changed.await, "partitions");
    }
    check_conflict(&admin.create_destination(ops, "a", SPEC, None).await);
    assert_eq!(admin.declaration(ops, "a").await.must(), created);
    let acts = [line("create", "done"), line("create", "refused")];
    assert_eq!(scene.acts().await, acts);
    let longest = "a".repeat(255);
    admin
        .create_destination(ops, &longest, SPEC, None)
        .await
        .must();
}

/// Whatever a specification contains, the tenant in it is the same for every operation: that of the
/// last member with this name. A store may reject a NUL that its database cannot search.
pub async fn an_odd_specification_belongs_to_one_tenant<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops, alice) = (&scene.admin, &scene.ops, &of("a"));
    let mut own = Vec::new();
    let mut others = Vec::new();
    for (name, spec, is_own) in [
        ("twice", r#"{"tenant":"b","tenant":"a"}"#, true),
        ("escaped", r#"{"\u0074enant":"\u0061"}"#, true),
        ("inner", r#"{"tenant":"a","inner":{"tenant":"b"}}"#, true),
        ("nul", r#"{"tenant":"a","note":"\u0000"}"#, true),
        ("name", r#"{"tenant":"a","\u0000":1}"#, true),
        ("foreign", r#"{"tenant":"a","tenant":"b"}"#, false),
        ("null", r#"{"tenant":"a","tenant":null}"#, false),
        ("nobody", r#"{"tenant":"a\u0000"}"#, false),
        ("list", r#"{"tenant":["a"]}"#, false),
    ] {
        match admin.create_destination(ops, name, spec, None).await {
            Ok(created) => assert_eq!(created.spec.as_deref(), Some(spec)),
            rejected => {
                assert!(spec.contains("u0000"), "{name}");
                check_invalid(&rejected, "spec");
                continue;
            }
        }
        scene.pass(name, &[]).await;
        let known = if is_own { &mut own } else { &mut others };
        known.push(name.to_owned());
    }
    own.sort_unstable();
    let names = |it: Declared| it.name;
    let mut found: Vec<String> = listed(&scene, alice, 10)
        .await
        .into_iter()
        .map(names)
        .collect();
    found.sort_unstable();
    assert_eq!(found, own);
    let overview = admin.overview(alice).await.must();
    let shown = overview.destinations.into_iter().map(|it| it.name);
    let mut shown: Vec<String> = shown.collect();
    shown.sort_unstable();
    assert_eq!(shown, own);
    for name in &own {
        admin.declaration(alice, name).await.must();
    }
    for name in &others {
        check_missing(&admin.declaration(alice, name).await);
    }
    let all = admin.overview(ops).await.must().destinations.len();
    assert_eq!(all, own.len() + others.len());
}

/// A destination that is neither declared nor opened does not exist.
pub async fn an_unknown_destination_does_not_exist<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    admin.create_destination(ops, "a", SPEC, None).await.must();
    for name in ["b", "A", "%", "a'; --", "\"a\""] {
        check_missing(&admin.declaration(ops, name).await);
        check_missing(&admin.pause_destination(ops, name).await);
        check_missing(&admin.resume_destination(ops, name).await);
        check_missing(&admin.remove_destination(ops, name).await);
        let changed = admin.change_destination(ops, name, 1, SPEC, None).await;
        check_missing(&changed);
        assert!(admin.partitions(Some(name)).await.must().is_empty());
    }
    for name in hostile() {
        check_missing(&admin.declaration(ops, &name).await);
        assert!(admin.partitions(Some(&name)).await.must().is_empty());
    }
    assert_eq!(listed(&scene, ops, 10).await.len(), 1);
}

/// Of operators who act on one destination at the same time, in two processes, one succeeds.
pub async fn of_changes_of_one_version_at_once_one_is_done<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (one, two) = (&scene.admin, &scene.beside().await);
    let (ops, other) = (&scene.ops, &Actor::new("other"));
    for name in ["a", "b", "c"] {
        let created = tokio::join!(
            one.create_destination(ops, name, SPEC, None),
            two.create_destination(other, name, SPEC, None),
        );
        check_one_done(&[created.0, created.1]);
        let version = one.declaration(ops, name).await.must().version;
        let changed = tokio::join!(
            one.change_destination(ops, name, version, r#"{"by":"ops"}"#, None),
            two.change_destination(other, name, version, r#"{"by":"other"}"#, None),
        );
        let changed: [_; 2] = changed.into();
        let done = check_one_done(&changed);
        let known = one.declaration(ops, name).await.must();
        assert_eq!(changed[done].as_ref().must(), &known);
        let (paused, again) = tokio::join!(
            one.pause_destination(ops, name),
            two.pause_destination(other, name),
        );
        assert!(paused.must() != again.must(), "it was paused twice");
        let (removed, again) = tokio::join!(
            one.remove_destination(ops, name),
            two.remove_destination(other, name),
        );
        assert_eq!(removed.must().id, again.must().id);
        let removals = scene.log().await.into_iter();
        let removals = removals.filter(|line| line.action == "remove" && line.outcome == "done");
        let object = format!("destination {name}");
        assert_eq!(removals.filter(|line| line.object == object).count(), 1);
    }
}

/// A version that is not the last one is refused.
pub async fn a_change_of_another_version_is_refused<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let created = admin.create_destination(ops, "a", SPEC, None).await.must();
    admin.pause_destination(ops, "a").await.must();
    let paused = admin.declaration(ops, "a").await.must();
    for version in [created.version, i64::MIN, 0, paused.version + 1, i64::MAX] {
        let changed = admin
            .change_destination(ops, "a", version, "{}", None)
            .await;
        check_conflict(&changed);
    }
    assert_eq!(admin.declaration(ops, "a").await.must(), paused);
}

/// The partitions that a relay has opened are listed with the reason for which they are disabled.
pub async fn opened_partitions_are_listed_with_their_state<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    for partition in ["b", "a/1", "a/0", "ab"] {
        scene.pass(partition, &[]).await;
    }
    let names = async |name: Option<&str>| {
        let found = admin.partitions(name).await.must().into_iter();
        found.map(|it| it.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None).await, ["a/0", "a/1", "ab", "b"]);
    assert_eq!(names(Some("a")).await, ["a/0", "a/1"]);
    assert!(names(Some("a/0")).await.is_empty());
    assert!(!admin.resume_destination(ops, "a").await.must());
    scene.advance(Duration::from_secs(1)).await;
    disable(&scene, "a/1", "410 Gone").await;
    let found = admin.partitions(Some("a")).await.must();
    assert_eq!(
        (found[0].disabled_at, &found[0].disabled_reason),
        (None, &None)
    );
    assert_eq!(found[1].disabled_at, Some(scene.now()));
    assert_eq!(found[1].disabled_reason.as_deref(), Some("410 Gone"));
    // A disabled destination is resumed by a new version of its declaration, which relays notice.
    assert!(admin.resume_destination(ops, "a").await.must());
    let resumed = admin.declaration(ops, "a").await.must();
    assert_eq!((resumed.paused_at, resumed.spec), (None, None));
}

/// An operator of a tenant sees and changes the destinations of that tenant alone.
pub async fn an_operator_of_a_tenant_has_its_own_destinations<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops, alice) = (&scene.admin, &scene.ops, &of("a"));
    admin
        .create_destination(ops, "all", SPEC, None)
        .await
        .must();
    let spec = r#"{"tenant":"b"}"#;
    let his = admin
        .create_destination(ops, "his", spec, None)
        .await
        .must();
    scene.pass("filed", &[]).await;
    for spec in [SPEC, spec, r#"{"tenant":null}"#, r#"{"tenant":["a"]}"#] {
        let created = admin.create_destination(alice, "hers", spec, None).await;
        check_invalid(&created, "tenant");
    }
    let own = r#"{"tenant":"a"}"#;
    let hers = admin.create_destination(alice, "hers", own, None).await;
    let hers = hers.must();
    let names = listed(&scene, alice, 1).await.into_iter().map(|it| it.name);
    assert_eq!(names.collect::<Vec<_>>(), ["hers"]);
    for name in ["his", "all", "filed", "nobody"] {
        check_missing(&admin.declaration(alice, name).await);
        check_missing(&admin.pause_destination(alice, name).await);
        check_missing(&admin.resume_destination(alice, name).await);
        check_missing(&admin.remove_destination(alice, name).await);
        let stolen = admin.change_destination(alice, name, his.version, own, None);
        check_missing(&stolen.await);
    }
    assert_eq!(admin.declaration(ops, "his").await.must(), his);
    // She cannot give her destination away.
    let given = admin.change_destination(alice, "hers", hers.version, spec, None);
    check_invalid(&given.await, "tenant");
    assert!(admin.pause_destination(alice, "hers").await.must());
    assert!(admin.resume_destination(alice, "hers").await.must());
    let job = admin.remove_destination(alice, "hers").await.must();
    assert_eq!(admin.job(alice, job.id).await.must().id, job.id);
    check_missing(&admin.job(&of("b"), job.id).await);
}

/// Disables a partition, as its relay does.
pub(super) async fn disable<S: AdminUnderTest>(scene: &Scene<S>, partition: &str, reason: &str) {
    let epoch = scene.fixture.open(partition).await.epoch;
    let disabled = Settlement {
        disable: Some(reason.to_owned()),
        ..settlement(partition, epoch)
    };
    scene.fixture.settle(disabled).await;
}

pub(super) async fn listed<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    limit: usize,
) -> Vec<Declared> {
    pages(limit, async |after: Option<String>| {
        let after = after.as_deref();
        scene.admin.declarations(actor, after, limit).await
    })
    .await
}
