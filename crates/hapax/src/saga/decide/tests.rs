//! Tests of every decision: from rows and a time to a move, without a store.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::{
    super::{
        Call, Found, Kind, LocalStep, Outcome, RemoteStep, RetryPolicy, SagaStatus, Signal, State,
    },
    *,
};
use crate::{event::Headers, sink::BoxError};

const DEADLINE: i64 = 100_000;

#[test]
fn steps_go_one_after_the_other_and_then_the_saga_is_complete() {
    check(&[], 0, &run(0));
    check(&[done("reserve")], 0, &call(1));
    check(&[done("reserve"), done("authorize")], 0, &call(2));
    let all = ["reserve", "authorize", "ship", "capture", "notify"].map(done);
    check(&all, 0, &Move::Complete);
    check(&all, DEADLINE + 1, &Move::Complete);
}

#[test]
fn a_refusal_turns_the_saga_round_and_a_refusal_behind_the_pivot_does_not() {
    let why = Refusal::new("declined", "no");
    check(
        &[done("reserve"), refused("authorize")],
        0,
        &Move::StartCompensation(why.clone()),
    );
    let behind = ["reserve", "authorize", "ship", "capture"].map(done);
    check(
        &[&behind[..], &[refused("notify")]].concat(),
        0,
        &Move::Ask(why),
    );
}

#[test]
fn a_foreign_step_of_unknown_outcome_is_called_again_under_its_key() {
    let asked = |next_at| [done("reserve"), at(open("authorize"), next_at)];
    check(&asked(0), 0, &call(1));
    check(&asked(500), 500, &call(1));
    let Move::Sleep { until, waiting_for } = decide(&asked(500), 499) else {
        panic!("the saga must wait");
    };
    assert_eq!(until, Timestamp::from_millis(500));
    assert!(waiting_for.contains("authorize"), "{waiting_for}");
}

#[test]
fn behind_the_window_an_unknown_outcome_is_looked_up_and_not_called_again() {
    let asked = [done("reserve"), open("authorize")];
    check(&asked, 9_999, &call(1));
    let look_up = Move::LookUp {
        step: 1,
        direction: Direction::Forward,
    };
    check(&asked, 10_000, &look_up);
}

#[test]
fn what_was_never_sent_is_called_and_not_looked_up() {
    check(
        &[done("reserve"), unsent(open("authorize"))],
        10_000,
        &call(1),
    );
    let rows = [
        done("reserve"),
        done("authorize"),
        unsent(undone_row("authorize")),
    ];
    let undo_it = Move::Call {
        step: 1,
        direction: Direction::Compensate,
    };
    assert_eq!(undo(&rows, 10_000), undo_it);
}

#[test]
fn an_unknown_outcome_is_never_undone_and_at_the_deadline_a_person_is_asked() {
    let Move::Ask(why) = decide(&[done("reserve"), open("authorize")], DEADLINE) else {
        panic!("the saga must be left to an operator");
    };
    assert_eq!(why.code, "deadline");
    let compensating = |rows: &[StepRecord]| undo(rows, 0);
    // An operator has started the compensation. The step with the unknown outcome is not
    // compensated all the same.
    assert_eq!(
        compensating(&[done("reserve"), open("authorize")]),
        Move::Run {
            step: 0,
            direction: Direction::Compensate
        }
    );
}

#[test]
fn an_unknown_outcome_is_undone_where_that_is_declared_safe() {
    let rows = [done("reserve"), done("authorize"), open("ship")];
    let Move::StartCompensation(why) = decide(&rows, DEADLINE) else {
        panic!("the saga must start to compensate");
    };
    assert_eq!(why.code, "deadline");
    assert_eq!(
        undo(&rows, 0),
        Move::Call {
            step: 2,
            direction: Direction::Compensate
        }
    );
}

