//! Conformance tests of jobs: what they process.

use std::num::NonZeroU8;

use hapax::{
    admin::{Actor, AdminError, EventFilter, Job, JobKind, JobOptions, REASON_BYTES_MAX},
    delivery::{Frontier, ParkedState, Shards, partition},
    event::NewEvent,
    store::Source,
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid},
    scene::{HOUR, Scene, line, named, park},
};

/// A job makes the dead letters that match its filter due again, at all partitions.
pub async fn a_job_replays_the_dead_letters_that_match_its_filter<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let orders = scene.emit("order.created", Some("a"), 3).await;
    let mails = scene.emit("mail.sent", Some("b"), 2).await;
    let all = [orders.clone(), mails.clone()].concat();
    for partition in ["a/0", "a/1", "other"] {
        scene.pass(partition, &all).await;
    }
    let filter = EventFilter {
        kind: Some("order.*".to_owned()),
        ..EventFilter::default()
    };
    let job = replay(&scene, &scene.ops, &filter, &JobOptions::default()).await;
    let job = job.must();
    assert_eq!((job.total, job.done), (Some(6), 0));
    assert_eq!(
        (job.state.as_str(), job.kind),
        ("waiting", JobKind::ReplayDeadLetters)
    );
    assert_eq!((job.actor.as_str(), job.destination.as_str()), ("ops", "a"));
    scene.work().await;
    for partition in ["a/0", "a/1"] {
        assert_eq!(scene.positions_in(partition, "retrying").await, orders);
        assert_eq!(scene.positions_in(partition, "dead").await, mails);
    }
    assert_eq!(scene.positions_in("other", "dead").await, all);
    let ended = scene.admin.job(&scene.ops, job.id).await.must();
    assert_eq!((ended.done, ended.state.as_str()), (6, "done"));
    assert!(ended.ended_at.is_some() && ended.failures == 0 && ended.error.is_none());
    assert_eq!(
        scene.acts().await,
        vec![line("replay_dead_letters", "done"); 2]
    );
}

/// A job discards dead letters with its reason, and releases what they blocked.
pub async fn a_job_discards_dead_letters_with_its_reason<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 3).await;
    let key = Some("order\n0");
    let parks = vec![
        park(at[0], ParkedState::Dead, key),
        park(at[1], ParkedState::Blocked, key),
        park(at[2], ParkedState::Dead, None),
    ];
    scene.settle("a", parks).await;
    let all = EventFilter::default();
    let over = "x".repeat(REASON_BYTES_MAX + 1);
    for reason in ["", " ", &over] {
        let options = JobOptions::default();
        let job = scene
            .admin
            .start_dead_letter_job(&scene.ops, "a", &all, Some(reason), &options);
        check_invalid(&job.await, "reason");
    }
    assert!(scene.acts().await.is_empty());
    let job = discard(&scene, &scene.ops, &all, &JobOptions::default()).await;
    assert_eq!(job.must().kind, JobKind::DiscardDeadLetters);
    scene.work().await;
    assert_eq!(scene.positions_in("a", "discarded").await, [at[0], at[2]]);
    assert_eq!(scene.positions_in("a", "retrying").await, [at[1]]);
    let trace = scene.admin.trace(at[0]).await.must();
    assert_eq!(trace[0].reason.as_deref(), Some("too old"));
}

/// Every field of the filter is kept with the job and selects what it processes.
pub async fn a_job_processes_what_every_field_of_its_filter_selects<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let mut at = scene.emit("order.created", Some("a"), 1).await;
    scene.advance(HOUR).await;
    let late = scene.now();
    let odd = NewEvent::json("cart.filled", &1).about("c'art", "\"7\"");
    at.extend(scene.write(Some("b"), vec![odd]).await);
    let parks = at.iter().map(|it| park(*it, ParkedState::Dead, None));
    let mut parks: Vec<_> = parks.collect();
    parks[1].attempt = 9;
    let id = scene.fixture.events().await[1].event.id;
    let fields: [fn(&mut EventFilter); 6] = [
        |it| it.kind = Some("cart.*".to_owned()),
        |it| it.tenant = Some(named("b")),
        |it| it.aggregate_type = Some("c'art".to_owned()),
        |it| it.aggregate_id = Some("\"7\"".to_owned()),
        |it| it.attempts_min = 4,
        |it| it.error = Some("HOST_".to_owned()),
    ];
    let mut filters: Vec<_> = fields
        .map(|set| {
            let mut filter = EventFilter::default();
            set(&mut filter);
            filter
        })
        .into();
    filters[5].since = Some(late);
    filters.push(EventFilter {
        event_id: Some(id),
        ..EventFilter::default()
    });
    filters.push(EventFilter {
        since: Some(late),
        ..EventFilter::default()
    });
    filters.push(EventFilter {
        until: Some(late),
        ..EventFilter::default()
    });
    for filter in filters {
        scene.settle("a", parks.clone()).await;
        let job = replay(&scene, &scene.ops, &filter, &JobOptions::default()).await;
        let job = job.must();
        assert_eq!(job.total, Some(1), "{filter:?}");
        scene.work().await;
        let done = scene.admin.job(&scene.ops, job.id).await.must().done;
        let expected = if filter.until.is_some() { at[0] } else { at[1] };
        let replayed = scene.positions_in("a", "retrying").await;
        assert_eq!((done, replayed), (1, vec![expected]), "{filter:?}");
    }
}

