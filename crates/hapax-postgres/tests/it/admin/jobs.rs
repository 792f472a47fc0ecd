//! Jobs: crashes, concurrent workers, cancellation, and repeated requests for one job.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hapax::{
    admin::{
        Actor, AdminError, DeliveryAdmin as _, EventFilter, Job, JobAdmin as _, JobOptions, Ran,
    },
    delivery::ParkedState,
    failpoint::Failpoints,
    key::Tenant,
    store::Settlements as _,
};
use hapax_testkit::wait::Patience;

use super::scene::{Scene, park};
use crate::fixture::{Fixture, PATIENCE};

#[tokio::test]
async fn the_dead_letters_that_a_filter_fits_are_replayed_by_a_job() {
    let scene = Scene::new().await;
    scene.emit("order.created", Some("a"), 3).await;
    scene.emit("mail.sent", Some("b"), 2).await;
    let at = positions(&scene).await;
    for partition in ["a/0", "a/1"] {
        scene.pass(partition, &at).await;
    }
    let filter = EventFilter {
        kind: Some("order.*".to_owned()),
        ..EventFilter::default()
    };
    let job = replay(&scene, &scene.ops, &filter, &JobOptions::default())
        .await
        .unwrap();
    assert_eq!(
        (job.total, job.done, job.state.as_str()),
        (Some(6), 0, "waiting")
    );
    scene.work().await;
    for partition in ["a/0", "a/1"] {
        let states: Vec<_> = scene
            .states(partition)
            .await
            .into_iter()
            .map(|it| it.1)
            .collect();
        assert_eq!(states, ["retrying", "retrying", "retrying", "dead", "dead"]);
    }
    let ended = scene.store().job(&scene.ops, job.id).await.unwrap();
    assert_eq!((ended.done, ended.state.as_str()), (6, "done"));
    assert!(ended.ended_at.is_some());

    let his = Actor::new("bob").of(Tenant::new("b").unwrap());
    assert!(scene.store().job(&his, job.id).await.is_err());
    let (all, asked) = (EventFilter::default(), JobOptions::default());
    let discard = discard(&scene, &his, &all, &asked).await;
    assert_eq!(discard.unwrap().total, Some(4));
    scene.work().await;
    let states: Vec<_> = scene
        .states("a/0")
        .await
        .into_iter()
        .map(|it| it.1)
        .collect();
    assert_eq!(states[3..], ["discarded", "discarded"]);
}

#[tokio::test]
async fn what_dies_while_a_job_runs_is_none_of_its_business() {
    check_bound(false, "arguments").await;
    check_bound(true, "arguments").await;
}

#[tokio::test]
async fn a_job_of_an_older_version_or_another_cluster_goes_by_when_it_was_written_down() {
    let older = "(arguments::jsonb - 'seen' - 'until')::text";
    let elsewhere = "(arguments::jsonb || '{\"seen\": \"9000000:9000000: - 7\"}')::text";
    for arguments in [older, elsewhere] {
        check_bound(false, arguments).await;
        check_bound(true, arguments).await;
    }
}

