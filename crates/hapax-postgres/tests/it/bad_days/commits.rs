//! Commit recovery: the response to a COMMIT is lost, and the outcome must be determined correctly,
//! whether it was applied or not.

use std::time::Duration;

use futures_util::future::join_all;
use hapax::{
    event::Headers,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, response},
    proxy::{Deed, Moment, Trap},
    wait::eventually,
};
use tokio::time::{Instant, timeout};

use super::day::{Day, REQUEST_KINDS, RequestKind, SHORT, ask, order};
use crate::fixture::{INSERT, PATIENCE, plan};

/// The statement that stores the response.
const ANSWER: &str = "INSERT INTO hapax.idempotency_key";

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_happened_is_acknowledged_though_its_answer_was_lost() {
    let day = Day::new().await;
    for way in REQUEST_KINDS {
        for deed in [Deed::CutAfter, Deed::SwallowAfter] {
            let key = format!("{way:?} {deed:?}");
            let trap = day.proxy.once(Moment::commit(), deed);
            let outcome = order(&day.node, way, &key).await;
            check_committed(&trap);
            assert_eq!(outcome.unwrap(), response(&key), "{key}");
            assert_eq!(day.effects(&key).await, (1, 1, 1), "{key}");
            day.settle(way, &key, Ok(response(&key))).await;
        }
    }
}

/// The deadline passes while the result of the commit is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_happened_is_acknowledged_though_the_time_of_its_plan_ran_out() {
    let day = Day::with(|settings| settings.statement_max = PATIENCE).await;
    let mut planned = plan("k");
    planned.deadline = Some((Instant::now() + SHORT * 2).into_std());
    let trap = day.proxy.once(Moment::commit(), Deed::SwallowAfter);
    let outcome = timeout(PATIENCE / 2, day.node.execute_plan(planned)).await;
    check_committed(&trap);
    assert_matches!(outcome, Ok(Ok(ClaimOutcome::Open(_))));
    day.settle(RequestKind::PlannedRequest, "k", Ok(response("k")))
        .await;
}

/// Without a transaction, each statement of the pipeline would be committed on its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_statement_that_opens_a_plans_transaction_is_not_cancelled() {
    let day = Day::new().await;
    let mut planned = plan("k");
    planned.deadline = Some((Instant::now() + SHORT / 2).into_std());
    let cancelled = day.proxy.once(Moment::cancel(), Deed::HoldBefore);
    let begun = Moment::containing("SET LOCAL lock_timeout");
    let trap = day.proxy.once(begun, Deed::SwallowAfter);
    let outcome = day.node.execute_plan(planned).await;
    assert_eq!((trap.count(), cancelled.count()), (1, 0));
    assert_matches!(outcome, Ok(ClaimOutcome::Open(_)));
    day.proxy.heal().await;
    day.settle(RequestKind::PlannedRequest, "k", Ok(response("k")))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_did_not_happen_may_run_again_at_once() {
    let day = Day::new().await;
    let trap = day.proxy.once(Moment::commit(), Deed::CutBefore);
    let outcome = order(&day.node, RequestKind::Handler, "h").await;
    assert_matches!(outcome, Err(StoreError::Conflict { .. }));
    assert_eq!(trap.count(), 1);
    day.settle(RequestKind::Handler, "h", outcome).await;
    // The store itself runs a single-shot request again.
    let trap = day.proxy.once(Moment::commit(), Deed::CutBefore);
    let outcome = order(&day.node, RequestKind::PlannedRequest, "s").await;
    assert_eq!(outcome.as_ref().unwrap(), &response("s"));
    assert_eq!(trap.count(), 1);
    day.settle(RequestKind::PlannedRequest, "s", outcome).await;
}

