//! Conformance tests of running jobs: batches, workers that die, several workers, and failures.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use hapax::admin::{Admin, EventFilter, Job, JobOptions, JobStep};

use super::{
    AdminUnderTest, Table,
    checks::{Must, check_missing},
    jobs::{discard, replay},
    scene::{HOUR, Scene, line, of},
};
use crate::{
    store::fixture::PATIENCE,
    wait::{Patience, eventually, pace},
};

/// A job continues where the last committed batch ended, if its worker dies after each batch, and
/// does nothing twice.
pub async fn a_job_whose_worker_dies_after_each_batch_is_resumed<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 23).await;
    scene.pass("a", &at).await;
    let job = limited(&scene, 5).await;
    for batch in 1..=5 {
        // A new process, which ends after this batch.
        let worker = scene.beside().await;
        let done = if batch < 5 { 5 } else { 3 };
        let ran = worker.run_job().await.must();
        assert!(
            matches!(ran, JobStep::Batch { job: id, done: it, .. } if (id, it) == (job.id, done))
        );
        drop(worker);
        check_progress(&scene, &job, (batch * 5).min(23)).await;
        scene.advance(HOUR).await;
    }
    scene.work().await;
    let ended = check_progress(&scene, &job, 23).await;
    assert_eq!((ended.state.as_str(), ended.failures), ("done", 0));
}

/// A batch whose caller goes away at any moment is done completely or not at all.
pub async fn an_abandoned_batch_is_done_completely_or_not_at_all<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 60).await;
    scene.pass("a", &at).await;
    let job = limited(&scene, 2).await;
    let workers = [Arc::clone(&scene.admin), scene.beside().await];
    for polls in 0..200 {
        abandon(workers[polls % 2].run_job(), polls % 40).await;
        scene.advance(Duration::from_secs(2)).await;
        let found = scene.admin.job(&scene.ops, job.id).await.must();
        if found.ended_at.is_some() {
            break;
        }
    }
    scene.advance(HOUR).await;
    // What was abandoned may still be on its way to the database.
    eventually(PATIENCE, async || {
        scene.advance(Duration::from_secs(2)).await;
        scene.admin.run_job().await.must();
        let found = scene.admin.job(&scene.ops, job.id).await.must();
        found.ended_at.is_some()
    })
    .await;
    let ended = check_progress(&scene, &job, 60).await;
    assert_eq!((ended.state.as_str(), ended.failures), ("done", 0));
}

/// Of several workers, one at a time runs a job, and no delivery is counted twice.
pub async fn of_several_workers_one_at_a_time_runs_a_job<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 2_000).await;
    scene.pass("a", &at).await;
    let (all, options) = (EventFilter::default(), JobOptions::default());
    let job = replay(&scene, &scene.ops, &all, &options).await.must();
    let (one, two) = (scene.beside().await, scene.beside().await);
    let work = async |admin: Arc<dyn Admin>| {
        let mut done = 0;
        let patience = Patience::within(PATIENCE);
        loop {
            match admin.run_job().await.must() {
                JobStep::Batch { done: more, .. } => done += more,
                JobStep::Failed { .. } => panic!("a batch failed"),
                JobStep::Nothing => {
                    let found = admin.job(&scene.ops, job.id).await.must();
                    if found.ended_at.is_some() {
                        return done;
                    }
                    // Another worker has the job.
                    patience.pause().await;
                }
            }
        }
    };
    let workers = [Arc::clone(&scene.admin), one, two].map(work);
    let done: u64 = join_all(workers).await.into_iter().sum();
    assert_eq!(done, 2_000);
    check_progress(&scene, &job, 2_000).await;
}

/// Several jobs are all run, the one that has been due longest first.
pub async fn the_job_that_has_been_due_longest_runs_first<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 3).await;
    scene.pass("a", &at).await;
    let (all, options) = (EventFilter::default(), JobOptions::default());
    let mut ids = Vec::new();
    for _ in 0..3 {
        let job = replay(&scene, &scene.ops, &all, &options).await.must();
        ids.push(job.id);
        scene.advance(Duration::from_secs(1)).await;
    }
    let mut ran = Vec::new();
    while let JobStep::Batch { job, .. } = scene.admin.run_job().await.must() {
        if !ran.contains(&job) {
            ran.push(job);
        }
    }
    assert_eq!(ran, ids);
}

