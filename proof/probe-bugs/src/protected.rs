//! Protected operations: one effect for one key, and one response.
//!
//! The order is: prepare the request, claim its key, decide, work, commit effect and key together.
//! Only what executed is kept; a request that failed frees its key.

use std::{io, sync::atomic::Ordering, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    bugs::Bug,
    clock,
    http::Request,
    node::{Node, Principal, Reply},
    orders::{Class, Plan, Work, plan},
    prepare::prepare,
    profile::Profile,
    response::Response,
    route::Operation,
    store::{Claim, Row, Scope},
};

/// Time between the look at a key and its claim with [`Bug::RaceWindow`].
const RACE_WINDOW: Duration = Duration::from_millis(30);
/// The wait that `Retry-After` asks of a duplicate.
const RETRY_AFTER_SECONDS: u32 = 1;

/// A request on its way through an operation.
#[derive(Clone, Copy)]
struct Call<'a> {
    node: &'a Node,
    request: &'a Request,
    work: Work<'a>,
    fingerprint: &'a str,
}

/// Runs an operation, once for each key.
pub(crate) async fn run(
    node: &Node,
    operation: &Operation,
    principal: &Principal,
    request: &Request,
) -> Reply {
    let prepared = match prepare(node, operation, principal, request) {
        Ok(prepared) => prepared,
        Err(refusal) => return Reply::of(refusal),
    };
    let call = Call {
        node,
        request,
        work: Work {
            operation,
            principal: principal.name,
            query: &request.head.query,
            payload: prepared.payload.as_ref().filter(|_| prepared.is_json),
        },
        fingerprint: &prepared.fingerprint,
    };
    let reply = match &prepared.scope {
        Some(scope) => call.protected(scope).await,
        None => call.unprotected().await.map(Reply::of),
    };
    reply.unwrap_or_else(|error| {
        let detail = format!("the store failed: {error}");
        let refusal = Response::problem(503, "DEPENDENCY.unavailable", &detail);
        Reply::of(refusal.header("Retry-After", "1"))
    })
}