#[test]
fn what_was_never_sent_is_not_undone_and_nobody_is_asked_about_it() {
    let rows = [done("reserve"), done("authorize"), unsent(open("ship"))];
    let undo_authorize = Move::Call {
        step: 1,
        direction: Direction::Compensate,
    };
    assert_eq!(undo(&rows, 0), undo_authorize);
    let Move::StartCompensation(why) =
        decide(&[done("reserve"), unsent(open("authorize"))], DEADLINE)
    else {
        panic!("the saga must start to compensate");
    };
    assert_eq!(why.code, "deadline");
    let behind = ["reserve", "authorize", "ship", "capture"].map(done);
    let behind = [&behind[..], &[unsent(open("notify"))]].concat();
    let Move::Ask(_) = decide(&behind, DEADLINE) else {
        panic!("the saga must be left to an operator");
    };
}

#[test]
fn at_the_deadline_a_saga_turns_round_before_its_pivot_and_asks_behind_it() {
    let Move::StartCompensation(_) = decide(&[done("reserve")], DEADLINE) else {
        panic!("the saga must start to compensate");
    };
    let behind = ["reserve", "authorize", "ship", "capture"].map(done);
    let Move::Ask(_) = decide(&behind, DEADLINE) else {
        panic!("the saga must be left to an operator");
    };
    // A local step that failed was rolled back.
    let Move::StartCompensation(_) = decide(&[open("reserve")], DEADLINE) else {
        panic!("the saga must start to compensate");
    };
}

#[test]
fn what_was_done_is_undone_in_reverse_and_then_the_saga_has_failed() {
    let rows = [done("reserve"), done("authorize"), refused("ship")];
    let undone = |step, direction| match step {
        0 => Move::Run { step, direction },
        _ => Move::Call { step, direction },
    };
    assert_eq!(undo(&rows, 0), undone(1, Direction::Compensate));
    let rows = [&rows[..], &[undone_row("authorize")]].concat();
    assert_eq!(undo(&rows, 0), undone(0, Direction::Compensate));
    let rows = [&rows[..], &[undone_row("reserve")]].concat();
    assert_eq!(undo(&rows, 0), Move::Fail);
}

#[test]
fn what_was_refused_or_never_begun_is_not_undone() {
    assert_eq!(undo(&[], 0), Move::Fail);
    assert_eq!(undo(&[refused("reserve")], 0), Move::Fail);
}

#[test]
fn a_compensation_is_tried_until_it_is_done_and_one_that_is_refused_asks_a_person() {
    let rows = |undo: StepRecord| [done("reserve"), done("authorize"), undo];
    let unknown = StepRecord {
        state: StepState::Open,
        ..undone_row("authorize")
    };
    // After the deadline of the saga too.
    let again = undo(&rows(unknown.clone()), DEADLINE + 1);
    assert!(matches!(
        again,
        Move::LookUp {
            step: 1,
            direction: Direction::Compensate
        }
    ));
    let refused = StepRecord {
        state: StepState::Refused,
        error: Some(Refusal::new("captured", "too late")),
        ..unknown.clone()
    };
    let Move::Ask(why) = undo(&rows(refused), 0) else {
        panic!("the saga must be left to an operator");
    };
    assert_eq!(why.code, "compensation_failed");
    let worn_out = StepRecord {
        attempts: SAGA_UNDO_ATTEMPTS,
        ..unknown
    };
    let Move::Ask(why) = undo(&rows(worn_out), 0) else {
        panic!("the saga must be left to an operator");
    };
    assert_eq!(why.code, "compensation_failed");
}

#[test]
fn a_word_from_outside_settles_an_unknown_outcome() {
    let mut saga = record();
    saga.steps = vec![
        done("reserve"),
        done("authorize"),
        done("ship"),
        open("capture"),
    ];
    saga.signals = vec![signal("captured")];
    let settled = Move::Settle {
        step: 3,
        signal: Some("captured"),
    };
    for now in [0, DEADLINE + 1] {
        let now = Timestamp::from_millis(now);
        assert_eq!(next(&checkout(), &saga, now), settled);
    }
    saga.signals = vec![signal("something else")];
    assert_eq!(next(&checkout(), &saga, Timestamp::default()), call(3));
}

