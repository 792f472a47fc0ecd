//! Conformance tests of the index of destinations: declared in the database, configured, or opened.

use std::{collections::BTreeMap, sync::Arc};

use hapax::admin::{Actor, Cause, Configured, DestinationIndex, EventFilter};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid, check_missing, hostile, pages},
    destinations::disable,
    scene::{Scene, named, of},
};

/// The index lists a destination once, wherever it is known, with its state.
pub async fn the_index_lists_each_destination_once<S: AdminUnderTest>() {
    let (scene, index) = indexed::<S>().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    admin.pause_destination(ops, "stray").await.must();
    disable(&scene, "filed/1", "410 Gone").await;
    let all = index.list(ops).await.must();
    let said: Vec<_> = all
        .iter()
        .map(|it| (it.name.as_str(), it.declared_in, it.state))
        .collect();
    let expected = [
        ("all", "database", "active"),
        ("filed", "configuration", "disabled"),
        ("hers", "database", "active"),
        ("quiet", "configuration", "paused"),
        ("set", "database", "paused"),
        ("stray", "unknown", "paused"),
    ];
    assert_eq!(said, expected);
    assert_eq!(all[1].partitions, ["filed/0", "filed/1"]);
    assert_eq!(all[1].reason.as_deref(), Some("410 Gone"));
    assert_eq!(all[5].paused_by.as_deref(), Some("ops"));
    admin.remove_destination(ops, "all").await.must();
    let removing = index.get(ops, "all").await.must();
    assert_eq!(removing.state, "removing");
    for name in hostile() {
        check_missing(&index.get(ops, &name).await);
    }
}

/// An operator of a tenant sees its own destinations in the database alone.
pub async fn the_index_of_a_tenant_has_its_own_destinations<S: AdminUnderTest>() {
    let (scene, index) = indexed::<S>().await;
    let alice = of("a");
    let names = index.list(&alice).await.must().into_iter();
    assert_eq!(names.map(|it| it.name).collect::<Vec<_>>(), ["hers"]);
    for name in ["all", "filed", "quiet", "stray", "nobody"] {
        check_missing(&index.get(&alice, name).await);
        assert!(!index.is_own(&alice, name).await.must(), "{name}");
        let offered = index.offered(&alice, name, EventFilter::default());
        check_missing(&offered.await);
        check_missing(&index.resume(&alice, name).await);
    }
    assert!(index.is_own(&alice, "hers").await.must());
    assert!(!index.is_own(&scene.ops, "hers").await.must());
}

/// The progress of a destination is the sum over its partitions.
pub async fn the_progress_of_a_destination_is_counted<S: AdminUnderTest>() {
    let (scene, index) = indexed::<S>().await;
    let at = scene.emit("order.created", None, 3).await;
    for partition in ["filed/0", "filed/1"] {
        scene.pass(partition, &at[..2]).await;
    }
    let found = index.get_counted(&scene.ops, "filed").await.must();
    let counts = found.counts.expect("it is counted");
    assert_eq!((counts.dead, counts.parked, counts.backlog), (4, 0, 0));
    let found = index.get_counted(&scene.ops, "quiet").await.must();
    assert_eq!(found.counts, Some(hapax::admin::Counts::default()));
}

/// The events that a destination has not read are listed: as many as its backlog says, and no
/// others, however long the pages are.
pub async fn the_events_that_a_destination_has_not_read_are_listed<S: AdminUnderTest>() {
    let (scene, index) = indexed::<S>().await;
    let (ops, alice) = (&scene.ops, of("a"));
    let read = scene.emit("order.created", None, 3).await;
    for partition in ["filed/0", "filed/1", "hers"] {
        scene.pass(partition, &read[..1]).await;
    }
    let list = async |actor: &Actor, name: &str, filter: &EventFilter, limit: usize| {
        let unread = pages(limit, async |before: Option<String>| {
            let before = before.as_deref();
            index.unread(actor, name, filter, before, limit).await
        });
        let unread = unread.await.into_iter().map(|it| it.position);
        unread.collect::<Vec<i64>>()
    };
    let all = EventFilter::default();
    assert_eq!(list(ops, "filed", &all, 10).await, [0; 0]);
    let mut unread = scene.emit("order.created", Some("a"), 20).await;
    unread.extend(scene.emit("mail.sent", None, 3).await);
    unread.reverse();
    for limit in [1, 3, 8, 1_000] {
        assert_eq!(list(ops, "filed", &all, limit).await, unread);
    }
    let backlog = index.get_counted(ops, "hers").await.must().counts;
    assert_eq!(backlog.map(|it| it.backlog), Some(unread.len() as u64));
    let mails = EventFilter {
        kind: Some("mail.*".to_owned()),
        ..EventFilter::default()
    };
    assert_eq!(list(ops, "filed", &mails, 2).await, unread[..3]);
    // An operator of a tenant sees its own destinations and events alone.
    assert_eq!(list(&alice, "hers", &all, 10).await, unread[3..]);
    check_missing(&index.unread(&alice, "filed", &all, None, 10).await);
    check_missing(&index.unread(ops, "nobody", &all, None, 10).await);
    check_conflict(&index.unread(ops, "quiet", &all, None, 10).await);
    // One of two partitions reads: the events of the other one are left.
    scene.pass("filed/0", &[]).await;
    let left = list(ops, "filed", &all, 10).await.len();
    assert!(left < unread.len(), "{left} events are left");
    // A short page examines as many events as a long one.
    let mut read = 0;
    let short = pages(1, async |before: Option<String>| {
        read += 1;
        let before = before.as_deref();
        index.unread(ops, "filed", &all, before, 1).await
    });
    assert_eq!(short.await.len(), left);
    assert!(read <= left + 2, "{read} pages for {left} events");
    scene.pass("filed/1", &[]).await;
    assert_eq!(list(ops, "filed", &all, 10).await, [0; 0]);
    assert_eq!(list(ops, "hers", &all, 10).await, unread);
}

