//! The laws of offers that are not taken: again, or never, and told in time.

use std::time::Duration;

use hapax::sink::{Outcome, SinkError};
use tokio::time::{Instant, timeout};

use super::{
    Mood, SinkUnderTest,
    bench::{Bench, offers},
};

/// What a busy machine may add to a sink's timeout.
const GRACE: Duration = Duration::from_secs(5);
/// Long enough for an offer to be on its way.
const HALF_WAY: Duration = Duration::from_millis(50);

/// A failure that may pass says so, and when it has passed the event arrives under its id.
pub async fn a_failing_far_side_is_unavailable_and_takes_the_event_later<S: SinkUnderTest>() {
    check_passing::<S>(Mood::Fail).await;
}

/// An outage is a failure that may pass.
pub async fn a_far_side_that_is_down_is_unavailable_and_takes_the_event_later<S: SinkUnderTest>() {
    check_passing::<S>(Mood::Down).await;
}

/// A refusal for good is no reason to come again, and concerns that event alone.
pub async fn a_refusal_for_good_is_rejected<S: SinkUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    if !bench.under_test.tell(Mood::Refuse).await {
        return;
    }
    let offers = offers(2);
    let outcome = bench.offer(&offers[0]).await;
    assert!(
        matches!(outcome, Err(SinkError::Rejected { .. })),
        "{outcome:?}"
    );
    assert_eq!(bench.under_test.arrivals().await, []);
    bench.check_taken_later(&offers[1]).await;
}

/// A far side that wants no events any more is told apart from one that refuses an event.
pub async fn a_far_side_that_wants_nothing_more_is_gone<S: SinkUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    if !bench.under_test.tell(Mood::Gone).await {
        return;
    }
    let offers = offers(1);
    let outcome = bench.offer(&offers[0]).await;
    assert!(
        matches!(outcome, Err(SinkError::Gone { .. })),
        "{outcome:?}"
    );
    bench.check_taken_later(&offers[0]).await;
}

/// A far side that never answers costs the timeout and no more.
pub async fn a_hang_ends_within_the_timeout<S: SinkUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let Some(bound) = bench.under_test.timeout() else {
        return;
    };
    assert!(
        bench.under_test.tell(Mood::Hang).await,
        "what has a timeout can be made to wait"
    );
    let offers = offers(3);
    let start = Instant::now();
    for outcome in bench.deliver(&offers).await {
        check_unavailable(&outcome);
    }
    let calls = u32::try_from(offers.len()).unwrap_or(u32::MAX);
    let took = start.elapsed();
    assert!(took < bound * calls + GRACE, "it took {took:?}");
    bench.check_taken_later(&offers[0]).await;
}

/// A relay that stops drops its offers wherever they are; the next ones are none the worse.
pub async fn a_call_that_is_dropped_half_way_harms_no_later_one<S: SinkUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let offers = offers(4);
    let sink = bench.sink();
    drop(sink.deliver(&offers[..1]));
    // Dropped at the first time that it waits, and again where it waits for an answer.
    drop(timeout(Duration::ZERO, sink.deliver(&offers[1..2])).await);
    if bench.under_test.tell(Mood::Hang).await {
        let cut_off = timeout(HALF_WAY, sink.deliver(&offers[2..3])).await;
        assert!(cut_off.is_err(), "a hang does not end: {cut_off:?}");
    }
    for offer in &offers {
        bench.check_taken_later(offer).await;
    }
}

/// In a batch each offer has its own fate.
pub async fn an_offer_that_fails_fails_no_other<S: SinkUnderTest>() {
    let bench = Bench::<S>::fresh().await;
    let offers = offers(5);
    let moods = [(1, Mood::Fail), (3, Mood::Refuse)];
    for (index, mood) in moods {
        if !bench
            .under_test
            .tell_about(offers[index].event().id, mood)
            .await
        {
            return;
        }
    }
    let outcomes = bench.deliver(&offers).await;
    check_unavailable(&outcomes[1]);
    assert!(
        matches!(outcomes[3], Err(SinkError::Rejected { .. })),
        "{:?}",
        outcomes[3]
    );
    for index in [0, 2, 4] {
        assert!(outcomes[index].is_ok(), "{index}: {:?}", outcomes[index]);
        assert_eq!(bench.arrived(offers[index].event().id).await.len(), 1);
    }
    for index in [1, 3] {
        assert_eq!(bench.arrived(offers[index].event().id).await, []);
    }
}

async fn check_passing<S: SinkUnderTest>(mood: Mood) {
    let bench = Bench::<S>::fresh().await;
    if !bench.under_test.tell(mood).await {
        return;
    }
    let offers = offers(2);
    for outcome in bench.deliver(&offers).await {
        check_unavailable(&outcome);
    }
    assert_eq!(bench.under_test.arrivals().await, []);
    for offer in &offers {
        bench.check_taken_later(offer).await;
    }
}

#[track_caller]
fn check_unavailable(outcome: &Outcome) {
    assert!(
        matches!(outcome, Err(SinkError::Unavailable { .. })),
        "{outcome:?}"
    );
}