/// What dies between the count and the job is not in it.
pub async fn what_dies_between_the_count_and_the_job_is_left_out<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 4).await;
    scene.pass("a", &at[..2]).await;
    let (admin, ops, any) = (&scene.admin, &scene.ops, EventFilter::default());
    let seen = admin.seen().await.must();
    let count = async || {
        let counted = admin.count_dead_letters(ops, "a", &any, &seen);
        counted.await.must()
    };
    assert_eq!(count().await, 2);
    // One counted letter is replayed and dies again, one earlier event dies, and so does a new one.
    scene.advance(Duration::from_secs(1)).await;
    admin.replay_dead_letter(ops, "a", at[1]).await.must();
    let newest = scene.emit("order.created", None, 1).await[0];
    scene.pass("a", &[at[1], at[2], newest]).await;
    assert_eq!(count().await, 1);
    let options = JobOptions {
        seen: Some(seen.clone()),
        ..JobOptions::default()
    };
    let job = discard(&scene, ops, &any, &options).await.must();
    assert_eq!(job.total, Some(1));
    scene.work().await;
    let ended = admin.job(ops, job.id).await.must();
    assert_eq!((ended.done, ended.state.as_str()), (1, "done"));
    let dead = scene.positions_in("a", "dead").await;
    assert_eq!(dead, [at[1], at[2], newest]);
    // Without an earlier count, the job covers what is dead now.
    let job = replay(&scene, ops, &any, &JobOptions::default()).await;
    assert_eq!(job.must().total, Some(3));
}

/// The same, at one moment of the clock: what is written after the snapshot is not in it.
pub async fn a_snapshot_does_not_depend_on_the_clock<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 3).await;
    scene.pass("a", &at[..1]).await;
    let (admin, ops, any) = (&scene.admin, &scene.ops, EventFilter::default());
    let seen = admin.seen().await.must();
    scene.pass("a", &at[1..2]).await;
    let counted = admin.count_dead_letters(ops, "a", &any, &seen).await;
    assert_eq!(counted.must(), 1);
    let options = JobOptions {
        seen: Some(seen),
        ..JobOptions::default()
    };
    discard(&scene, ops, &any, &options).await.must();
    scene.pass("a", &at[2..]).await;
    scene.work().await;
    assert_eq!(scene.positions_in("a", "discarded").await, at[..1]);
    assert_eq!(scene.positions_in("a", "dead").await, at[1..]);
}

/// A job ends although more deliveries die after each of its batches, and leaves those out.
pub async fn what_dies_while_a_job_runs_is_left_out<S: AdminUnderTest>() {
    for discards in [false, true] {
        let scene = Scene::<S>::new().await;
        let at = scene.emit("order.created", None, 5).await;
        scene.pass("a", &at[1..]).await;
        scene.advance(Duration::from_mins(1)).await;
        let (admin, ops, any) = (&scene.admin, &scene.ops, EventFilter::default());
        let options = JobOptions {
            per_second: Some(1),
            ..JobOptions::default()
        };
        let job = if discards {
            discard(&scene, ops, &any, &options).await.must()
        } else {
            replay(&scene, ops, &any, &options).await.must()
        };
        assert_eq!(job.total, Some(4));
        admin.replay_dead_letter(ops, "a", at[4]).await.must();
        let mut died = vec![at[0], at[4]];
        scene.pass("a", &died).await;
        for batches in 0.. {
            assert!(
                batches < 20,
                "the job goes on with what died after its start"
            );
            scene.advance(Duration::from_mins(1)).await;
            if admin.run_job().await.must() == JobStep::Nothing {
                break;
            }
            let newest = scene.emit("order.created", None, 1).await;
            scene.pass("a", &newest).await;
            died.extend(newest);
        }
        died.sort_unstable();
        assert_eq!(scene.positions_in("a", "dead").await, died);
        let ended = admin.job(ops, job.id).await.must();
        assert_eq!((ended.done, ended.state.as_str()), (3, "done"));
    }
}

/// A job whose batches keep failing is given up with its error, and what failed has no effect.
pub async fn a_job_that_keeps_failing_is_given_up<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 3).await;
    scene.pass("a", &at).await;
    let (all, options) = (EventFilter::default(), JobOptions::default());
    let job = replay(&scene, &scene.ops, &all, &options).await.must();
    scene.break_table(Table::Deliveries).await;
    let failures = fail_until_given_up(&scene, &job).await;
    assert!(failures > 1, "a job is given up after its first failure");
    scene.mend(Table::Deliveries).await;
    scene.advance(HOUR).await;
    assert_eq!(scene.work().await, 0);
    assert_eq!(scene.positions_in("a", "dead").await, at);
}