/// An operator counts dead letters, and more appear before the operator confirms: the job covers
/// only those that were counted.
#[tokio::test]
async fn what_dies_between_the_count_and_the_job_is_not_in_it() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 4).await;
    let at = positions(&scene).await;
    scene.pass("a", &at[..2]).await;
    let (store, ops, any) = (scene.store(), &scene.ops, EventFilter::default());
    let seen = store.seen().await.unwrap();
    let count = async || {
        store
            .count_dead_letters(ops, "a", &any, &seen)
            .await
            .unwrap()
    };
    assert_eq!(count().await, 2);
    // One counted event is replayed and becomes dead again, one earlier event becomes dead, and so
    // does a new one.
    store.replay_dead_letter(ops, "a", at[1]).await.unwrap();
    scene.emit("order.created", None, 1).await;
    let newest = *positions(&scene).await.last().unwrap();
    scene.pass("a", &[at[1], at[2], newest]).await;
    assert_eq!(count().await, 1);
    let asked = JobOptions {
        seen: Some(seen.clone()),
        ..JobOptions::default()
    };
    let job = discard(&scene, ops, &any, &asked).await;
    let job = job.unwrap();
    assert_eq!(job.total, Some(1));
    scene.work().await;
    let ended = store.job(ops, job.id).await.unwrap();
    assert_eq!((ended.done, ended.state.as_str()), (1, "done"));
    let states = scene.states("a").await;
    let dead = states.iter().filter(|it| it.1 == "dead").map(|it| it.0);
    assert_eq!(dead.collect::<Vec<_>>(), [at[1], at[2], newest]);
    // Without an earlier count, the job covers what is dead now.
    let job = replay(&scene, ops, &any, &JobOptions::default())
        .await
        .unwrap();
    assert_eq!(job.total, Some(3));
}

/// Requires that a job handles three of four dead letters: one of the four is replayed and becomes
/// dead again before the job reaches it. After each batch another event becomes dead, which the job
/// must ignore.
async fn check_bound(discards: bool, arguments: &str) {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 5).await;
    let at = positions(&scene).await;
    scene.pass("a", &at[1..]).await;
    // These changes are older than the job by every clock.
    let earlier = "UPDATE hapax.delivery SET changed_at = changed_at - interval '1 minute'";
    scene.fixture.plain.execute(earlier, &[]).await.unwrap();
    let (store, ops, any) = (scene.store(), &scene.ops, EventFilter::default());
    let asked = JobOptions {
        per_second: Some(1),
        request_key: None,
        seen: None,
    };
    let job = if discards {
        discard(&scene, ops, &any, &asked).await
    } else {
        replay(&scene, ops, &any, &asked).await
    };
    let job = job.unwrap();
    assert_eq!(job.total, Some(4));
    let spelled = format!("UPDATE hapax.job SET arguments = {arguments}");
    scene.fixture.plain.execute(&spelled, &[]).await.unwrap();
    store.replay_dead_letter(ops, "a", at[4]).await.unwrap();
    let mut died = vec![at[0], at[4]];
    scene.pass("a", &died).await;
    for batches in 0.. {
        assert!(
            batches < 20,
            "the job continues with events that became dead after its start"
        );
        // These changes are newer than the job by every clock.
        let later = "UPDATE hapax.delivery SET changed_at = changed_at + interval '1 minute'
            WHERE state = 'dead' AND position = ANY ($1)";
        scene.fixture.plain.execute(later, &[&died]).await.unwrap();
        scene.hurry().await;
        if store.run_job().await.unwrap() == Ran::Nothing {
            break;
        }
        scene.emit("order.created", None, 1).await;
        let newest = *positions(&scene).await.last().unwrap();
        scene.pass("a", &[newest]).await;
        died.push(newest);
    }
    let states = scene.states("a").await;
    let dead = states.iter().filter(|it| it.1 == "dead").map(|it| it.0);
    died.sort_unstable();
    assert_eq!(dead.collect::<Vec<_>>(), died);
    let ended = store.job(ops, job.id).await.unwrap();
    assert_eq!((ended.done, ended.state.as_str()), (3, "done"));
}

