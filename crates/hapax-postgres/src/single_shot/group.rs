//! Groups of concurrent single-shot requests: one transaction, one pipeline, one commit.
//!
//! A group is sent optimistically: one statement claims and completes all its keys, the statements
//! of the members follow, one statement appends all events, then `COMMIT`; no response is awaited
//! in between. If a key is not free, this pipeline fails. Then the free keys are claimed first, and
//! only the statements of their members are sent. The remaining members are run one by one, and so
//! is every member of a group in which a statement failed: one bad member costs the others time,
//! nothing more.
//!
//! A group consists of the requests that wait while other groups are in flight: there is no timer.
//! A claim waits for no lock, so the groups of two nodes cannot deadlock by their keys. By their
//! rows they can, and the members of the group that the database aborts are run one by one. So are
//! the members of a group that is cancelled because the time of one of them has run out.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use hapax::{
    idempotency::{Taken, evaluate_claim},
    key::Scope,
    store::ClaimOutcome,
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tokio_postgres::{Row, error::SqlState};

use crate::{
    connection::QueryError,
    emit::Columns,
    error::unavailable,
    groups::Grouped,
    idempotency::{parts, record, retention, scope_of},
    member::{LEAST, Member},
    payload_lock::payload_lock,
    postgres::Postgres,
    query,
    session::{PipelineError, QueuedStatement, Session},
    single_shot::{alone, resolved, until},
    statement::calls,
    value::{Moment, Param, millis},
};

/// How long a group waits for a row that another transaction holds.
const LOCK_WAIT: Duration = Duration::from_millis(200);
/// How long a group waits until its statements are prepared. The server locks their tables for that,
/// and `lock_timeout` of the transaction does not apply yet.
const PREPARE: Duration = Duration::from_secs(1);
/// Requests of one group that go on alone at once.
const ALONE: usize = 4;
/// Number of groups that claim first after an optimistic claim has failed.
pub(crate) const CAREFUL: u32 = 16;
/// The statement of a group's pipeline that begins its transaction. It also stands for the one that
/// writes the events, and for the preparation of both: all of them are the store's own.
const BEGIN: usize = 0;
/// The statement of a group's pipeline that claims its keys.
const CLAIM: usize = 1;
/// The place of a failure to prepare the statements of the members: nothing was sent.
const PREPARING: usize = usize::MAX;

impl Grouped for Member {
    fn scope(&self) -> &Scope {
        &self.claim.scope
    }

    fn is_wanted(&self) -> bool {
        self.takes_turn()
    }

    /// The statements of a group are bounded by its deadline, not by their size.
    fn bytes(&self) -> usize {
        0
    }

    async fn write(store: Postgres, members: Vec<Self>, lane: OwnedSemaphorePermit) {
        write(&store, members, lane).await;
    }

    async fn alone(store: Postgres, member: Self) {
        alone(&store, member, None).await;
    }
}

/// The result of a member whose group was committed.
enum MemberResult {
    /// The member is committed with the group.
    Won,
    /// The key of the member was taken.
    Taken(Taken),
    /// The member has no result yet, and continues alone.
    Left,
}

/// The result of a group.
enum Outcome {
    /// The group is committed, except for members whose key was not free.
    Committed(Vec<MemberResult>),
    /// Not all keys were free.
    NotFree,
    /// A statement failed, so nothing of the group was committed.
    Failed,
    /// The result of the commit was lost.
    Unknown,
    /// The group was not sent: the database could not be reached.
    Unreachable(String),
}

async fn write(store: &Postgres, mut members: Vec<Member>, lane: OwnedSemaphorePermit) {
    let is_optimistic = store.is_optimistic();
    if members.len() == 1
        && is_optimistic
        && let Some(member) = members.pop()
    {
        return alone(store, member, Some(lane)).await;
    }
    if members.is_empty() {
        return;
    }
    let mut outcome = Outcome::NotFree;
    if is_optimistic {
        outcome = optimistic(store, &members).await;
    }
    if matches!(outcome, Outcome::NotFree) {
        if is_optimistic {
            store.disable_optimistic_claims(CAREFUL);
        }
        outcome = claim_first(store, &members).await;
    }
    drop(lane);
    settle(store, members, outcome).await;
}

