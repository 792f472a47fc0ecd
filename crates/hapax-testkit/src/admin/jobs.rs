//! Conformance tests of jobs: what they process, their list, and their cancellation.

use std::{num::NonZeroU8, time::{Duration, Instant}};

use hapax::{
    admin::{
        Actor, AdminError, EventFilter, Job, JobFilter, JobKind, JobOptions, REASON_BYTES_MAX, Ran,
    },
    delivery::{Frontier, ParkedState, Shards, partition},
    event::NewEvent,
    store::Source,
};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid, check_missing, hostile, pages},
    scene::{HOUR, Scene, line, named, of, park},
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
    assert_eq!((job.state.as_str(), job.kind), ("waiting", JobKind::ReplayDeadLetters));
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
    assert_eq!(scene.acts().await, vec![line("replay_dead_letters", "done"); 2]);
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
    let mut filters: Vec<_> = fields.map(|set| {
        let mut filter = EventFilter::default();
        set(&mut filter);
        filter
    }).into();
    filters[5].since = Some(late);
    filters.push(EventFilter { event_id: Some(id), ..EventFilter::default() });
    filters.push(EventFilter { since: Some(late), ..EventFilter::default() });
    filters.push(EventFilter { until: Some(late), ..EventFilter::default() });
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
    let job = offer(&scene, "a", &EventFilter::default(), None).await.must();
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
    let job = offer(&scene, "a", &EventFilter::default(), None).await.must();
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

/// A job that is limited to a rate makes a pause after each batch.
pub async fn a_job_keeps_to_its_rate<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 25).await;
    scene.pass("a", &at).await;
    let options = per_second(10);
    let job = replay(&scene, &scene.ops, &EventFilter::default(), &options).await;
    let job = job.must();
    assert_eq!(job.per_second, Some(10));
    let began = Instant::now();
    for expected in [10, 20] {
        let ran = scene.admin.run_job().await.must();
        let batch = Ran::Batch { job: job.id, done: 10, ended: false };
        assert_eq!(ran, batch);
        let found = scene.admin.job(&scene.ops, job.id).await.must();
        assert_eq!((found.done, found.state.as_str()), (expected, "running"));
        // On a slow machine, the pause by the database's own clock may be over.
        let again = scene.admin.run_job().await.must();
        let is_slow = began.elapsed() >= Duration::from_secs(1);
        assert!(again == Ran::Nothing || is_slow, "{again:?}");
        if is_slow {
            break;
        }
        scene.advance(Duration::from_secs(1)).await;
    }
    scene.advance(HOUR).await;
    while scene.admin.run_job().await.must() != Ran::Nothing {
        scene.advance(Duration::from_secs(1)).await;
    }
    let found = scene.admin.job(&scene.ops, job.id).await.must();
    assert_eq!((found.done, found.state.as_str()), (25, "done"));
    let options = per_second(0);
    let never = replay(&scene, &scene.ops, &EventFilter::default(), &options).await;
    check_invalid(&never, "per_second");
}

/// A cancelled job runs no further batch, and what it has done is not undone.
pub async fn a_cancelled_job_runs_no_further_batch<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 30).await;
    scene.pass("a", &at).await;
    let (admin, ops, all) = (&scene.admin, &scene.ops, EventFilter::default());
    let job = replay(&scene, ops, &all, &per_second(10)).await.must();
    assert_ne!(admin.run_job().await.must(), Ran::Nothing);
    admin.cancel_job(ops, job.id).await.must();
    check_conflict(&admin.cancel_job(ops, job.id).await);
    scene.advance(HOUR).await;
    assert_eq!(scene.work().await, 0);
    let found = admin.job(ops, job.id).await.must();
    assert_eq!((found.done, found.state.as_str()), (10, "cancelled"));
    assert!(found.ended_at.is_some());
    assert_eq!(scene.positions_in("a", "dead").await, at[10..]);
    // A job that has not begun is cancelled too; one that has ended is not.
    let waiting = replay(&scene, ops, &all, &JobOptions::default()).await.must();
    admin.cancel_job(ops, waiting.id).await.must();
    assert_eq!(scene.work().await, 0);
    let done = replay(&scene, ops, &all, &JobOptions::default()).await.must();
    scene.work().await;
    check_conflict(&admin.cancel_job(ops, done.id).await);
    for unknown in [i64::MIN, -1, 0, done.id + 1, i64::MAX] {
        check_missing(&admin.cancel_job(ops, unknown).await);
    }
    let acts = scene.acts().await.into_iter().filter(|it| it.0 == "cancel");
    let outcomes: Vec<String> = acts.map(|it| it.1).collect();
    assert_eq!(outcomes, ["done", "refused", "done", "refused"]);
}

/// Two requests with the same key start one job, even at the same time.
pub async fn requests_with_one_key_start_one_job<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 3).await;
    scene.pass("a", &at).await;
    let other = scene.beside().await;
    let options = JobOptions {
        request_key: Some("k'1".to_owned()),
        ..JobOptions::default()
    };
    let filter = EventFilter {
        kind: Some("order.*".to_owned()),
        ..EventFilter::default()
    };
    let (one, two) = tokio::join!(
        replay(&scene, &scene.ops, &filter, &options),
        other.start_dead_letter_job(&scene.ops, "a", &filter, None, &options),
    );
    assert_eq!(one.must().id, two.must().id);
    scene.work().await;
    let late = replay(&scene, &scene.ops, &filter, &options).await.must();
    assert_eq!(late.state, "done");
    let all = EventFilter::default();
    check_conflict(&replay(&scene, &scene.ops, &all, &options).await);
    check_conflict(&discard(&scene, &scene.ops, &filter, &options).await);
    let another = replay(&scene, &Actor::new("other"), &filter, &options).await;
    assert_ne!(another.must().id, late.id);
    for key in [String::new(), "x".repeat(256), "a\0b".to_owned()] {
        let options = JobOptions {
            request_key: Some(key),
            ..JobOptions::default()
        };
        let started = replay(&scene, &scene.ops, &all, &options).await;
        check_invalid(&started, "request_key");
    }
    assert_eq!(jobs(&scene, &scene.ops, &JobFilter::default()).await.len(), 2);
}