/// A job survives some failures, and their number is reset by a batch that succeeds.
pub async fn a_job_goes_on_after_a_failed_batch<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let at = scene.emit("order.created", None, 4).await;
    scene.pass("a", &at).await;
    let job = limited(&scene, 2).await;
    scene.break_table(Table::Deliveries).await;
    let failed = JobStep::Failed { job: job.id };
    assert_eq!(scene.admin.run_job().await.must(), failed);
    let found = scene.admin.job(&scene.ops, job.id).await.must();
    assert!(found.failures == 1 && found.error.is_some(), "{found:?}");
    scene.mend(Table::Deliveries).await;
    scene.advance(HOUR).await;
    assert_ne!(scene.admin.run_job().await.must(), failed);
    let found = check_progress(&scene, &job, 2).await;
    assert_eq!((found.failures, found.error), (0, None));
    scene.advance(HOUR).await;
    while scene.admin.run_job().await.must() != JobStep::Nothing {
        scene.advance(HOUR).await;
    }
    check_progress(&scene, &job, 4).await;
}

/// The removal of a destination that was given up continues when it is requested again.
pub async fn a_removal_that_was_given_up_continues_when_it_is_requested_again<S: AdminUnderTest>() {
    let scene = Scene::<S>::new().await;
    let (admin, ops) = (&scene.admin, &scene.ops);
    let at = scene.emit("order.created", None, 1).await;
    admin.create_destination(ops, "a", "{}", None).await.must();
    scene.pass("a", &at).await;
    let job = admin.remove_destination(ops, "a").await.must();
    scene.break_table(Table::Deliveries).await;
    fail_until_given_up(&scene, &job).await;
    scene.mend(Table::Deliveries).await;
    check_missing(&admin.remove_destination(&of("a"), "a").await);
    let other = scene.beside().await;
    let (one, two) = tokio::join!(
        admin.remove_destination(ops, "a"),
        other.remove_destination(ops, "a"),
    );
    for again in [one.must(), two.must()] {
        assert_eq!((again.id, again.state.as_str()), (job.id, "waiting"));
        assert_eq!(
            (again.failures, again.error, again.ended_at),
            (0, None, None)
        );
    }
    let expected = ["create", "remove", "remove"].map(|act| line(act, "done"));
    assert_eq!(scene.acts().await, expected);
    scene.advance(HOUR).await;
    scene.work().await;
    let ended = admin.job(ops, job.id).await.must();
    assert_eq!((ended.state.as_str(), ended.done), ("done", 1));
    assert!(scene.states("a").await.is_empty());
    admin.create_destination(ops, "a", "{}", None).await.must();
}

/// Runs a job that fails until it is given up. Returns how often it has failed.
async fn fail_until_given_up<S: AdminUnderTest>(scene: &Scene<S>, job: &Job) -> u32 {
    for failures in 1..=100 {
        scene.advance(HOUR).await;
        let ran = scene.admin.run_job().await.must();
        assert_eq!(ran, JobStep::Failed { job: job.id });
        let found = scene.admin.job(&scene.ops, job.id).await.must();
        assert_eq!((found.failures, found.done), (failures, 0));
        assert!(found.error.is_some_and(|error| !error.is_empty()));
        if found.state == "failed" {
            assert!(found.ended_at.is_some());
            return failures;
        }
    }
    panic!("the job is never given up");
}

/// Starts a job that replays the dead letters of `a` in batches of this size.
async fn limited<S: AdminUnderTest>(scene: &Scene<S>, per_second: u32) -> Job {
    let options = JobOptions {
        per_second: Some(per_second),
        ..JobOptions::default()
    };
    let all = EventFilter::default();
    replay(scene, &scene.ops, &all, &options).await.must()
}

/// Requires that a job has replayed as many dead letters as it says.
async fn check_progress<S: AdminUnderTest>(scene: &Scene<S>, job: &Job, expected: usize) -> Job {
    let found = scene.admin.job(&scene.ops, job.id).await.must();
    let replayed = scene.positions_in("a", "retrying").await.len();
    assert_eq!((found.done, replayed), (expected as u64, expected));
    found
}

/// Polls a future this many times, and drops it.
async fn abandon<T>(future: impl Future<Output = T>, polls: usize) {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if (&mut future).now_or_never().is_some() {
            return;
        }
        pace(Duration::from_micros(200)).await;
    }
}
