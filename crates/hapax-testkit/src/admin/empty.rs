//! Conformance tests of an empty store: every list is empty, and nothing exists.

use hapax::{
    admin::{
        AuditFilter, Count, DeliveryFilter, EventFilter, JobFilter, JobOptions, JobStep, KeyFilter,
        MessageFilter,
    },
    event::EventId,
    saga::{Decision, Filter},
};

use super::{
    AdminUnderTest,
    checks::{Must, check_missing},
    scene::{Scene, of},
};

/// The lists of an empty store have one page, which is empty.
pub async fn the_lists_of_an_empty_store_are_empty<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let admin = &scene.admin;
    for actor in [&scene.ops, &of("a")] {
        let events = EventFilter::default();
        let page = admin.events(actor, &events, None, 10).await.must();
        assert!(page.items.is_empty() && page.next.is_none());
        assert_eq!(admin.count_events(actor, &events).await.must(), 0);
        let all = DeliveryFilter::default();
        let page = admin.deliveries(actor, &all, None, 10);
        let page = page.await.must();
        assert!(page.items.is_empty() && page.next.is_none());
        assert_eq!(scene.count_dead(actor, "a", &events).await, 0);
        let page = admin.jobs(actor, &JobFilter::default(), None, 10).await;
        let page = page.must();
        assert!(page.items.is_empty() && page.next.is_none());
        let page = admin.keys(actor, &KeyFilter::default(), None, 10).await;
        let page = page.must();
        assert!(page.items.is_empty() && page.next.is_none());
        let all = MessageFilter::default();
        let page = admin.messages(actor, &all, None, 10);
        let page = page.await.must();
        assert!(page.items.is_empty() && page.next.is_none());
        let page = admin.list_sagas(actor, &Filter::default(), 10).await.must();
        assert!(page.items.is_empty() && page.next.is_none());
        let page = admin.declarations(actor, None, 10).await.must();
        assert!(page.items.is_empty() && page.next.is_none());
        let all = AuditFilter::default();
        let page = admin.audit_log(actor, &all, None, 10);
        let page = page.await.must();
        assert!(page.items.is_empty() && page.next.is_none());
    }
    assert!(admin.partitions(None).await.must().is_empty());
    assert!(admin.traces(&[1]).await.must().is_empty());
}

/// In an empty store, nothing is found and nothing can be changed.
pub async fn nothing_is_found_in_an_empty_store<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let id: EventId = "01890000-0000-7000-8000-000000000000"
        .parse()
        .expect("a UUID");
    assert_eq!(admin.find_event(ops, id).await.must(), None);
    assert_eq!(admin.find_event_near(ops, id).await.must(), None);
    assert_eq!(admin.event_at(ops, 1).await.must(), None);
    assert!(admin.trace(1).await.must().is_empty());
    check_missing(&admin.replay_dead_letter(ops, "a", 1).await);
    check_missing(&admin.edit_dead_letter(ops, "a", 1, "{}").await);
    check_missing(&admin.discard_dead_letter(ops, "a", 1, "why").await);
    check_missing(&admin.job(ops, 1).await);
    check_missing(&admin.cancel_job(ops, 1).await);
    let (all, options) = (EventFilter::default(), JobOptions::default());
    let job = admin.start_dead_letter_job(ops, "a", &all, None, &options);
    check_missing(&job.await);
    let job = admin.start_event_job(ops, "a", &all, None, &options).await;
    check_missing(&job);
    check_missing(&admin.key(ops, None, "POST /orders", "k").await);
    let timeline = admin.timeline_of_key(ops, None, None, "k").await;
    check_missing(&timeline);
    check_missing(&admin.look_at_saga(ops, "s1").await);
    let decided = admin.decide(ops, "s1", 0, &Decision::Close, "why").await;
    check_missing(&decided);
    check_missing(&admin.declaration(ops, "a").await);
    check_missing(&admin.pause_destination(ops, "a").await);
    check_missing(&admin.resume_destination(ops, "a").await);
    check_missing(&admin.remove_destination(ops, "a").await);
    assert_eq!(admin.run_job().await.must(), JobStep::Nothing);
    assert!(scene.acts().await.is_empty());
}

/// The overview of an empty store contains no destination and no number above zero.
pub async fn the_overview_of_an_empty_store_contains_nothing<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let admin = &scene.admin;
    for actor in [&scene.ops, &of("a")] {
        let (overview, stalled) = admin.overview_and_stalled(actor).await.must();
        let none = Count::default();
        assert_eq!((overview.committed, overview.delivered), (none, none));
        assert_eq!((overview.failed, overview.destinations.len()), (none, 0));
        let keys: u64 = overview.keys.iter().map(|it| it.count.number).sum();
        let sagas: u64 = overview.sagas.iter().map(|it| it.count.number).sum();
        assert_eq!((keys, sagas), (0, 0));
        assert_eq!(stalled, []);
    }
    let backlog = admin.partition_backlog("a").await.must();
    assert_eq!((backlog.events, backlog.parked, backlog.dead), (0, 0, 0));
}