#[test]
fn a_wait_ends_with_its_word_or_with_its_time() {
    let definition = Definition::<()>::new("waits", 1)
        .step(Step::wait("answer", "answered", Duration::from_secs(5)))
        .step(Step::pause("rest", Duration::from_secs(1)));
    let decide = |saga: &SagaRecord, now| next(&definition, saga, Timestamp::from_millis(now));
    let mut saga = record();
    assert_eq!(decide(&saga, 0), Move::Await { step: 0 });
    saga.steps = vec![open("answer")];
    assert!(matches!(decide(&saga, 4_999), Move::Sleep { until, .. }
        if until == Timestamp::from_millis(5_000)));
    assert_eq!(decide(&saga, 5_000), Move::TimeOut { step: 0 });
    saga.signals = vec![signal("answered")];
    let settled = Move::Settle {
        step: 0,
        signal: Some("answered"),
    };
    assert_eq!(decide(&saga, 5_000), settled);
    saga.steps = vec![done("answer"), open("rest")];
    assert!(matches!(decide(&saga, 999), Move::Sleep { .. }));
    let settled = Move::Settle {
        step: 1,
        signal: None,
    };
    assert_eq!(decide(&saga, 1_000), settled);
}

#[test]
fn a_wait_is_counted_again_by_a_clock_that_was_set_back_and_not_once_it_is_put_forward() {
    let pause = Duration::from_mins(10);
    let definition = Definition::<()>::new("waits", 1).step(Step::pause("rest", pause));
    let decide = |row: StepRecord, now| {
        let saga = SagaRecord {
            steps: vec![row],
            ..record()
        };
        next(&definition, &saga, Timestamp::from_millis(now))
    };
    let rests = |began_at, next_at| StepRecord {
        began_at: Timestamp::from_millis(began_at),
        ..at(open("rest"), next_at)
    };
    let hour = 3_600_000;
    let anew = Move::Await { step: 0 };
    assert_eq!(decide(rests(hour, hour), 0), anew);
    let ends = |step, at| {
        let Move::Sleep { until, .. } = step else {
            panic!("{step:?}");
        };
        assert_eq!(until, Timestamp::from_millis(at));
    };
    ends(decide(rests(0, hour), 60_000), 600_000);
    ends(decide(rests(0, hour), hour + 60_000), hour + 600_000);
}

#[test]
fn what_a_clock_that_was_ahead_put_off_is_due_and_its_call_is_looked_up() {
    let look_up = Move::LookUp {
        step: 1,
        direction: Direction::Forward,
    };
    let far = 7 * 24 * 3_600_000;
    let called = |began_at| StepRecord {
        began_at: Timestamp::from_millis(began_at),
        ..open("authorize")
    };
    // The first time can be explained by clocks that differ, so the call is in the window. The
    // second was recorded while the clock was ahead, so its age is unknown.
    check(&[done("reserve"), called(60_000)], 0, &call(1));
    check(&[done("reserve"), called(60_001)], 0, &look_up);
    check(&[done("reserve"), at(called(far), far)], 0, &look_up);
    check(&[at(open("reserve"), far)], 0, &run(0));
    // A wait may be as long as the longest pause with its jitter.
    let Move::Sleep { .. } = decide(&[at(open("reserve"), 120_000)], 0) else {
        panic!("the saga must wait");
    };
    check(&[at(open("reserve"), 120_001)], 0, &run(0));
}

#[track_caller]
fn check(rows: &[StepRecord], now: i64, expected: &Move) {
    assert_eq!(&decide(rows, now), expected);
}

fn decide(rows: &[StepRecord], now: i64) -> Move {
    let saga = SagaRecord {
        steps: rows.to_vec(),
        ..record()
    };
    next(&checkout(), &saga, Timestamp::from_millis(now))
}

