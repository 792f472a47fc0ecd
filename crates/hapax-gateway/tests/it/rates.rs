//! Rates of an upstream: a request that exceeds one is refused before its key is claimed.

use std::{num::NonZeroU32, time::Duration};

use hapax_gateway::{
    config::{Rate, Settings},
    tenant::TenantSettings,
};
use hapax_runtime::config::Span;
use hapax_testkit::{clock::system_clock, http::HttpResponse};

use crate::{
    stage::{Stage, check_problem, settings},
    upstream::{Reply, Upstream, ok},
};

#[tokio::test]
async fn a_tenant_that_exceeds_its_rate_is_refused_before_its_key_is_claimed() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let mut settings = limited(&upstream);
    let stage = Stage::with(&settings).await;
    assert_eq!(post(&stage, "alice", Some("a"), "{}").await.status, 201);
    // A replay counts as well.
    assert_eq!(post(&stage, "alice", Some("a"), "{}").await.status, 201);
    for key in [Some("b"), None] {
        let refused = post(&stage, "alice", key, "{}").await;
        let detail = check_problem(&refused, 429, "RATE_LIMIT.exceeded");
        assert!(detail.contains("at most 2 requests"), "{detail}");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
    }
    assert_eq!(upstream.ledger().len(), 1);
    assert_eq!(post(&stage, "bob", Some("b"), "{}").await.status, 201);
    assert_eq!(upstream.ledger().len(), 2);

    // The key was not claimed: with another payload, it is not a different request.
    let service = settings.upstreams.get_mut("service").unwrap();
    service.tenant_rate = None;
    let free = stage.beside(system_clock(), &settings).await;
    let sent = post(&free, "alice", Some("b"), "{\"other\":1}").await;
    assert_eq!(sent.status, 201, "{sent:?}");
}

#[tokio::test]
async fn the_rate_of_an_upstream_is_that_of_all_its_requests() {
    let upstream = Upstream::start(|_| Reply::Bytes(ok("201 Created", "{}"))).await;
    let mut settings = limited(&upstream);
    let service = settings.upstreams.get_mut("service").unwrap();
    (service.rate, service.tenant_rate) = (service.tenant_rate, None);
    let stage = Stage::with(&settings).await;
    for (tenant, key, status) in [
        ("alice", Some("a"), 201),
        ("bob", None, 201),
        ("carol", None, 429),
        ("alice", Some("a"), 429),
    ] {
        let answer = post(&stage, tenant, key, "{}").await;
        assert_eq!(answer.status, status, "{tenant}: {answer:?}");
    }
    assert_eq!(upstream.ledger().len(), 2);
}

/// Two requests of a tenant in an hour.
fn limited(upstream: &Upstream) -> Settings {
    let mut settings = settings(&[&upstream.url()]);
    settings.tenant = TenantSettings::Header("x-tenant".to_owned());
    let service = settings.upstreams.get_mut("service").unwrap();
    service.tenant_rate = Some(Rate {
        requests: NonZeroU32::new(2).unwrap(),
        per: Span(Duration::from_hours(1)),
        burst: None,
    });
    settings
}

async fn post(stage: &Stage, tenant: &str, key: Option<&str>, body: &str) -> HttpResponse {
    let url = format!("{}/orders", stage.url);
    let mut headers = vec![("x-tenant", tenant), ("content-type", "application/json")];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    let answer = stage.client.post(&url, &headers, body.to_owned()).await;
    answer.unwrap()
}
