//! A database that is set back to an earlier state while a relay runs.

use std::collections::BTreeSet;

use hapax_testkit::{http::HttpReceiver, wait::eventually};

use super::Stage;
use crate::{hapax::PATIENCE, store::Store};

const COPY: &str = "
    CREATE TABLE endpoint_copy AS TABLE hapax.endpoint;
    CREATE TABLE version_copy AS TABLE hapax.endpoint_version;";
const SET_BACK: &str = "
    BEGIN;
    DELETE FROM hapax.endpoint;
    INSERT INTO hapax.endpoint SELECT * FROM endpoint_copy;
    UPDATE hapax.endpoint_version SET version = (SELECT version FROM version_copy);
    COMMIT;";

/// The versions of the changes before and after the restore are the same.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_database_was_set_back_events_go_to_the_endpoints_that_it_has() {
    let stage = Stage::new(Store::Postgres).await;
    let receiver = HttpReceiver::start().await;
    let (kept, _) = stage.create("acme", &receiver.url("/kept"), &[]);
    let (moved, _) = stage.create("acme", &receiver.url("/moved"), &[]);
    let relay = stage.relay().await;
    let client = stage.client().await;
    client.batch_execute(COPY).await.unwrap();
    move_to(&stage, &moved, &receiver.url("/lost"));
    stage
        .run(&["delete", &kept, "--tenant", "acme", "--yes"])
        .ended(0);
    stage.emit("acme", "a", 1).await;
    eventually(PATIENCE, async || paths(&receiver, 0).contains("/lost")).await;
    client.batch_execute(SET_BACK).await.unwrap();
    move_to(&stage, &moved, &receiver.url("/found"));
    stage.create("acme", &receiver.url("/new"), &[]);
    let before = receiver.received().len();
    stage.emit("acme", "a", 2).await;
    let expected = ["/found", "/kept", "/new"].map(str::to_owned);
    let has_all = async || paths(&receiver, before) == BTreeSet::from(expected.clone());
    eventually(PATIENCE, has_all).await;
    relay.stop().await;
}

fn move_to(stage: &Stage, endpoint: &str, url: &str) {
    let arguments = ["change", endpoint, "--tenant", "acme", "--url", url];
    stage.run(&arguments).ended(0);
}

/// The paths of the requests after the first ones.
fn paths(receiver: &HttpReceiver, first: usize) -> BTreeSet<String> {
    let requests = receiver.received();
    let later = requests.iter().skip(first);
    later.map(|it| it.path.clone()).collect()
}
