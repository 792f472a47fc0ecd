//! Conformance tests of single-shot requests: alone or in a group, each is executed completely or
//! not at all.

use futures_util::{FutureExt, future::join_all};
use hapax::{
    event::NewEvent,
    idempotency::{OnExpired, PlannedRequest, Taken},
    store::{ClaimOutcome, Keys, StoreError},
};

use super::{
    Statement, StoreUnderTest,
    fixture::{
        Fixture, check_all_is_stored, check_error, check_one_ran, fire_or_replay, plan,
        run_or_replay,
    },
};
use crate::{
    assert_matches,
    events::{RETENTION, claim, fingerprint, response, single_shot},
};

/// One call commits the rows, the events and the response.
pub async fn a_single_shot_commits_rows_events_and_answer<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let ran = fixture.store().execute_plan(plan::<S>("k", "row")).await;
    let fresh_for = RETENTION;
    assert_eq!(ran.expect("it runs"), ClaimOutcome::Open(fresh_for));
    check_all_is_stored(&fixture.reopen().await).await;
}

/// A single-shot request may have no statements and only a response.
pub async fn a_single_shot_without_statements_keeps_its_answer<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let plan = single_shot::<Statement<S>>(claim("k"), Vec::new(), "{}");
    let ran = fixture.store().execute_plan(plan).await.expect("it runs");
    assert_matches!(ran, ClaimOutcome::Open(_));
    assert_eq!(fixture.replay(claim("k")).await, response("{}"));
}

/// A taken key is reported as by a claim, and nothing is executed.
pub async fn a_single_shot_of_a_taken_key_runs_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(claim("k"), "first", &response("first")).await;
    let run = async |plan| {
        fixture
            .store()
            .execute_plan(plan)
            .await
            .expect("it returns a result")
    };
    let outcome = run(plan::<S>("k", "second")).await;
    let fresh_for = RETENTION;
    let response = response("first");
    assert_eq!(
        outcome,
        ClaimOutcome::Taken(Taken::Replay {
            response,
            fresh_for
        })
    );
    let mut other = plan::<S>("k", "second");
    other.claim.fingerprint = fingerprint(2);
    assert_eq!(run(other).await, ClaimOutcome::Taken(Taken::Mismatch));
    fixture.clock.advance(RETENTION);
    let mut late = plan::<S>("k", "second");
    late.claim.on_expired = OnExpired::Gone;
    assert_eq!(run(late).await, ClaimOutcome::Taken(Taken::Gone));
    assert_eq!(fixture.rows().await, ["first"]);
    assert_eq!(fixture.events().await.len(), 0);
}

/// An expired key is also free for a single-shot request.
pub async fn a_single_shot_of_an_expired_key_runs<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.run(claim("k"), "first", &response("first")).await;
    fixture.clock.advance(RETENTION);
    let ran = fixture.store().execute_plan(plan::<S>("k", "second")).await;
    assert_matches!(ran, Ok(ClaimOutcome::Open(_)));
    assert_eq!(fixture.replay(claim("k")).await, response("second"));
    assert_eq!(fixture.rows().await, ["first", "second"]);
}

/// Of many concurrent requests with one key, one is executed and the others receive its response.
pub async fn of_many_single_shots_of_one_key_one_runs<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let asked = (0..50).map(|number: u32| {
        let store = fixture.store().clone();
        tokio::spawn(async move { fire_or_replay::<S>(&store, "k", &number.to_string()).await })
    });
    check_one_ran(&fixture, join_all(asked).await).await;
}

/// Single-plan requests and transactions with the same key exclude each other.
pub async fn a_single_shot_and_a_claim_of_one_key_run_once<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let asked = (0..50).map(|number: u32| {
        let store = fixture.store().clone();
        tokio::spawn(async move {
            if number.is_multiple_of(2) {
                fire_or_replay::<S>(&store, "k", &number.to_string()).await
            } else {
                run_or_replay::<S>(&store, claim("k"), &number.to_string()).await
            }
        })
    });
    check_one_ran(&fixture, join_all(asked).await).await;
}

/// Hundreds of concurrent requests all commit, each with its own row, event and response.
pub async fn hundreds_of_single_shots_at_once_all_commit<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let fired = (0..400).map(|number: u32| {
        let store = fixture.store().clone();
        tokio::spawn(async move {
            let text = number.to_string();
            store.execute_plan(plan::<S>(&text, &text)).await
        })
    });
    for ran in join_all(fired).await {
        let ran = ran.expect("no panic").expect("it runs");
        assert_matches!(ran, ClaimOutcome::Open(_));
    }
    assert_eq!(fixture.rows().await.len(), 400);
    assert_eq!(fixture.events().await.len(), 400);
    for number in 0..400 {
        let text = number.to_string();
        assert_eq!(fixture.replay(claim(&text)).await, response(&text));
    }
}

/// A statement that fails rolls back its own request and no other one.
pub async fn a_failing_statement_leaves_nothing_and_harms_no_neighbour<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    check_neighbours(
        &fixture,
        |plan| plan.statements.push(S::failing_statement()),
        |error| matches!(error, StoreError::Statement { .. }),
    )
    .await;
}

/// An event that is refused rolls back its own request and no other one.
pub async fn a_refused_event_leaves_nothing_and_harms_no_neighbour<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let refused = NewEvent::json("no event type", &1);
    check_neighbours(
        &fixture,
        |plan| plan.events.push(refused.clone()),
        |error| matches!(error, StoreError::Event(_)),
    )
    .await;
}

/// If a caller leaves before the response, the request was executed completely or not at all.
pub async fn an_abandoned_single_shot_is_whole_or_nothing<S: StoreUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    for number in 0..50 {
        let text = number.to_string();
        drop(
            fixture
                .store()
                .execute_plan(plan::<S>(&text, &text))
                .now_or_never(),
        );
    }
    for number in 0..50 {
        let text = number.to_string();
        let outcome = fire_or_replay::<S>(fixture.store(), &text, &text).await;
        assert_eq!(outcome, response(&text));
    }
    assert_eq!(fixture.rows().await.len(), 50);
    assert_eq!(fixture.events().await.len(), 50);
}

/// Executes many requests concurrently, of which every third one must fail: these have no effect,
/// and the others commit.
async fn check_neighbours<S: StoreUnderTest>(
    fixture: &Fixture<S>,
    spoil: impl Fn(&mut PlannedRequest<Statement<S>>),
    fits: impl Fn(&StoreError) -> bool,
) {
    let spoilt = |number: usize| number.is_multiple_of(3);
    let fired = (0..60).map(|number| {
        let text = number.to_string();
        let mut plan = plan::<S>(&text, &text);
        if spoilt(number) {
            spoil(&mut plan);
        }
        fixture.store().execute_plan(plan)
    });
    for (number, ran) in join_all(fired).await.into_iter().enumerate() {
        if spoilt(number) {
            check_error(ran, "refused because of its content", &fits);
        } else {
            assert_matches!(ran, Ok(ClaimOutcome::Open(_)), "{number}");
        }
    }
    assert_eq!(fixture.rows().await.len(), 40);
    assert_eq!(fixture.events().await.len(), 40);
    for number in (0..60).filter(|number| spoilt(*number)) {
        let key = number.to_string();
        fixture.run(claim(&key), &key, &response("corrected")).await;
    }
}