#[tokio::test]
async fn a_job_that_is_killed_anywhere_goes_on_and_does_nothing_twice() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 25).await;
    let at = positions(&scene).await;
    scene.pass("a", &at).await;
    let asked = JobOptions {
        per_second: Some(5),
        request_key: None,
        seen: None,
    };
    let job = replay(&scene, &scene.ops, &EventFilter::default(), &asked)
        .await
        .unwrap();
    // A worker whose connection is cut just before every second commit.
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&commits);
    let database = Arc::clone(&scene.fixture.database);
    let url = database.url();
    let cut = move |name: &'static str| {
        if name == "postgres.commit.before"
            && counted.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
        {
            terminate_workers(&url);
        }
    };
    let url = format!("{}?application_name=worker", scene.fixture.database.url());
    let mut settings = crate::fixture::settings(&url);
    settings.failpoints = Failpoints::calling(cut);
    let worker = hapax_postgres::Postgres::open(settings).await.unwrap();
    let (mut batches, mut cuts) = (0, 0);
    loop {
        scene.hurry().await;
        match worker.run_job().await {
            Ok(Ran::Nothing) => break,
            Ok(_) => batches += 1,
            Err(_) => cuts += 1,
        }
        let found = scene.store().job(&scene.ops, job.id).await.unwrap();
        let replayed = scene
            .states("a")
            .await
            .iter()
            .filter(|it| it.1 == "retrying")
            .count();
        assert_eq!(found.done, replayed as u64);
    }
    assert!(cuts >= 5, "{cuts} of {batches}");
    let found = scene.store().job(&scene.ops, job.id).await.unwrap();
    assert_eq!(
        (found.done, found.state.as_str(), found.failures),
        (25, "done", 0)
    );
}

/// Terminates the worker's connections, as `kill -9` of the worker would.
fn terminate_workers(url: &str) {
    let url = url.to_owned();
    let ended = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = hapax_testkit::postgres::connect(&url).await;
            let sql = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity
                WHERE application_name = 'worker' AND datname = current_database()";
            client.query(sql, &[]).await.unwrap();
        });
    });
    ended.join().unwrap();
}

#[tokio::test]
async fn of_many_workers_one_has_a_job() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 2_000).await;
    scene.pass("a", &positions(&scene).await).await;
    let job = replay(
        &scene,
        &scene.ops,
        &EventFilter::default(),
        &JobOptions::default(),
    )
    .await
    .unwrap();
    let others: Vec<Fixture> = vec![scene.fixture.beside().await, scene.fixture.beside().await];
    let (ops, id) = (&scene.ops, job.id);
    let work = |store: hapax_postgres::Postgres| {
        let ops = ops.clone();
        async move {
            let mut done = 0;
            let patience = Patience::within(PATIENCE);
            while store.job(&ops, id).await.unwrap().ended_at.is_none() {
                match store.run_job().await.unwrap() {
                    Ran::Batch { done: more, .. } => done += more,
                    // Another worker has the job.
                    _ => patience.pause().await,
                }
            }
            done
        }
    };
    let (one, two, three) = tokio::join!(
        tokio::spawn(work(scene.store().clone())),
        tokio::spawn(work(others[0].store.clone())),
        tokio::spawn(work(others[1].store.clone())),
    );
    assert_eq!(one.unwrap() + two.unwrap() + three.unwrap(), 2_000);
    let found = scene.store().job(&scene.ops, job.id).await.unwrap();
    assert_eq!((found.done, found.state.as_str()), (2_000, "done"));
}

#[tokio::test]
async fn events_are_offered_again_and_none_that_still_waits_twice() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 6).await;
    let at = positions(&scene).await;
    scene
        .settle(
            "a",
            vec![
                park(at[0], ParkedState::Dead, Some("order\n0".to_owned())),
                park(at[1], ParkedState::Retrying, None),
                park(at[2], ParkedState::Blocked, Some("order\n0".to_owned())),
            ],
        )
        .await;
    // This event has not been read by the partition, which will read it in the ordinary way.
    scene.emit("order.created", None, 1).await;
    let job = offer(&scene, "a", &EventFilter::default(), None)
        .await
        .unwrap();
    assert_eq!(job.total, Some(7));
    scene.work().await;
    let states: Vec<_> = scene.states("a").await.into_iter().map(|it| it.1).collect();
    assert_eq!(
        states,
        [
            "retrying",
            "retrying",
            "blocked",
            "scheduled",
            "scheduled",
            "scheduled"
        ]
    );
    let found = scene.store().job(&scene.ops, job.id).await.unwrap();
    assert_eq!((found.done, found.state.as_str()), (4, "done"));
    let due = scene.store().due("a", &[], 100, 0).await.unwrap();
    let asked: Vec<_> = due
        .iter()
        .filter(|it| it.manual)
        .map(|it| it.event.position)
        .collect();
    assert_eq!(due.len(), 5);
    // The job ignores the destination's patterns and offers every event, except those that were
    // already waiting.
    assert_eq!(asked, [at[0], at[3], at[4], at[5]]);
    // An event that is emitted after the job was created is not part of it.
    let job = offer(&scene, "a", &EventFilter::default(), None)
        .await
        .unwrap();
    scene.emit("order.created", None, 1).await;
    scene.pass("a", &[]).await;
    scene.work().await;
    assert_eq!(scene.states("a").await.len(), 7);
    assert_eq!(scene.store().job(&scene.ops, job.id).await.unwrap().done, 1);
}

