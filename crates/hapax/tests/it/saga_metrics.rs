//! Metrics of the sagas that need attention.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    event::Headers,
    saga::{Definition, Owned, Runner, SagaStatus, Settings, State},
    store::{Keys, SagaRows, Sagas, Transaction},
};
use hapax_sqlite::Tx;
use hapax_testkit::{clock::seeded_random, wait::eventually};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::stage::{PATIENCE, Stage};

const LEASE: Duration = Duration::from_secs(10);

#[test]
fn a_runner_reports_how_many_sagas_need_attention_and_that_none_does() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let stage = Stage::new();
            let settings = Settings::new(stage.clock.clock(), seeded_random(3));
            let wake = stage.store.notifier();
            let checkout: Definition<Tx> = Definition::new("checkout", 1);
            let runner = Runner::spawn(&stage.store, vec![checkout], settings, &wake);
            let says = async |name: &str, count: u32| {
                let line = format!("hapax_saga_needs_attention{{kind=\"{name}\"}} {count}");
                eventually(PATIENCE, async || handle.render().contains(&line)).await;
            };
            // A kind that the runner knows is reported before such a saga exists.
            says("checkout", 0).await;
            stand(&stage, "refund", State::NeedsAttention).await;
            says("refund", 1).await;
            stand(&stage, "refund", State::Failed).await;
            says("refund", 0).await;
            runner.drain().await;
        });
    });
}

/// Writes the state of the saga with this name, and starts the saga if it does not exist.
async fn stand(stage: &Stage, name: &str, stands: State) {
    let definition: Definition<Tx> = Definition::new(name, 1);
    let mut tx = stage.store.begin(None, Headers::new()).await.unwrap();
    let new = definition.begin(name, None, Bytes::new());
    tx.start_saga(&new).await.unwrap();
    tx.commit().await.unwrap();
    let saga = stage.store.seize_saga(name, LEASE).await.unwrap().unwrap();
    let owned = Owned::of(&saga);
    let status = SagaStatus {
        state: stands,
        ..saga.status
    };
    let mut tx = stage.store.lock_saga(&owned, LEASE).await.unwrap().tx;
    tx.write_status(&owned, &status).await.unwrap();
    tx.commit().await.unwrap();
}