/// Sends the results to the members of a group. Members without a result continue alone.
async fn settle(store: &Postgres, members: Vec<Member>, outcome: Outcome) {
    let mut left: Vec<Member> = match outcome {
        Outcome::Committed(places) => {
            let mut left = Vec::new();
            for (member, place) in members.into_iter().zip(places) {
                match place {
                    MemberResult::Won => {
                        let ran = member.committed();
                        member.response(Ok(ran));
                    }
                    MemberResult::Taken(taken) => member.response(Ok(ClaimOutcome::Taken(taken))),
                    MemberResult::Left => left.push(member),
                }
            }
            left
        }
        Outcome::Unreachable(why) => {
            for member in members {
                member.response(Err(unavailable(why.clone())));
            }
            return;
        }
        Outcome::Unknown => {
            let each = |member| resolved(store, member);
            return stream::iter(members).for_each_concurrent(ALONE, each).await;
        }
        Outcome::NotFree | Outcome::Failed => members,
    };
    // Those with the least time go first: the others would keep them waiting beyond it.
    left.sort_by_key(|member| (member.deadline.is_none(), member.deadline));
    let each = |member| alone(store, member, None);
    stream::iter(left).for_each_concurrent(ALONE, each).await;
}

/// Sends everything in one pipeline, on the assumption that all keys are free.
async fn optimistic(store: &Postgres, members: &[Member]) -> Outcome {
    let mut session = match store.session().await {
        Ok(session) => session,
        Err(error) => return Outcome::Unreachable(error.error_chain()),
    };
    let group = Group::of(store, members.iter().collect());
    match group.send_optimistic(&mut session).await {
        Ok(()) => {
            session.end();
            group.completed();
            Outcome::Committed(members.iter().map(|_| MemberResult::Won).collect())
        }
        Err(failed) => failed_pipeline(session, &failed).await,
    }
}

/// The keys first, and then what belongs to those that were free.
async fn claim_first(store: &Postgres, members: &[Member]) -> Outcome {
    let mut session = match store.session().await {
        Ok(session) => session,
        Err(error) => return Outcome::Unreachable(error.error_chain()),
    };
    let all = Group::of(store, members.iter().collect());
    let places = match all.claim(&mut session).await {
        Ok(places) => places,
        Err(failed) => return failed_pipeline(session, &failed).await,
    };
    let won = members.iter().zip(&places);
    let won = won.filter(|(_, place)| matches!(place, MemberResult::Won));
    let group = Group::of(store, won.map(|(member, _)| member).collect());
    if group.members.is_empty() {
        drop(session);
        return Outcome::Committed(places);
    }
    match group.send_statements(&mut session).await {
        Ok(()) => {
            session.end();
            group.completed();
            Outcome::Committed(places)
        }
        Err(failed) => failed_pipeline(session, &failed).await,
    }
}

async fn failed_pipeline(session: Session, failed: &PipelineError) -> Outcome {
    if is_unknown(failed) {
        session.discard();
        return Outcome::Unknown;
    }
    session.rollback().await;
    match &failed.cause {
        QueryError::Failed(error) if is_not_free(failed.statement, error) => Outcome::NotFree,
        _ => Outcome::Failed,
    }
}

/// Whether an optimistic pipeline failed because a key is stored or being used.
pub(crate) fn is_not_free(statement: usize, error: &tokio_postgres::Error) -> bool {
    let not_free = [SqlState::DIVISION_BY_ZERO, SqlState::UNIQUE_VIOLATION];
    statement == CLAIM && error.code().is_some_and(|code| not_free.contains(code))
}

/// Whether the pipeline may have been committed all the same.
pub(crate) fn is_unknown(failed: &PipelineError) -> bool {
    let is_cut = failed.statement == PREPARING && matches!(failed.cause, QueryError::Lost);
    failed.cause.is_unknown() && !is_cut
}

/// Whether this is a statement on the store's own tables, and not one of a member.
pub(crate) fn is_own(statement: usize) -> bool {
    statement <= CLAIM
}

/// Requests as one transaction.
pub(crate) struct Group<'a> {
    store: &'a Postgres,
    members: Vec<&'a Member>,
    begin: String,
    /// When its statements are cancelled.
    deadline: Option<Instant>,
    /// Until when its statements must be prepared.
    prepared_by: Option<Instant>,
}