/// Events are offered again except those that will be delivered anyway, and none twice.
pub async fn events_are_offered_again_unless_they_still_wait<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 6).await;
    let key = Some("order\n0");
    let parks = vec![
        park(at[0], ParkedState::Dead, key),
        park(at[1], ParkedState::Retrying, None),
        park(at[2], ParkedState::Blocked, key),
    ];
    scene.settle("a", parks).await;
    // The partition has not read this event, and will read it in the ordinary way.
    scene.emit("order.created", None, 1).await;
    let job = offer(&scene, "a", &EventFilter::default(), None)
        .await
        .must();
    assert_eq!((job.total, job.kind), (Some(7), JobKind::ReplayEvents));
    scene.work().await;
    let states = scene.states("a").await.into_iter().map(|it| it.1);
    let again = ["scheduled"; 3];
    let expected = [["retrying", "retrying", "blocked"], again].concat();
    assert_eq!(states.collect::<Vec<_>>(), expected);
    let found = scene.admin.job(&scene.ops, job.id).await.must();
    assert_eq!((found.done, found.state.as_str()), (4, "done"));
    let due = scene.fixture.due("a").await;
    let manual = due.iter().filter(|it| it.manual);
    let manual: Vec<i64> = manual.map(|it| it.event.position).collect();
    assert_eq!(due.len(), 5);
    // The patterns of the destination do not apply to what an operator asked for.
    assert_eq!(manual, [at[0], at[3], at[4], at[5]]);
}

/// An event that is emitted after a job was started is not part of it.
pub async fn a_later_event_is_not_offered_by_an_earlier_job<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 2).await;
    scene.pass("a", &[]).await;
    let job = offer(&scene, "a", &EventFilter::default(), None)
        .await
        .must();
    scene.emit("order.created", None, 1).await;
    scene.pass("a", &[]).await;
    scene.work().await;
    assert_eq!(scene.positions_in("a", "scheduled").await, at);
    assert_eq!(scene.admin.job(&scene.ops, job.id).await.must().done, 2);
}

/// One event is offered again by its id.
pub async fn one_event_is_offered_again_by_its_id<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 30).await;
    scene.pass("a", &[]).await;
    let events = scene.fixture.events().await;
    for which in [0, 7, 29] {
        let filter = EventFilter {
            event_id: Some(events[which].event.id),
            ..EventFilter::default()
        };
        let job = offer(&scene, "a", &filter, None).await.must();
        assert_eq!(job.total, Some(1));
        scene.work().await;
    }
    let expected = [at[0], at[7], at[29]];
    assert_eq!(scene.positions_in("a", "scheduled").await, expected);
}

/// An event is offered again by the partition of its shard, once all partitions are open.
pub async fn an_event_is_offered_again_by_the_partition_of_its_shard<S: AdminUnderTest>() {
    const PARTITIONS: NonZeroU8 = NonZeroU8::new(4).expect("not zero");
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", None, 40).await;
    let all = EventFilter::default();
    for number in 0..3 {
        scene.pass(&partition("a", number, PARTITIONS), &[]).await;
    }
    check_conflict(&offer(&scene, "a", &all, None).await);
    scene.pass("a/3", &[]).await;
    for wrong in [0, 2, 3, 8] {
        check_conflict(&offer(&scene, "a", &all, Some(wrong)).await);
    }
    let job = offer(&scene, "a", &all, Some(4)).await.must();
    scene.work().await;
    assert_eq!(scene.admin.job(&scene.ops, job.id).await.must().done, 40);
    for number in 0..4 {
        let shards = Shards::of_partition(number, PARTITIONS).must();
        let own = scene.store().read(&Frontier::default(), shards, 100).await;
        let own = own.must().events.into_iter().map(|event| event.position);
        let own: Vec<i64> = own.collect();
        let name = partition("a", number, PARTITIONS);
        assert_eq!(scene.positions_in(&name, "scheduled").await, own);
    }
}

/// Starts a job that replays dead letters of destination `a`.
pub(super) async fn replay<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    filter: &EventFilter,
    options: &JobOptions,
) -> Result<Job, AdminError> {
    let started = scene
        .admin
        .start_dead_letter_job(actor, "a", filter, None, options);
    started.await
}

/// Starts a job that discards dead letters of destination `a`.
pub(super) async fn discard<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    filter: &EventFilter,
    options: &JobOptions,
) -> Result<Job, AdminError> {
    let (admin, reason) = (&scene.admin, Some("too old"));
    let started = admin.start_dead_letter_job(actor, "a", filter, reason, options);
    started.await
}

/// Starts a job that offers events to a destination again.
pub(super) async fn offer<S: AdminUnderTest>(
    scene: &Scene<S>,
    destination: &str,
    filter: &EventFilter,
    partitions: Option<u8>,
) -> Result<Job, AdminError> {
    let options = JobOptions::default();
    let started =
        scene
            .admin
            .start_event_job(&scene.ops, destination, filter, partitions, &options);
    started.await
}