/// The decision for a saga that compensates.
fn undo(rows: &[StepRecord], now: i64) -> Move {
    let mut saga = SagaRecord {
        steps: rows.to_vec(),
        ..record()
    };
    saga.status.compensating = true;
    next(&checkout(), &saga, Timestamp::from_millis(now))
}

fn checkout() -> Definition<()> {
    let retry_policy = RetryPolicy {
        window: Duration::from_secs(10),
        ..RetryPolicy::default()
    };
    Definition::new("checkout", 1)
        .step(Step::local("reserve", Here).compensate_local(Here))
        .step(
            Step::remote("authorize", There)
                .compensate_remote(There)
                .retry_policy(retry_policy),
        )
        .step(
            Step::remote("ship", There)
                .compensate_remote(There)
                .compensate_unknown(),
        )
        .step(
            Step::remote("capture", There)
                .pivot()
                .settled_by("captured"),
        )
        .step(Step::local("notify", Here))
}

fn run(step: usize) -> Move {
    Move::Run {
        step,
        direction: Direction::Forward,
    }
}

fn call(step: usize) -> Move {
    Move::Call {
        step,
        direction: Direction::Forward,
    }
}

pub(crate) fn record() -> SagaRecord {
    SagaRecord {
        id: "chk_1".to_owned(),
        kind: Kind {
            name: "checkout".to_owned(),
            version: 1,
        },
        tenant: None,
        input: Bytes::new(),
        headers: Headers::new(),
        status: SagaStatus {
            state: State::Running,
            compensating: false,
            reason: None,
            deadline_at: Timestamp::from_millis(DEADLINE),
        },
        epoch: 1,
        wake_at: None,
        waiting_for: None,
        created_at: Timestamp::default(),
        ended_at: None,
        steps: Vec::new(),
        signals: Vec::new(),
    }
}

pub(crate) fn open(name: &str) -> StepRecord {
    StepRecord {
        name: name.to_owned(),
        direction: Direction::Forward,
        state: StepState::Open,
        provider_key: Some("key".to_owned()),
        request: Bytes::new(),
        made: Bytes::new(),
        error: None,
        attempts: 1,
        next_at: Timestamp::default(),
        began_at: Timestamp::default(),
        ended_at: None,
    }
}

/// The row of a step whose request could not be built.
fn unsent(row: StepRecord) -> StepRecord {
    StepRecord {
        state: StepState::Open,
        provider_key: None,
        ..row
    }
}

fn at(row: StepRecord, next_at: i64) -> StepRecord {
    StepRecord {
        next_at: Timestamp::from_millis(next_at),
        ..row
    }
}

pub(crate) fn done(name: &str) -> StepRecord {
    StepRecord {
        state: StepState::Done,
        ..open(name)
    }
}

fn refused(name: &str) -> StepRecord {
    StepRecord {
        state: StepState::Refused,
        error: Some(Refusal::new("declined", "no")),
        ..open(name)
    }
}

fn undone_row(name: &str) -> StepRecord {
    StepRecord {
        direction: Direction::Compensate,
        ..done(name)
    }
}

fn signal(name: &str) -> Signal {
    Signal {
        name: name.to_owned(),
        payload: Bytes::new(),
        received_at: Timestamp::default(),
    }
}

struct Here;

impl LocalStep<()> for Here {
    fn run<'a>(
        &'a self,
        (): &'a mut (),
        _: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        Box::pin(async { Ok(Ok(Bytes::new())) })
    }
}

struct There;

impl RemoteStep for There {
    fn request(&self, _: &SagaRecord) -> Result<Bytes, BoxError> {
        Ok(Bytes::new())
    }

    fn call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Outcome<Bytes>> {
        Box::pin(async { Outcome::Done(Bytes::new()) })
    }

    fn look_up<'a>(&'a self, _: &'a Call) -> Option<BoxFuture<'a, Found<Bytes>>> {
        Some(Box::pin(async { Found::Absent }))
    }
}
