//! Conformance tests of failed deliveries: transient or permanent, and reported in time.

use std::time::Duration;

use hapax::sink::{Outcome, SinkError};
use tokio::time::{Instant, timeout};

use super::{
    Mood, SinkUnderTest,
    fixture::{Fixture, offers, offers_of},
};
use crate::assert_matches;

/// Tolerance for a busy machine, in addition to a sink's timeout.
const GRACE: Duration = Duration::from_secs(5);
/// More than the number of consecutive failures that open a destination's breaker.
const STRAYS: usize = 12;
/// Long enough for a delivery to be in flight.
const HALF_WAY: Duration = Duration::from_millis(50);

/// A transient failure is reported as such, and after it the event arrives with its id.
pub async fn a_failing_receiver_is_unavailable_and_takes_the_event_later<S: SinkUnderTest>() {
    check_passing::<S>(Mood::Fail).await;
}

/// An outage is a transient failure.
pub async fn a_receiver_that_is_down_is_unavailable_and_takes_the_event_later<S: SinkUnderTest>() {
    check_passing::<S>(Mood::Down).await;
}

/// A permanent refusal is reported as such, and applies to that event only.
pub async fn a_permanent_refusal_is_rejected<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    if !fixture.under_test.tell(Mood::Refuse).await {
        return;
    }
    let offers = offers(2);
    let outcome = fixture.offer(&offers[0]).await;
    assert_matches!(outcome, Err(SinkError::Rejected { .. }));
    assert_eq!(fixture.under_test.arrivals().await, []);
    fixture.check_taken_later(&offers[1]).await;
}

/// A receiver that wants no more events is distinguished from one that refuses an event.
pub async fn a_receiver_that_wants_nothing_more_is_gone<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    if !fixture.under_test.tell(Mood::Gone).await {
        return;
    }
    let offers = offers(1);
    let outcome = fixture.offer(&offers[0]).await;
    assert_matches!(outcome, Err(SinkError::Gone { .. }));
    fixture.check_taken_later(&offers[0]).await;
}

/// A receiver that never responds costs the timeout and no more.
pub async fn a_hang_ends_within_the_timeout<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let Some(bound) = fixture.under_test.timeout() else {
        return;
    };
    assert!(
        fixture.under_test.tell(Mood::Hang).await,
        "a receiver of a sink with a timeout must support `Mood::Hang`"
    );
    let offers = offers(3);
    let start = Instant::now();
    for outcome in fixture.deliver(&offers).await {
        check_may_pass(&outcome);
    }
    let calls = u32::try_from(offers.len()).unwrap_or(u32::MAX);
    let took = start.elapsed();
    assert!(took < bound * calls + GRACE, "it took {took:?}");
    fixture.check_taken_later(&offers[0]).await;
}

/// A relay that stops drops its deliveries at any point. Later deliveries are not affected.
pub async fn a_call_that_is_dropped_half_way_harms_no_later_one<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let offers = offers(4);
    let sink = fixture.sink();
    drop(sink.deliver(&offers[..1]));
    // Dropped at the first await, and again while waiting for a response.
    drop(timeout(Duration::ZERO, sink.deliver(&offers[1..2])).await);
    if fixture.under_test.tell(Mood::Hang).await {
        let cut_off = timeout(HALF_WAY, sink.deliver(&offers[2..3])).await;
        assert!(
            cut_off.is_err(),
            "the delivery must still be waiting: {cut_off:?}"
        );
    }
    for offer in &offers {
        fixture.check_taken_later(offer).await;
    }
}

/// Each delivery in a batch has its own outcome.
pub async fn an_offer_that_fails_fails_no_other<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let offers = offers(5);
    let moods = [(1, Mood::Fail), (3, Mood::Refuse)];
    for (index, mood) in moods {
        if !fixture
            .under_test
            .tell_about(offers[index].event().id, mood)
            .await
        {
            return;
        }
    }
    let outcomes = fixture.deliver(&offers).await;
    check_may_pass(&outcomes[1]);
    assert!(
        matches!(outcomes[3], Err(SinkError::Rejected { .. })),
        "{:?}",
        outcomes[3]
    );
    for index in [0, 2, 4] {
        assert!(outcomes[index].is_ok(), "{index}: {:?}", outcomes[index]);
        assert_eq!(fixture.arrived(offers[index].event().id).await.len(), 1);
    }
    for index in [1, 3] {
        assert_eq!(fixture.arrived(offers[index].event().id).await, []);
    }
}

/// If the receiver cannot place certain events, it declines only these, even if there are many. The
/// outcomes do not say that the receiver is unavailable, and the other events arrive.
pub async fn an_event_that_the_receiver_has_no_place_for_is_declined_alone<S: SinkUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let Some(stray) = fixture.under_test.stray().await else {
        return;
    };
    let is_stray = |index: usize| index != STRAYS && index != 2 * STRAYS;
    let events = (0..=2 * STRAYS).map(|index| {
        if is_stray(index) {
            stray.clone()
        } else {
            crate::events::event(&index.to_string())
        }
    });
    let offers = offers_of(events);
    let outcomes = fixture.deliver(&offers).await;
    for (index, (offer, outcome)) in offers.iter().zip(&outcomes).enumerate() {
        let arrived = fixture.arrived(offer.event().id).await.len();
        if is_stray(index) {
            let is_declined = matches!(outcome, Err(SinkError::Declined { .. }));
            assert!(is_declined, "{index}: {outcome:?}");
            assert_eq!(arrived, 0, "{index}");
        } else {
            assert!(outcome.is_ok(), "{index}: {outcome:?}");
            assert_eq!(arrived, 1, "{index}");
        }
    }
}

async fn check_passing<S: SinkUnderTest>(mood: Mood) {
    let fixture = Fixture::<S>::fresh().await;
    if !fixture.under_test.tell(mood).await {
        return;
    }
    let offers = offers(2);
    for outcome in fixture.deliver(&offers).await {
        check_may_pass(&outcome);
    }
    assert_eq!(fixture.under_test.arrivals().await, []);
    for offer in &offers {
        fixture.check_taken_later(offer).await;
    }
}

#[track_caller]
fn check_may_pass(outcome: &Outcome) {
    assert_matches!(
        outcome,
        Err(SinkError::Unavailable { .. } | SinkError::Declined { .. })
    );
}