impl Call<'_> {
    async fn protected(&self, scope: &Scope) -> io::Result<Reply> {
        let bug = self.node.bug;
        let response = match self.claim(scope).await? {
            Claim::Open => {
                let executed = self.execute(scope).await;
                if executed.is_err() {
                    self.node.store.release(scope, self.node.number)?;
                }
                return executed;
            }
            Claim::Replay(stored) => {
                if bug == Some(Bug::EffectOnReplay) {
                    self.unprotected().await?;
                }
                self.labelled(stored, scope, Some("replayed"))
            }
            Claim::Mismatch(_) if bug == Some(Bug::MismatchExecutes) => self.unprotected().await?,
            Claim::Mismatch(stored) => {
                let refusal = self.mismatch(stored.as_ref());
                self.labelled(refusal, scope, None)
            }
            Claim::InProgress => {
                if bug == Some(Bug::WaitsForEverInFlight) {
                    std::future::pending::<()>().await;
                }
                self.labelled(self.in_progress(), scope, None)
            }
            Claim::Expired => {
                let status = self.node.rules.expired_status.unwrap_or(410);
                let code = self.node.rules.codes.expired;
                let refusal = Response::problem(status, code, "the key has expired");
                self.labelled(refusal, scope, None)
            }
        };
        Ok(Reply::of(response))
    }

    /// Claims the key; a duplicate waits for the first request as long as the profile says.
    async fn claim(&self, scope: &Scope) -> io::Result<Claim> {
        let Node { store, number, .. } = self.node;
        let bug = self.node.bug;
        if bug == Some(Bug::RaceWindow)
            && matches!(store.look_up(scope, *number, self.fingerprint), Claim::Open)
        {
            sleep(RACE_WINDOW).await;
            // The outcome is not looked at: what was free before is taken to be free.
            store.claim(scope, *number, self.fingerprint)?;
            return Ok(Claim::Open);
        }
        let wait = match bug {
            Some(Bug::WaitsForEverInFlight) => Duration::ZERO,
            _ => self.node.rules.wait,
        };
        let deadline = Instant::now() + wait;
        let mut changes = store.subscribe();
        loop {
            let claim = store.claim(scope, *number, self.fingerprint)?;
            if !matches!(claim, Claim::InProgress) {
                return Ok(claim);
            }
            let woken = timeout_at(deadline, changes.changed()).await;
            if !matches!(woken, Ok(Ok(()))) {
                return Ok(claim);
            }
        }
    }

    /// Executes a request whose key is claimed, and commits its effect with the key.
    async fn execute(&self, scope: &Scope) -> io::Result<Reply> {
        let Node { store, number, .. } = self.node;
        let bug = self.node.bug;
        let is_first_try = || store.is_first_try(scope);
        let mut plan = plan(&self.work, &self.node.rules, bug, is_first_try);
        if bug == Some(Bug::KillLosesKey) {
            store.commit(*number, plan.order.take(), None)?;
        }
        sleep(plan.work).await;
        if !self.is_kept(&plan) {
            store.commit(*number, plan.order, None)?;
            let is_locked = bug == Some(Bug::ServerErrorLeavesKeyLocked);
            if !(is_locked && plan.class == Class::ServerError) {
                store.release(scope, *number)?;
            }
            return Ok(Reply::of(self.labelled(plan.response, scope, None)));
        }
        let row = Row {
            scope: scope.clone(),
            fingerprint: self.fingerprint.to_owned(),
            response: plan.response.to_store(bug),
            stored_at: clock::since_epoch(),
        };
        let response = self.labelled(plan.response, scope, Some("stored"));
        if bug == Some(Bug::LostResponseReexecutes) {
            store.commit(*number, plan.order, None)?;
            return Ok(Reply {
                response,
                unsaved: Some(row),
            });
        }
        store.commit(*number, plan.order, Some(row))?;
        Ok(Reply::of(response))
    }

    /// Executes a request without a key.
    async fn unprotected(&self) -> io::Result<Response> {
        let Node { store, number, .. } = self.node;
        let plan = plan(&self.work, &self.node.rules, self.node.bug, || true);
        sleep(plan.work).await;
        store.commit(*number, plan.order, None)?;
        Ok(match self.node.profile {
            Profile::Hapax => plan.response.header("Idempotency-Status", "bypassed"),
            _ => plan.response,
        })
    }

    /// Whether the response is stored under the key.
    fn is_kept(&self, plan: &Plan) -> bool {
        let bug = self.node.bug;
        let is_lost = match bug {
            Some(Bug::Empty204NotStored) => plan.response.body.is_empty(),
            Some(Bug::Accepted202NotStored) => plan.response.status == 202,
            Some(Bug::ChunkedNotStored) => plan.response.is_chunked,
            Some(Bug::KeyFreedOnDisconnect) => self.request.is_gone.load(Ordering::Relaxed),
            _ => false,
        };
        let is_kept = match plan.class {
            Class::Success => true,
            Class::Refusal => self.node.rules.keeps_refusals && bug != Some(Bug::RefusalNotKept),
            Class::Validation => bug == Some(Bug::ValidationKept),
            Class::RateLimit => bug == Some(Bug::RateLimitKept),
            Class::ServerError => match bug {
                Some(Bug::ServerErrorKept) => true,
                Some(Bug::ServerErrorNotKept | Bug::ServerErrorLeavesKeyLocked) => false,
                _ => self.node.rules.keeps_server_errors,
            },
        };
        is_kept && !is_lost
    }

    /// The refusal of another payload under a used key.
    fn mismatch(&self, stored: Option<&Response>) -> Response {
        let bug = self.node.bug;
        let status = match self.node.rules.mismatch_status {
            422 if bug == Some(Bug::MismatchWrongStatus) => 409,
            _ if bug == Some(Bug::MismatchWrongStatus) => 422,
            status => status,
        };
        let leaked = match stored {
            Some(stored) if bug == Some(Bug::MismatchLeaksStoredResponse) => {
                json!(String::from_utf8_lossy(&stored.body))
            }
            _ => Value::Null,
        };
        let code = self.node.rules.codes.mismatch;
        let detail = "the key was used with another payload";
        let refusal = Response::problem_with(status, code, detail, "stored", &leaked);
        if bug == Some(Bug::MismatchWithRetryAfter) {
            return refusal.header("Retry-After", "1");
        }
        refusal
    }

    /// The response to a duplicate of a running request.
    fn in_progress(&self) -> Response {
        let bug = self.node.bug;
        if bug == Some(Bug::InFlightClaimsSuccess) {
            return Response::new(200);
        }
        let has_retry_after = bug != Some(Bug::InFlightWithoutRetryAfter);
        let member = match self.node.profile {
            Profile::Adcp if has_retry_after => json!(RETRY_AFTER_SECONDS),
            _ => Value::Null,
        };
        let code = self.node.rules.codes.in_flight;
        let detail = "the first request with the key is still running";
        let refusal = Response::problem_with(409, code, detail, "retry_after", &member);
        match bug {
            Some(Bug::InFlightWithoutRetryAfter) => refusal,
            Some(Bug::RetryAfterGarbage) => refusal.header("Retry-After", "soon"),
            _ => refusal.header("Retry-After", RETRY_AFTER_SECONDS.to_string()),
        }
    }

    /// The response with the headers by which a profile tells what happened to the key.
    fn labelled(&self, response: Response, scope: &Scope, status: Option<&str>) -> Response {
        match (self.node.profile, status) {
            (Profile::Hapax, Some(status)) => response
                .header("Idempotency-Status", status)
                .header("Idempotency-Key", &scope.key),
            (Profile::Hapax, None) => response.header("Idempotency-Key", &scope.key),
            (Profile::Stripe, Some("replayed")) => response.header("Idempotent-Replayed", "true"),
            _ => response,
        }
    }
}