/// A job for a destination of a tenant takes that tenant's events alone.
pub async fn a_destination_of_a_tenant_is_offered_its_events<S: AdminUnderTest>() {
    let (scene, index) = indexed::<S>().await;
    let ops = &scene.ops;
    let offered = async |name: &str, filter: EventFilter| index.offered(ops, name, filter).await;
    let (filter, partitions) = offered("hers", EventFilter::default()).await.must();
    assert_eq!((filter.tenant, partitions), (Some(named("a")), Some(1)));
    let of_b = EventFilter {
        tenant: Some(named("b")),
        ..EventFilter::default()
    };
    check_invalid(&offered("hers", of_b.clone()).await, "tenant");
    let (filter, partitions) = offered("filed", of_b.clone()).await.must();
    assert_eq!((filter, partitions), (of_b.clone(), Some(2)));
    // Whose events it takes is not known.
    check_conflict(&offered("stray", of_b.clone()).await);
    check_missing(&offered("nobody", of_b).await);
}

/// What a setting pauses is reported, and not resumed by an operation.
pub async fn what_a_setting_pauses_is_reported_and_not_resumed<S: AdminUnderTest>() {
    let (scene, index) = indexed::<S>().await;
    let ops = &scene.ops;
    for name in ["quiet", "set"] {
        check_conflict(&index.resume(ops, name).await);
    }
    let stalled = index.stalled(ops).await.must();
    let paused: Vec<_> = stalled.iter().map(|it| (&it.what, &it.cause)).collect();
    let by = None;
    let is_paused = |name: &str| {
        let of_name = |it: &&(&hapax::admin::StalledItem, &Cause)| it.0.destination() == Some(name);
        paused.iter().find(of_name).map(|it| it.1.clone())
    };
    for name in ["quiet", "set"] {
        assert_eq!(is_paused(name), Some(Cause::Paused { by: by.clone() }));
    }
    assert_eq!(is_paused("filed"), None);
    let (_, both) = index.overview_and_stalled(ops).await.must();
    assert_eq!(both, stalled);
    assert!(index.stalled(&of("a")).await.must().is_empty());
}

/// Destinations that are declared in the database (`all`, `hers`, `set`, which is paused), configured
/// (`filed`, with two partitions, and `quiet`, which is paused), or only opened (`stray`).
async fn indexed<S: AdminUnderTest>() -> (Scene<S>, DestinationIndex) {
    let scene = Scene::<S>::new().await;
    for (name, spec) in [
        ("all", "{}"),
        ("hers", r#"{"tenant":"a"}"#),
        ("set", r#"{"paused":true}"#),
    ] {
        let created = scene.admin.create_destination(&scene.ops, name, spec, None);
        created.await.must();
    }
    for partition in ["filed/0", "filed/1", "set", "stray"] {
        scene.pass(partition, &[]).await;
    }
    let configured = |partitions, paused| Configured {
        partitions: Some(partitions),
        tenant: None,
        paused,
    };
    let configured = BTreeMap::from([
        ("filed".to_owned(), configured(2, false)),
        ("quiet".to_owned(), configured(1, true)),
    ]);
    let index = DestinationIndex::new(Arc::clone(&scene.admin), configured);
    (scene, index)
}