/// Jobs are listed by destination and state, the newest first.
pub async fn jobs_are_listed_by_destination_and_state<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 1).await;
    for partition in ["a", "b"] {
        scene.pass(partition, &at).await;
    }
    let all = EventFilter::default();
    let mut ids = Vec::new();
    for name in ["a", "b", "a", "b", "a"] {
        let options = JobOptions::default();
        let job = scene
            .admin
            .start_dead_letter_job(&scene.ops, name, &all, None, &options);
        ids.push(job.await.must().id);
    }
    scene.admin.run_job().await.must();
    scene.admin.cancel_job(&scene.ops, ids[4]).await.must();
    let list = async |destination: Option<&str>, state: Option<&str>| {
        let filter = JobFilter {
            destination: destination.map(str::to_owned),
            state: state.map(str::to_owned),
        };
        let jobs = jobs(&scene, &scene.ops, &filter).await.into_iter();
        jobs.map(|job| job.id).collect::<Vec<_>>()
    };
    let [one, two, three, four, five] = ids.try_into().must();
    assert_eq!(list(None, None).await, [five, four, three, two, one]);
    assert_eq!(list(Some("a"), None).await, [five, three, one]);
    assert_eq!(list(None, Some("done")).await, [one]);
    assert_eq!(list(None, Some("waiting")).await, [four, three, two]);
    assert_eq!(list(Some("a"), Some("cancelled")).await, [five]);
    assert!(list(Some("b"), Some("cancelled")).await.is_empty());
    for word in hostile() {
        assert!(list(Some(&word), None).await.is_empty());
        assert!(list(None, Some(&word)).await.is_empty());
    }
    for unknown in [i64::MIN, -1, 0, five + 1, i64::MAX] {
        check_missing(&scene.admin.job(&scene.ops, unknown).await);
    }
}

/// A job needs a destination that a relay has opened.
pub async fn a_job_needs_a_destination_that_was_opened<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    scene.emit("order.created", None, 1).await;
    scene.pass("a", &[]).await;
    let (options, all) = (JobOptions::default(), EventFilter::default());
    let mut names = hostile();
    names.extend(["", "b", "A", "a/0"].map(str::to_owned));
    for name in names {
        for discard in [None, Some("why")] {
            let job =
                scene
                    .admin
                    .start_dead_letter_job(&scene.ops, &name, &all, discard, &options);
            check_missing(&job.await);
        }
        check_missing(&offer(&scene, &name, &all, None).await);
    }
    assert!(scene.acts().await.is_empty());
}

/// An operator of a tenant starts, sees and cancels jobs for that tenant's events alone.
pub async fn an_operator_of_a_tenant_has_its_own_jobs<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let own = scene.emit("order.created", Some("a"), 2).await;
    let others = scene.emit("order.created", Some("b"), 2).await;
    let every = [own.clone(), others.clone()].concat();
    scene.pass("a", &every).await;
    let (admin, alice, bob) = (&scene.admin, &of("a"), &of("b"));
    let (all, options) = (EventFilter::default(), JobOptions::default());
    let hers = discard(&scene, alice, &all, &options).await.must();
    assert_eq!((hers.total, hers.tenant.as_deref()), (Some(2), Some("a")));
    let his = replay(&scene, bob, &all, &options).await.must();
    let both = replay(&scene, &scene.ops, &all, &options).await.must();
    admin.cancel_job(&scene.ops, both.id).await.must();
    for id in [his.id, both.id] {
        check_missing(&admin.job(alice, id).await);
        check_missing(&admin.cancel_job(alice, id).await);
    }
    let listed = jobs(&scene, alice, &JobFilter::default()).await;
    assert_eq!(listed, [admin.job(alice, hers.id).await.must()]);
    admin.cancel_job(bob, his.id).await.must();
    scene.work().await;
    assert_eq!(scene.positions_in("a", "discarded").await, own);
    assert_eq!(scene.positions_in("a", "dead").await, others);
    let foreign = EventFilter {
        tenant: Some(named("b")),
        ..EventFilter::default()
    };
    check_invalid(&replay(&scene, alice, &foreign, &options).await, "tenant");
    let offered = admin.start_event_job(alice, "a", &foreign, None, &options);
    check_invalid(&offered.await, "tenant");
    let offered = admin.start_event_job(alice, "a", &all, None, &options);
    assert_eq!(offered.await.must().total, Some(2));
    scene.work().await;
    assert_eq!(scene.positions_in("a", "dead").await, others);
}

fn per_second(rate: u32) -> JobOptions {
    JobOptions {
        per_second: Some(rate),
        ..JobOptions::default()
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

async fn offer<S: AdminUnderTest>(
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

async fn jobs<S: AdminUnderTest>(
    scene: &Scene<S>,
    actor: &Actor,
    filter: &JobFilter,
) -> Vec<Job> {
    pages(2, async |before: Option<String>| {
        let before = before.as_deref();
        scene.admin.jobs(actor, filter, before, 2).await
    })
    .await
}