/// The lost transaction has not locked its key, so nothing shows whether it still runs.
#[tokio::test(flavor = "multi_thread")]
async fn an_optimistic_commit_that_did_not_happen_yet_stays_unknown() {
    let day = Day::new().await;
    let trap = day.proxy.once(Moment::commit(), Deed::CutBefore);
    let outcome = order(&day.node, RequestKind::Optimistic, "cut").await;
    assert_matches!(outcome, Err(StoreError::Unavailable { .. }));
    assert_eq!(trap.count(), 1);
    day.settle(RequestKind::Optimistic, "cut", outcome).await;
    for retried_first in [true, false] {
        let key = format!("late, retried first: {retried_first}");
        let held = day.proxy.once(Moment::containing(ANSWER), Deed::HoldBefore);
        // The node stops waiting for the result, and looks the key up.
        let outcome = order(&day.node, RequestKind::Optimistic, &key).await;
        assert_matches!(outcome, Err(StoreError::Unavailable { .. }), "{key}");
        assert_eq!((held.count(), day.effects(&key).await), (1, (0, 0, 0)));
        let retry = async || ask(&day.good.store, RequestKind::Optimistic, &key).await;
        if retried_first {
            assert_eq!(retry().await, response(&key));
        }
        // The last pipeline arrives after all. It commits only if no retry has stored a response.
        held.release();
        day.good.idle().await;
        assert_eq!(day.effects(&key).await, (1, 1, 1), "{key}");
        assert_eq!(retry().await, response(&key));
        day.settle(RequestKind::Optimistic, &key, Ok(response(&key)))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_stays_unknown_while_nobody_can_be_asked() {
    let day = Day::new().await;
    for way in REQUEST_KINDS {
        for deed in [Deed::HoldBefore, Deed::HoldAfter] {
            let key = format!("{way:?} {deed:?}");
            let trap = day.proxy.once(Moment::commit(), deed);
            let node = day.node.clone();
            let asked = key.clone();
            let ordered = tokio::spawn(async move { order(&node, way, &asked).await });
            trap.sprung().await;
            day.proxy.refuse(true).await;
            day.proxy.reset();
            let outcome = ordered.await.unwrap();
            assert_matches!(outcome, Err(StoreError::Unavailable { .. }), "{key}");
            day.proxy.heal().await;
            day.settle(way, &key, outcome).await;
        }
    }
}

/// The look-up of the key runs into its time limit, which does not mean that nothing was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_stays_unknown_while_the_key_cannot_be_read() {
    let day = Day::new().await;
    for way in [RequestKind::Handler, RequestKind::PlannedRequest] {
        let key = format!("{way:?}");
        let trap = day.proxy.once(Moment::commit(), Deed::HoldAfter);
        let node = day.node.clone();
        let asked = key.clone();
        let ordered = tokio::spawn(async move { order(&node, way, &asked).await });
        trap.sprung().await;
        day.good
            .run("BEGIN; LOCK TABLE hapax.idempotency_key")
            .await;
        day.proxy.reset();
        let outcome = ordered.await.unwrap();
        day.good.run("ROLLBACK").await;
        assert_matches!(outcome, Err(StoreError::Unavailable { .. }), "{key}");
        day.settle(way, &key, outcome).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_commit_whose_key_has_expired_since_stays_unknown() {
    let day = Day::new().await;
    for deed in [Deed::CutBefore, Deed::CutAfter] {
        let key = format!("{deed:?}");
        let mut asked = claim(&key);
        asked.retention = Duration::ZERO;
        let ClaimOutcome::Open(mut tx) = day.node.claim(asked).await.unwrap() else {
            panic!("the key should be free")
        };
        tx.execute(INSERT, &[&key]).await.unwrap();
        let trap = day.proxy.once(Moment::commit(), deed);
        let outcome = tx.complete(&response(&key), Effect::Keep).await;
        assert_eq!(trap.count(), 1);
        assert_matches!(outcome, Err(StoreError::Unavailable { .. }), "{key}");
        let committed = i64::from(deed == Deed::CutAfter);
        assert_eq!(day.effects(&key).await.0, committed, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_commit_happened_unheard_answers_each_member() {
    for deed in [Deed::CutAfter, Deed::SwallowAfter] {
        let day = one_lane().await;
        let (outcome, traps) = group(&day, &[deed]).await;
        check_committed(&traps[0]);
        // There was one commit: the one whose response was lost.
        assert_eq!(check_members(&day, outcome).await, 1, "{deed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_commit_did_not_happen_runs_again_member_by_member() {
    // The second time, a single member runs on its own and is cut off.
    for deeds in [&[Deed::CutBefore][..], &[Deed::CutBefore, Deed::CutBefore]] {
        let day = one_lane().await;
        let (outcome, traps) = group(&day, deeds).await;
        assert!(traps.iter().all(|trap| trap.count() == 1));
        assert_eq!(check_members(&day, outcome).await, MEMBERS, "{deeds:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_a_lost_commit_is_unavailable_and_whole_or_nothing() {
    let day = Day::new().await;
    for (deed, effects) in [(Deed::CutBefore, 0), (Deed::CutAfter, 1)] {
        let note = format!("{deed:?}");
        let mut tx = day.node.begin(None, Headers::new()).await.unwrap();
        tx.execute(INSERT, &[&note]).await.unwrap();
        tx.emit(event(&note)).unwrap();
        let trap = day.proxy.once(Moment::commit(), deed);
        let outcome = tx.commit().await;
        assert_matches!(outcome, Err(StoreError::Unavailable { .. }));
        assert_eq!(trap.count(), 1);
        day.good.idle().await;
        assert_eq!(day.effects(&note).await, (effects, effects, 0), "{deed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_whose_commit_is_lost_is_stored_once_or_may_run_again() {
    let day = Day::new().await;
    for deed in [Deed::CutBefore, Deed::CutAfter] {
        let key = format!("{deed:?}");
        let mut tx = day.good_claim(&key).await;
        tx.execute(INSERT, &[&key]).await.unwrap();
        let trap = day.proxy.once(Moment::commit(), deed);
        let outcome = tx.complete(&response(&key), Effect::Drop).await;
        assert_eq!(trap.count(), 1);
        let stored = i64::from(deed == Deed::CutAfter);
        assert_eq!(outcome.is_ok(), deed == Deed::CutAfter, "{outcome:?}");
        day.good.idle().await;
        assert_eq!(day.effects(&key).await, (0, 0, stored), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_that_takes_the_key_of_a_lost_commit_is_believed() {
    let day = Day::new().await;
    let mut tx = day.good_claim("k").await;
    tx.execute(INSERT, &[&"k"]).await.unwrap();
    tx.emit(event("k")).unwrap();
    let trap = day.proxy.once(Moment::commit(), Deed::HoldBefore);
    let completing =
        tokio::spawn(async move { tx.complete(&response("mine"), Effect::Keep).await });
    trap.sprung().await;
    // The node cannot look the key up before the other request has claimed it.
    day.proxy.refuse(true).await;
    day.proxy.reset();
    day.good.idle().await;
    assert_eq!(
        ask(&day.good.store, RequestKind::Handler, "k").await,
        response("k")
    );
    day.proxy.heal().await;
    let outcome = completing.await.unwrap();
    let fits = matches!(
        outcome,
        Err(StoreError::Conflict { .. } | StoreError::Unavailable { .. })
    );
    assert!(fits, "{outcome:?}");
    assert_eq!(day.effects("k").await, (1, 1, 1));
    day.settle(RequestKind::Handler, "k", Ok(response("k")))
        .await;
}

impl Day {
    /// Claims a free key through the proxy.
    async fn good_claim(&self, key: &str) -> hapax_postgres::Tx {
        match self.node.claim(claim(key)).await.unwrap() {
            ClaimOutcome::Open(tx) => tx,
            ClaimOutcome::Taken(known) => panic!("{known:?}"),
        }
    }
}

const MEMBERS: usize = 20;

async fn one_lane() -> Day {
    Day::with(|settings| {
        settings.lanes = 1;
        settings.statement_max = SHORT * 2;
    })
    .await
}

/// Starts single-shot requests that share a commit, on which the traps act. They queue as one group
/// while the only group that may be in progress waits.
async fn group(
    day: &Day,
    deeds: &[Deed],
) -> (Vec<Result<ClaimOutcome<Duration>, StoreError>>, Vec<Trap>) {
    let fire = |key: String| {
        let node = day.node.clone();
        tokio::spawn(async move { node.execute_plan(plan(&key)).await })
    };
    let held = day.proxy.once(Moment::commit(), Deed::HoldAfter);
    let first = fire("first".to_owned());
    held.sprung().await;
    let fired: Vec<_> = (0..MEMBERS)
        .map(|number| fire(format!("k{number}")))
        .collect();
    eventually(PATIENCE, async || day.node.queued() == MEMBERS).await;
    let traps = deeds
        .iter()
        .map(|deed| day.proxy.once(Moment::commit(), *deed));
    let traps = traps.collect();
    held.release();
    first.await.unwrap().unwrap();
    let outcome = join_all(fired).await.into_iter().map(Result::unwrap);
    (outcome.collect(), traps)
}

/// Requires that each member received the right response; returns how many commits that took.
async fn check_members(day: &Day, told: Vec<Result<ClaimOutcome<Duration>, StoreError>>) -> usize {
    for (number, told) in told.into_iter().enumerate() {
        let key = format!("k{number}");
        assert_matches!(told, Ok(ClaimOutcome::Open(_)), "{key}");
        day.settle(RequestKind::PlannedRequest, &key, Ok(response(&key)))
            .await;
    }
    let commits = "SELECT count(DISTINCT xmin::text) FROM note WHERE text <> 'first'";
    usize::try_from(day.good.count(commits).await).unwrap()
}

#[track_caller]
fn check_committed(trap: &Trap) {
    assert_eq!(
        (trap.count(), trap.answers()),
        (1, vec!["COMMIT".to_owned()])
    );
}
