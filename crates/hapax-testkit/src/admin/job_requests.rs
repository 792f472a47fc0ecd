//! Conformance tests of jobs: their requests, rate, list, and cancellation.

use std::time::{Duration, Instant};

use hapax::admin::{Actor, EventFilter, Job, JobFilter, JobOptions, JobStep};

use super::{
    AdminUnderTest,
    checks::{Must, check_conflict, check_invalid, check_missing, hostile, pages},
    jobs::{discard, offer, replay},
    scene::{HOUR, Scene, named, of},
};

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
        let batch = JobStep::Batch {
            job: job.id,
            done: 10,
            ended: false,
        };
        assert_eq!(ran, batch);
        let found = scene.admin.job(&scene.ops, job.id).await.must();
        assert_eq!((found.done, found.state.as_str()), (expected, "running"));
        // On a slow machine, the pause by the database's own clock may be over.
        let again = scene.admin.run_job().await.must();
        let is_slow = began.elapsed() >= Duration::from_secs(1);
        assert!(again == JobStep::Nothing || is_slow, "{again:?}");
        if is_slow {
            break;
        }
        scene.advance(Duration::from_secs(1)).await;
    }
    scene.advance(HOUR).await;
    while scene.admin.run_job().await.must() != JobStep::Nothing {
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
    assert_ne!(admin.run_job().await.must(), JobStep::Nothing);
    admin.cancel_job(ops, job.id).await.must();
    check_conflict(&admin.cancel_job(ops, job.id).await);
    scene.advance(HOUR).await;
    assert_eq!(scene.work().await, 0);
    let found = admin.job(ops, job.id).await.must();
    assert_eq!((found.done, found.state.as_str()), (10, "cancelled"));
    assert!(found.ended_at.is_some());
    assert_eq!(scene.positions_in("a", "dead").await, at[10..]);
    // A job that has not begun is cancelled too; one that has ended is not.
    let waiting = replay(&scene, ops, &all, &JobOptions::default())
        .await
        .must();
    admin.cancel_job(ops, waiting.id).await.must();
    assert_eq!(scene.work().await, 0);
    let done = replay(&scene, ops, &all, &JobOptions::default())
        .await
        .must();
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
    assert_eq!(
        jobs(&scene, &scene.ops, &JobFilter::default()).await.len(),
        2
    );
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
            let job = scene
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

async fn jobs<S: AdminUnderTest>(scene: &Scene<S>, actor: &Actor, filter: &JobFilter) -> Vec<Job> {
    pages(2, async |before: Option<String>| {
        let before = before.as_deref();
        scene.admin.jobs(actor, filter, before, 2).await
    })
    .await
}