#[tokio::test]
async fn one_event_is_offered_again_by_its_id_without_a_look_at_the_others() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 30).await;
    scene.pass("a", &[]).await;
    let events = scene.events().await;
    for which in [0, 7, 29] {
        let filter = EventFilter {
            event_id: Some(events[which].event.id),
            ..EventFilter::default()
        };
        let job = offer(&scene, "a", &filter, None).await.unwrap();
        assert_eq!(job.total, Some(1));
        // The job finds the event in a single batch.
        assert_eq!(scene.work().await, 1);
        let due = scene.store().due("a", &[], 100, 0).await.unwrap();
        assert!(
            due.iter()
                .any(|it| it.event.position == events[which].position)
        );
    }
    assert_eq!(scene.states("a").await.len(), 3);
}

#[tokio::test]
async fn an_event_is_offered_again_to_the_partition_that_has_its_shard() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 40).await;
    for partition in ["a/0", "a/1", "a/2"] {
        scene.pass(partition, &[]).await;
    }
    let some = offer(&scene, "a", &EventFilter::default(), None).await;
    assert!(matches!(some, Err(AdminError::Conflict { .. })), "{some:?}");
    scene.pass("a/3", &[]).await;
    let outcome = offer(&scene, "a", &EventFilter::default(), Some(2)).await;
    assert!(
        matches!(outcome, Err(AdminError::Conflict { .. })),
        "{outcome:?}"
    );
    offer(&scene, "a", &EventFilter::default(), Some(4))
        .await
        .unwrap();
    scene.work().await;
    let wrong = "SELECT count(*) FROM hapax.delivery JOIN hapax.outbox_event ON id = position
        WHERE destination <> 'a/' || shard % 4";
    assert_eq!(scene.fixture.count(wrong).await, 0);
    assert_eq!(
        scene
            .fixture
            .count("SELECT count(*) FROM hapax.delivery")
            .await,
        40
    );
}

#[tokio::test]
async fn a_job_is_rate_limited_and_cancelled() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 30).await;
    scene.pass("a", &positions(&scene).await).await;
    let asked = JobOptions {
        per_second: Some(10),
        request_key: None,
        seen: None,
    };
    let job = replay(&scene, &scene.ops, &EventFilter::default(), &asked)
        .await
        .unwrap();
    let before = scene.moment().await;
    let ran = scene.store().run_job().await.unwrap();
    assert_ne!(ran, Ran::Nothing);
    // At ten per second, the next batch is due a second later.
    let waits = "SELECT extract(epoch FROM next_at)::float8 FROM hapax.job";
    let next = scene.fixture.plain.query_one(waits, &[]).await.unwrap();
    assert!(next.get::<_, f64>(0) >= before + 1.0);
    scene.put_off().await;
    assert_eq!(scene.work().await, 0);
    scene.store().cancel_job(&scene.ops, job.id).await.unwrap();
    let again = scene.store().cancel_job(&scene.ops, job.id).await;
    assert!(
        matches!(again, Err(AdminError::Conflict { .. })),
        "{again:?}"
    );
    scene.hurry().await;
    assert_eq!(scene.work().await, 0);
    let found = scene.store().job(&scene.ops, job.id).await.unwrap();
    assert_eq!((found.done, found.state.as_str()), (10, "cancelled"));
    let never = JobOptions {
        per_second: Some(0),
        request_key: None,
        seen: None,
    };
    let never = replay(&scene, &scene.ops, &EventFilter::default(), &never).await;
    assert!(
        matches!(never, Err(AdminError::Invalid { .. })),
        "{never:?}"
    );
}

