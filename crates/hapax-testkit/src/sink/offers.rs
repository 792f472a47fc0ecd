//! Conformance tests of successful deliveries: events arrive unchanged, with their id.

use std::sync::Arc;

use futures_util::future::join_all;
use hapax::{
    event::{NewEvent, Payload},
    limits::RESPONSE_HEAD_BYTES,
    sink::{Offer, SinkError},
};

use super::{
    Mood, SinkUnderTest,
    fixture::{Fixture, offers, offers_of},
};

/// An accepted event is at the receiver and is identified by the event id.
pub async fn an_accepted_offer_arrives_with_its_event_id<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let offers = offers(1);
    let outcome = fixture.offer(&offers[0]).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(fixture.arrived(offers[0].event().id).await.len(), 1);
    assert_eq!(fixture.under_test.arrivals().await.len(), 1);
}

/// If the payload is transferred, not a byte of it changes. A payload that cannot be transferred is
/// rejected.
pub async fn a_payload_arrives_byte_for_byte<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let text = "{ \"n\": 1.0,\n \"n\":9007199254740993, \"u\":\"caf\u{e9} \\u00e9 \u{1f980}\" }";
    let json = [text, "0", "\"a\\/b\"", "[ ]"].map(|text| Payload::Json(text.to_owned()));
    let binary = Payload::Binary {
        content_type: "application/x-thing".to_owned(),
        bytes: (0..=255).collect(),
    };
    let payloads = json.into_iter().chain([binary]);
    for offer in offers_of(payloads.map(|payload| NewEvent::new("order.created", payload))) {
        let payload = &offer.event().payload;
        match fixture.offer(&offer).await {
            Ok(_) => {}
            Err(SinkError::Rejected { .. }) if matches!(payload, Payload::Binary { .. }) => {
                continue;
            }
            Err(error) => panic!("{payload:?} was not taken: {}", error.error_chain()),
        }
        let arrived = fixture.arrived(offer.event().id).await;
        assert_eq!(arrived.len(), 1, "{payload:?}");
        if let Some(arrived) = &arrived[0] {
            assert_eq!(**arrived, *payload.bytes(), "{payload:?}");
        }
    }
}

/// For any number of deliveries in a call, each has an outcome and each arrives.
pub async fn there_is_one_outcome_for_each_offer<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let (offers, mut rest) = (offers(11), 0);
    for count in [0, 1, 3, 7] {
        let batch = &offers[rest..rest + count];
        rest += count;
        let outcomes = fixture.deliver(batch).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
    assert_each_arrived(&fixture, &offers).await;
}

/// Several calls may be in progress at the same time.
pub async fn batches_at_once_all_arrive<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let offers = offers(24);
    let batches = offers.chunks(3).map(|batch| fixture.deliver(batch));
    for outcome in join_all(batches).await.into_iter().flatten() {
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    assert_each_arrived(&fixture, &offers).await;
}

/// A relay that died before it recorded the outcome delivers the same event again, and the delivery
/// succeeds.
pub async fn an_event_that_is_offered_again_is_accepted_again<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let first = offers(1).remove(0);
    let again = Offer {
        event: Arc::clone(&first.event),
        attempt: 2,
        trace: None,
    };
    for offer in [&first, &again] {
        let outcome = fixture.offer(offer).await;
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    let arrived = fixture.arrived(first.event().id).await;
    assert!((1..=2).contains(&arrived.len()), "{arrived:?}");
}

/// Only the beginning of a response is kept, even if the response is long.
pub async fn a_long_response_is_cut<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    if !fixture.under_test.tell(Mood::Talk).await {
        return;
    }
    let offers = offers(1);
    let receipt = match fixture.offer(&offers[0]).await {
        Ok(receipt) => receipt,
        Err(error) => error.receipt().clone(),
    };
    let kept = receipt.head.len();
    assert!(kept <= RESPONSE_HEAD_BYTES, "{kept} bytes were kept");
    fixture.check_taken_later(&offers[0]).await;
}

async fn assert_each_arrived<S: SinkUnderTest>(fixture: &Fixture<S>, offers: &[Offer]) {
    for offer in offers {
        let arrived = fixture.arrived(offer.event().id).await;
        assert_eq!(arrived.len(), 1, "event {}", offer.event.position);
    }
}
