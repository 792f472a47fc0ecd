//! Jobs of other versions, of workers whose connection is cut, and with broken rows.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hapax::{
    admin::{
        Actor, AdminError, DeliveryAdmin as _, EventFilter, Job, JobAdmin as _, JobOptions, JobStep,
    },
    failpoint::Failpoints,
};

use super::scene::Scene;

#[tokio::test]
async fn a_job_without_a_valid_snapshot_leaves_out_what_changed_after_its_start() {
    let older = "(arguments::jsonb - 'seen' - 'until')::text";
    let elsewhere = "(arguments::jsonb || '{\"seen\": \"9000000:9000000: - 7\"}')::text";
    for arguments in [older, elsewhere] {
        check_bound(false, arguments).await;
        check_bound(true, arguments).await;
    }
}

#[tokio::test]
async fn a_job_whose_connection_is_cut_continues_and_does_nothing_twice() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 25).await;
    let at = scene.positions().await;
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
            Ok(JobStep::Nothing) => break,
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

#[tokio::test]
async fn a_job_that_cannot_be_read_is_given_up_with_its_error() {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 1).await;
    scene.pass("a", &scene.positions().await).await;
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
        assert_eq!(ran, JobStep::Failed { job: job.id });
    }
    let found = scene.store().job(&scene.ops, job.id).await.unwrap();
    assert_eq!(found.state, "failed");
    assert!(found.error.unwrap().contains("arguments of job"));
    scene.hurry().await;
    assert_eq!(scene.work().await, 0);
}

/// Requires that a job handles three of four dead letters: one of the four is replayed and becomes
/// dead again before the job reaches it. After each batch another event becomes dead, which the job
/// must ignore.
async fn check_bound(discards: bool, arguments: &str) {
    let scene = Scene::new().await;
    scene.emit("order.created", None, 5).await;
    let at = scene.positions().await;
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
        if store.run_job().await.unwrap() == JobStep::Nothing {
            break;
        }
        scene.emit("order.created", None, 1).await;
        let newest = *scene.positions().await.last().unwrap();
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
