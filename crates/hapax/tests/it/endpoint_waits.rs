//! What passes before the request to an endpoint is not the time of the endpoint.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use hapax::{
    admin::{Actor, EndpointAdmin as _, EndpointDeliveryFilter, EndpointEdit, NewEndpoint},
    endpoint::{
        Endpoint, EndpointSettings, Endpoints, Exchange, FanOut, RequestExcerpt, Transport,
    },
    event::NewEvent,
    failpoint::Failpoints,
    key::Tenant,
    relay::Destination,
    sink::{Offer, SinkError},
};
use hapax_testkit::{
    clock::seeded_random,
    wait::{eventually, pace},
};
use tokio::time::Instant;

use crate::stage::{PATIENCE, Stage};

const WAIT: Duration = Duration::from_millis(500);

/// Takes long before each request, which fails at once.
struct LongPrepared;

impl Transport for LongPrepared {
    fn send<'a>(&'a self, _: &'a Endpoint, _: &'a Offer) -> BoxFuture<'a, Exchange> {
        Box::pin(async {
            let began = Instant::now();
            pace(WAIT).await;
            Exchange {
                outcome: Err(SinkError::unavailable("exchange", "it fails")),
                is_made: true,
                request: RequestExcerpt::default(),
                prepared_in: began.elapsed(),
            }
        })
    }

    fn sweep(&self) {}
}

#[tokio::test]
async fn the_duration_of_an_attempt_is_that_of_its_request() {
    let stage = Stage::new();
    let (operator, ops) = (stage.operator(), Actor::new("ops"));
    let new = NewEndpoint {
        id: "ep_1".to_owned(),
        edit: EndpointEdit {
            url: "https://a.example/".to_owned(),
            ..EndpointEdit::default()
        },
    };
    let created = operator.create_endpoint(&ops, "acme", &new, 50).await;
    created.unwrap();
    let settings = EndpointSettings {
        patience: PATIENCE,
        ..EndpointSettings::default()
    };
    let fan_out = FanOut::unbound();
    fan_out.bind(Endpoints::new(
        Arc::new(stage.store.clone()),
        Arc::new(LongPrepared),
        settings,
        stage.clock.clock(),
        seeded_random(4),
        Failpoints::none(),
    ));
    let relay = stage.relay(vec![Destination::new("customers", fan_out.sink())]);
    let tenant = Tenant::new("acme").unwrap();
    let event = NewEvent::json("order.paid", &1).tenant(tenant);
    stage.emit_event(event).await;
    let filter = EndpointDeliveryFilter::default();
    let attempts = async || {
        let page = operator.endpoint_deliveries(&ops, "acme", "ep_1", &filter, None, 10);
        page.await.unwrap().items
    };
    eventually(PATIENCE, async || !attempts().await.is_empty()).await;
    let duration = attempts().await[0].duration;
    assert!(duration < WAIT, "{duration:?}");
    relay.drain().await;
}
