//! Health checks of the instances.

use std::time::Duration;

use hapax_runtime::config::Span;
use hapax_testkit::wait::eventually;

use crate::{
    stage::{PATIENCE, Stage, settings},
    upstream::{Reply, Upstream, ok},
};

#[tokio::test]
async fn a_check_uses_the_connection_of_the_check_before() {
    const CHECKS: usize = 6;
    let upstream = Upstream::start(|_| Reply::Bytes(ok("200 OK", "{}"))).await;
    let mut settings = settings(&[&upstream.url()]);
    let service = settings.upstreams.get_mut("service").unwrap();
    service.health_path = Some("/health".to_owned());
    service.health_every = Span(Duration::from_millis(300));
    let _stage = Stage::with(&settings).await;
    eventually(PATIENCE, async || upstream.ledger().len() >= CHECKS).await;
    // A check that is late on a slow machine is repeated on another connection.
    let connections = upstream.connections();
    assert!(connections <= CHECKS / 2, "{connections}");
}