impl<'a> Group<'a> {
    /// A group, whose members delay one another while they are in flight: it does not wait long for
    /// a row that is locked.
    pub(crate) fn of(store: &'a Postgres, members: Vec<&'a Member>) -> Self {
        let now = Instant::now();
        let earliest = members.iter().filter_map(|member| member.deadline).min();
        // A member with little time left does not end the group of the others at once.
        let least = if members.len() > 1 { LOCK_WAIT } else { LEAST };
        let deadline = earliest.map(|earliest| earliest.max(now + least));
        let prepared_by = now + PREPARE;
        let millis = LOCK_WAIT.as_millis();
        let begin = format!("{}; SET LOCAL lock_timeout = {millis}", store.begin());
        Self {
            store,
            members,
            begin,
            deadline,
            prepared_by: Some(deadline.map_or(prepared_by, |it| it.min(prepared_by))),
        }
    }

    /// A single request, which delays no other.
    pub(crate) fn of_one(store: &'a Postgres, member: &'a Member) -> Self {
        let deadline = member.cut_at();
        Self {
            store,
            members: vec![member],
            begin: store.begin().into_owned(),
            deadline,
            prepared_by: deadline,
        }
    }

    /// Claims all keys and writes everything in one pipeline, which fails if a key is not free.
    pub(crate) async fn send_optimistic(&self, session: &mut Session) -> Result<(), PipelineError> {
        let claim = query!("idempotency/claim_all_free");
        self.pipeline(session, Some(claim)).await
    }

    /// Writes what belongs to keys that are claimed, and commits.
    async fn send_statements(&self, session: &mut Session) -> Result<(), PipelineError> {
        self.pipeline(session, None).await
    }

    /// Says that it is committed, to whom it concerns.
    pub(crate) fn completed(&self) {
        self.store
            .settings()
            .failpoints
            .hit("postgres.commit.after");
        if self.members.iter().any(|member| !member.events.is_empty()) {
            self.store.notifier().notify();
        }
    }

    /// Opens the transaction, claims what is free and reads what is not, in one pipeline.
    async fn claim(&self, session: &mut Session) -> Result<Vec<MemberResult>, PipelineError> {
        let sql = [
            query!("idempotency/claim_all"),
            query!("idempotency/find_all"),
        ];
        let not_begun = |cause| PipelineError {
            statement: 0,
            cause,
        };
        let ready = session.ready(&sql).await.map_err(not_begun)?;
        let keys = Keys::of(&self.members, self.store.time());
        let locks: Vec<i64> = self
            .members
            .iter()
            .map(|member| payload_lock(&member.claim))
            .collect();
        let mut params = keys.params().to_vec();
        params.push(&locks);
        let scopes: [&dyn Param; 4] = [params[0], params[1], params[2], &keys.time];
        session.cancel_at(self.deadline, BEGIN + 1);
        let results = session.pipeline_from(Some(&self.begin), |link| {
            vec![
                Box::pin(link.rows(&ready[0], &params)) as QueuedStatement<'_>,
                Box::pin(link.rows(&ready[1], &scopes)),
            ]
        });
        let rows = results.await?;
        let won: HashSet<[&str; 3]> = rows[1].iter().map(scope_of).collect();
        let found: HashMap<[&str; 3], &Row> =
            rows[2].iter().map(|row| (scope_of(row), row)).collect();
        let keyring = self.store.keyring();
        let place = |member: &&Member| {
            let scope = parts(&member.claim.scope);
            if won.contains(&scope) {
                return MemberResult::Won;
            }
            // A row that is not readable or has expired is looked up again by the member alone.
            let record = found.get(&scope).and_then(|row| record(row).ok());
            let taken = record.and_then(|record| {
                let now = record.read_at;
                let taken = evaluate_claim(record, &member.claim, now)?;
                keyring.decrypt_taken(&member.claim.scope, taken).ok()
            });
            taken.map_or(MemberResult::Left, MemberResult::Taken)
        };
        Ok(self.members.iter().map(place).collect())
    }

