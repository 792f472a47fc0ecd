//! Routes of checkouts: starting one, and reading its state.
//!
//! The first phase of the request starts the saga; the request writes nothing else. Then it waits
//! up to three seconds for the end of the saga. If the saga is still running, the response is 202
//! with a `Location`. Repeated requests with the same key start one checkout.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Response},
};
use hapax::{
    key::Tenant,
    saga::{self, SagaRecord},
    store::SagaRows as _,
};
use hapax_http::{Json, Path, Phased, Query, problem::Problem};
use http::{HeaderValue, StatusCode, header};
use tokio::time::{Instant, sleep};

use super::{Shop, locate, provider};
use crate::{
    checkout::{self, AUTHORIZE, CHECKOUT, CLOSED, Cart, OUT_OF_STOCK, Stated, View},
    database::Database,
    members::{self, NoQuery},
    problem::{CARD_DECLINED, CHECKOUT_CLOSED, CHECKOUT_FAILED, STOCK_OUT},
};

/// The prefix of the recovery point after the phase that starts the saga; the saga's id follows.
const STARTED: &str = "started:";
/// How long a request waits for the end of its checkout.
const WAIT: Duration = Duration::from_secs(3);
/// The shortest and the longest wait between two reads of the saga.
const LOOKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));
/// The `Retry-After` of a 202 response.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// `POST /checkouts`.
pub(super) async fn create<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Query(NoQuery {}): Query<NoQuery>,
    mut phased: Phased<D::Tx>,
    Json(stated): Json<Stated>,
) -> Result<Response, Problem> {
    let cart = stated.check()?;
    let point = phased.recovery_point();
    let known = point.as_deref().and_then(|it| it.strip_prefix(STARTED));
    let id = match known {
        Some(id) => id.to_owned(),
        None => start(&shop, tenant, &mut phased, &cart).await?,
    };
    let saga = wait_for_end(&shop, &id).await?;
    response(&saga)
}

/// `GET /checkouts/{id}`.
pub(super) async fn read<D: Database>(
    State(shop): State<Arc<Shop<D>>>,
    Extension(tenant): Extension<Tenant>,
    Path(id): Path<String>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, Problem> {
    members::id(&id)?;
    let saga = shop.store.saga(&id).await?;
    let is_theirs =
        |saga: &SagaRecord| saga.kind.name == CHECKOUT && saga.tenant.as_ref() == Some(&tenant);
    let saga = saga.filter(is_theirs).ok_or_else(Problem::not_found)?;
    Ok(Json(View::of(&saga)).into_response())
}

/// Starts the saga, in a phase whose recovery point contains the saga's id.
async fn start<D: Database>(
    shop: &Shop<D>,
    tenant: Tenant,
    phased: &mut Phased<D::Tx>,
    cart: &Cart,
) -> Result<String, Problem> {
    provider::provided(shop.providers.both().as_ref(), phased)?;
    let id = shop.ids.mint("chk");
    let saga = checkout::begin(&id, tenant, cart).map_err(Problem::internal)?;
    let write = async |tx: &mut D::Tx| -> Result<(), Problem> {
        tx.start_saga(&saga).await?;
        Ok(())
    };
    phased.phase(&format!("{STARTED}{id}"), write).await?;
    shop.failpoints.hit("checkouts.started");
    Ok(id)
}

/// Waits for the end of a saga, at most `WAIT`.
async fn wait_for_end<D: Database>(shop: &Shop<D>, id: &str) -> Result<SagaRecord, Problem> {
    let until = Instant::now() + WAIT;
    let mut pause = LOOKS.0;
    loop {
        let saga = shop.store.saga(id).await?;
        let Some(saga) = saga else {
            let gone = format!("the saga of checkout {id} is missing");
            return Err(Problem::internal(std::io::Error::other(gone)));
        };
        let rests = saga.status.state != saga::State::Running;
        if rests || Instant::now() + pause >= until {
            return Ok(saga);
        }
        sleep(pause).await;
        pause = (pause * 2).min(LOOKS.1);
    }
}

/// Builds the response for a checkout that has ended or is still running.
fn response(saga: &SagaRecord) -> Result<Response, Problem> {
    let status = match saga.status.state {
        saga::State::Completed => StatusCode::CREATED,
        saga::State::Failed => return Err(refusal(saga)),
        saga::State::Running | saga::State::NeedsAttention => StatusCode::ACCEPTED,
    };
    let mut response = (status, Json(View::of(saga))).into_response();
    locate(&mut response, &format!("/checkouts/{}", saga.id));
    if status == StatusCode::ACCEPTED {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    Ok(response)
}

/// Builds the problem for a checkout that failed or was closed by an operator.
fn refusal(saga: &SagaRecord) -> Problem {
    let reason = saga.status.reason.as_ref();
    let detail = reason.map_or_else(String::new, checkout::public_reason);
    let at_the_card = saga.step(AUTHORIZE, saga::Direction::Forward);
    let is_declined = at_the_card.is_some_and(|step| step.state == saga::StepState::Refused);
    let code = match reason.map(|reason| reason.code.as_str()) {
        Some(OUT_OF_STOCK) => STOCK_OUT,
        Some("declined") if is_declined => CARD_DECLINED,
        Some(CLOSED) => return Problem::new(CHECKOUT_CLOSED),
        _ => CHECKOUT_FAILED,
    };
    Problem::new(code).detail(detail)
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use hapax::{
        Timestamp,
        saga::{Decision, State},
    };
    use serde_json::Value;

    use super::*;
    use crate::checkout::tests::record;

    const REASON: &str = "charged by hand, ticket 4711";

    #[tokio::test]
    async fn a_checkout_that_a_person_closed_is_answered_without_a_claim_and_without_their_words() {
        let mut saga = asking();
        decide(&mut saga, &Decision::Close);
        let (status, body) = answered(&saga).await;
        assert_eq!(
            (status, &body["code"]),
            (409, &"CONFLICT.checkout.closed".into())
        );
        check_silent(&saga, &body);
        assert!(
            !body["title"].as_str().unwrap().contains("nothing"),
            "{body}"
        );
    }

    #[tokio::test]
    async fn a_checkout_that_a_person_had_undone_is_answered_without_their_words() {
        let mut saga = asking();
        let within = Duration::from_secs(9);
        decide(&mut saga, &Decision::Compensate { within });
        saga.status.state = State::Failed;
        let (status, body) = answered(&saga).await;
        assert_eq!(
            (status, &body["code"]),
            (409, &"CONFLICT.checkout.failed".into())
        );
        check_silent(&saga, &body);
    }

    /// Asserts that the operator's comment is stored, but appears in no response.
    #[track_caller]
    fn check_silent(saga: &SagaRecord, body: &Value) {
        let kept = saga.status.reason.as_ref().unwrap();
        assert_eq!(kept.detail, REASON);
        let shown = serde_json::to_string(&View::of(saga)).unwrap();
        for said in [body.to_string(), shown] {
            assert!(!said.contains("by hand"), "{said}");
        }
    }

    fn decide(saga: &mut SagaRecord, decision: &Decision) {
        let judged = decision.evaluate(saga, REASON, Timestamp::default());
        (saga.steps, saga.status) = judged.unwrap();
    }

    async fn answered(saga: &SagaRecord) -> (u16, Value) {
        let response = response(saga).unwrap_err().into_response();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 16).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn asking() -> SagaRecord {
        let mut saga = record();
        saga.status.state = State::NeedsAttention;
        saga
    }
}