#[tokio::test]
async fn asked_for_twice_under_one_key_a_job_is_begun_once() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 3).await;
    scene.pass("a", &positions(&scene).await).await;
    let asked = JobOptions {
        per_second: None,
        request_key: Some("k1".to_owned()),
        seen: None,
    };
    let filter = EventFilter {
        kind: Some("order.*".to_owned()),
        ..EventFilter::default()
    };
    let (one, two) = tokio::join!(
        replay(&scene, &scene.ops, &filter, &asked),
        replay(&scene, &scene.ops, &filter, &asked),
    );
    assert_eq!(one.unwrap().id, two.unwrap().id);
    scene.work().await;
    let late = replay(&scene, &scene.ops, &filter, &asked).await.unwrap();
    assert_eq!(late.state, "done");
    let other = replay(&scene, &scene.ops, &EventFilter::default(), &asked).await;
    assert!(
        matches!(other, Err(AdminError::Conflict { .. })),
        "{other:?}"
    );
    let somebody = replay(&scene, &Actor::new("else"), &filter, &asked)
        .await
        .unwrap();
    assert_ne!(somebody.id, late.id);
    assert_eq!(
        scene.fixture.count("SELECT count(*) FROM hapax.job").await,
        2
    );
}

#[tokio::test]
async fn a_job_that_cannot_be_done_is_given_up_and_says_why() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 1).await;
    scene.pass("a", &positions(&scene).await).await;
    let job = replay(
        &scene,
        &scene.ops,
        &EventFilter::default(),
        &JobOptions::default(),
    )
    .await
    .unwrap();
    let spoil = "UPDATE hapax.job SET arguments = '{'";
    scene.fixture.plain.execute(spoil, &[]).await.unwrap();
    for _ in 0..10 {
        scene.hurry().await;
        let ran = scene.store().run_job().await.unwrap();
        assert_eq!(ran, Ran::Failed { job: job.id });
    }
    let found = scene.store().job(&scene.ops, job.id).await.unwrap();
    assert_eq!(found.state, "failed");
    assert!(found.error.unwrap().contains("arguments of job"));
    scene.hurry().await;
    assert_eq!(scene.work().await, 0);
}

async fn replay(
    scene: &Scene,
    actor: &Actor,
    filter: &EventFilter,
    asked: &JobOptions,
) -> Result<Job, AdminError> {
    let begun = scene
        .store()
        .start_dead_letter_job(actor, "a", filter, None, asked);
    begun.await
}

async fn discard(
    scene: &Scene,
    actor: &Actor,
    filter: &EventFilter,
    asked: &JobOptions,
) -> Result<Job, AdminError> {
    let (store, reason) = (scene.store(), Some("too old"));
    let begun = store.start_dead_letter_job(actor, "a", filter, reason, asked);
    begun.await
}

async fn offer(
    scene: &Scene,
    destination: &str,
    filter: &EventFilter,
    partitions: Option<u8>,
) -> Result<Job, AdminError> {
    let asked = JobOptions::default();
    scene
        .store()
        .start_event_job(&scene.ops, destination, filter, partitions, &asked)
        .await
}

async fn positions(scene: &Scene) -> Vec<i64> {
    scene.events().await.iter().map(|it| it.position).collect()
}