    async fn pipeline(
        &self,
        session: &mut Session,
        claim: Option<&'static str>,
    ) -> Result<(), PipelineError> {
        let statements = self
            .members
            .iter()
            .map(|member| member.statements.as_slice());
        let calls = calls(statements);
        let failed_at = |statement| move |cause| PipelineError { statement, cause };
        let prepared = session.run(async |link| link.prepare_all(&calls).await);
        let prepared = until(self.prepared_by, Box::pin(prepared)).await;
        let prepared = prepared.unwrap_or(Err(QueryError::Lost));
        let prepared = prepared.map_err(failed_at(PREPARING))?;
        let mut sql = vec![query!("outbox/emit")];
        sql.extend(claim);
        let ready = session.ready(&sql).await.map_err(failed_at(BEGIN))?;
        let (emit, claim) = (&ready[0], ready.get(1));
        let keys = claim
            .is_some()
            .then(|| Keys::of(&self.members, self.store.time()));
        let keys = keys.as_ref().map(Keys::params);
        let emitted = self.members.iter().flat_map(|member| &member.events);
        let columns = Columns::of(&emitted.collect::<Vec<_>>());
        let events = columns.params();
        self.store
            .settings()
            .failpoints
            .hit("postgres.commit.before");
        // The transaction is open already if the keys were claimed first.
        session.cancel_at(self.deadline, usize::from(claim.is_some()));
        let begin = claim.map(|_| self.begin.as_str());
        let results = session.pipeline_from(begin, |link| {
            let mut statements: Vec<QueuedStatement<'_>> = Vec::with_capacity(calls.len() + 3);
            if let (Some(claim), Some(keys)) = (claim, &keys) {
                statements.push(Box::pin(link.rows(claim, keys)));
            }
            for (call, prepared) in calls.iter().zip(&prepared) {
                statements.push(Box::pin(link.call(call, prepared.as_ref())));
            }
            if !columns.is_empty() {
                statements.push(Box::pin(link.rows(emit, &events)));
            }
            statements.push(Box::pin(link.none("COMMIT")));
            statements
        });
        results.await.map(drop).map_err(|mut failed| {
            if claim.is_none() {
                // The keys are claimed, so the failure has another cause.
                failed.statement += CLAIM + 1;
            }
            if !columns.is_empty() && failed.statement == CLAIM + 1 + calls.len() {
                failed.statement = BEGIN;
            }
            failed
        })
    }
}

/// The keys of a group as the columns of one statement.
struct Keys<'a> {
    scopes: [Vec<&'a str>; 3],
    fingerprints: Vec<&'a [u8]>,
    states: Vec<&'a str>,
    statuses: Vec<i16>,
    headers: Vec<&'a [u8]>,
    bodies: Vec<&'a [u8]>,
    on_expired: Vec<&'a str>,
    retentions: Vec<i64>,
    time: Option<Moment>,
    resource_ids: Vec<Option<&'a str>>,
}

impl<'a> Keys<'a> {
    fn of(members: &[&'a Member], time: Option<Moment>) -> Self {
        let all = || members.iter().copied();
        let part = |place: usize| all().map(|it| parts(&it.claim.scope)[place]).collect();
        Self {
            scopes: [part(0), part(1), part(2)],
            fingerprints: all()
                .map(|it| it.claim.fingerprint.as_bytes().as_slice())
                .collect(),
            states: all().map(|it| it.stored.state()).collect(),
            statuses: all().map(|it| it.stored.status).collect(),
            headers: all().map(|it| it.stored.headers.as_slice()).collect(),
            bodies: all().map(|it| &*it.stored.body).collect(),
            on_expired: all().map(|it| it.claim.on_expired.name()).collect(),
            retentions: all().map(|it| millis(retention(&it.claim))).collect(),
            time,
            resource_ids: all().map(|it| it.stored.resource_id.as_deref()).collect(),
        }
    }

    fn params(&self) -> [&dyn Param; 12] {
        [
            &self.scopes[0],
            &self.scopes[1],
            &self.scopes[2],
            &self.fingerprints,
            &self.states,
            &self.statuses,
            &self.headers,
            &self.bodies,
            &self.on_expired,
            &self.retentions,
            &self.time,
            &self.resource_ids,
        ]
    }
}
