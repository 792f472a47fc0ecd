//! `/admin/v1/sagas`: lists sagas, shows one with its steps, and accepts decisions about one.

use std::time::Duration;

use axum::{Json, extract::State, http::StatusCode};
use bytes::Bytes;
use hapax::{
    limits::SAGA_DEADLINE,
    retry::parse_duration,
    saga::{Decision, Filter, State as Stands},
};
use hapax_postgres::admin::sagas;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    Admin, Refusal,
    auth::Caller,
    list_query::{PAGE, wrong},
    problem::{Body, Path, Problem, Query},
    saga::SagaView,
    view::PageView,
};
use crate::destination::SpecError;

/// Filter of sagas, and the page.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AskSagas {
    /// Only sagas in this state: running, `needs_attention`, completed or failed
    #[serde(default)]
    state: Option<String>,
    /// Only sagas with this name, such as checkout
    #[serde(default)]
    name: Option<String>,
    /// Only sagas with this version of their definition
    #[serde(default)]
    version: Option<u32>,
    /// Start of the page: `next` of the previous page
    #[serde(default)]
    after: Option<String>,
    /// Maximum number of sagas
    #[serde(default)]
    limit: Option<usize>,
}

/// An operator's decision about a saga, and its reason.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decide {
    /// The `epoch` of the saga that you have seen. If a worker or another operator has claimed the
    /// saga since, nothing is decided.
    epoch: i64,
    /// `done`, `refused`, `retry`, `undo` or `close`.
    decision: String,
    /// The step that is done or refused. If the saga compensates, this means the step's
    /// compensation.
    #[serde(default)]
    step: Option<String>,
    /// The result of the step, if it is done, as the following steps expect it.
    #[serde(default)]
    made: Option<Value>,
    /// Time limit of a retry or of a compensation, such as `15m`.
    #[serde(default)]
    within: Option<String>,
    /// Up to 1024 bytes, kept in the audit log.
    reason: String,
}

/// Lists sagas by id, without their steps. A page may be empty and still have a next one.
#[utoipa::path(get, path = "/admin/v1/sagas", tag = "sagas", params(AskSagas),
    responses((status = 200, body = PageView<SagaView>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<AskSagas>,
) -> Result<Json<PageView<SagaView>>, Problem> {
    let limit = ask.limit.unwrap_or(PAGE);
    let filter = ask.filter().map_err(Refusal::from)?;
    let page = sagas::list(admin.store(), &caller.actor, &filter, limit).await?;
    Ok(Json(PageView::of(page, SagaView::brief, |next| next)))
}

/// Shows a saga: its steps, its signals, and why it does not move.
#[utoipa::path(get, path = "/admin/v1/sagas/{id}", tag = "sagas", params(("id" = String, Path)),
    responses((status = 200, body = SagaView), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<Admin>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SagaView>, Problem> {
    let look = sagas::get(admin.store(), &caller.actor, &id).await?;
    Ok(Json(SagaView::whole(look, &admin.0.mask)))
}

/// Decides how a saga that needs attention continues.
#[utoipa::path(post, path = "/admin/v1/sagas/{id}/decide", tag = "sagas",
    params(("id" = String, Path)), request_body = Decide,
    responses((status = 204), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn decide(
    State(admin): State<Admin>,
    caller: Caller,
    Path(id): Path<String>,
    Body(body): Body<Decide>,
) -> Result<StatusCode, Problem> {
    let decision = body.decision().map_err(Refusal::from)?;
    let (store, actor) = (admin.store(), &caller.actor);
    sagas::decide(store, actor, &id, body.epoch, &decision, &body.reason).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl AskSagas {
    fn filter(self) -> Result<Filter, SpecError> {
        let state = self.state.as_deref().map(|word| {
            let words = Stands::ALL.map(Stands::as_str).join(", ");
            Stands::named(word).ok_or_else(|| wrong("state", &format!("must be one of {words}")))
        });
        if self.version.is_some_and(|it| i32::try_from(it).is_err()) {
            return Err(wrong("version", "must be at most 2147483647"));
        }
        Ok(Filter {
            name: self.name,
            version: self.version,
            state: state.transpose()?,
            after: self.after,
        })
    }
}

impl Decide {
    /// The decision, parsed. Fields that do not belong to it are refused instead of ignored.
    fn decision(&self) -> Result<Decision, SpecError> {
        let word = self.decision.as_str();
        let of_step = matches!(word, "done" | "refused");
        for (field, is_given, belongs) in [
            ("step", self.step.is_some(), of_step),
            ("made", self.made.is_some(), word == "done"),
            (
                "within",
                self.within.is_some(),
                matches!(word, "retry" | "undo"),
            ),
        ] {
            if is_given && !belongs {
                return Err(wrong(field, &format!("does not belong to {word:?}")));
            }
        }
        let step = || {
            let missing = || wrong("step", "is missing");
            self.step.clone().ok_or_else(missing)
        };
        Ok(match word {
            "done" => Decision::Done {
                step: step()?,
                made: self
                    .made
                    .as_ref()
                    .map_or_else(Bytes::new, |made| made.to_string().into()),
            },
            "refused" => Decision::Refused { step: step()? },
            "retry" => Decision::Retry {
                within: self.within()?,
            },
            "undo" => Decision::Compensate {
                within: self.within()?,
            },
            "close" => Decision::Close,
            _ => {
                let problem = "must be done, refused, retry, undo or close";
                return Err(wrong("decision", problem));
            }
        })
    }

    fn within(&self) -> Result<Duration, SpecError> {
        let Some(text) = &self.within else {
            return Ok(SAGA_DEADLINE);
        };
        parse_duration(text).map_err(|_| wrong("within", "must be a duration such as 15m"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(mut body: Value, expected: Result<Decision, &str>) {
        body["epoch"] = 1.into();
        let decide: Decide = serde_json::from_value(body).unwrap();
        let spelled = decide.decision();
        assert_eq!(
            spelled.map_err(|wrong| wrong.field),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn a_decision_is_spelled_whole_and_nothing_of_it_is_dropped() {
        let step = || "ship".to_owned();
        check(
            json!({"decision": "done", "step": "ship", "made": {"a": 1}, "reason": ""}),
            Ok(Decision::Done {
                step: step(),
                made: Bytes::from_static(b"{\"a\":1}"),
            }),
        );
        check(
            json!({"decision": "refused", "step": "ship", "reason": ""}),
            Ok(Decision::Refused { step: step() }),
        );
        let within = Duration::from_mins(5);
        check(
            json!({"decision": "retry", "within": "5m", "reason": ""}),
            Ok(Decision::Retry { within }),
        );
        let within = SAGA_DEADLINE;
        check(
            json!({"decision": "undo", "reason": ""}),
            Ok(Decision::Compensate { within }),
        );
        check(
            json!({"decision": "close", "reason": ""}),
            Ok(Decision::Close),
        );
        check(json!({"decision": "done", "reason": ""}), Err("step"));
        check(
            json!({"decision": "close", "step": "ship", "reason": ""}),
            Err("step"),
        );
        check(
            json!({"decision": "retry", "made": 1, "reason": ""}),
            Err("made"),
        );
        check(
            json!({"decision": "close", "within": "5m", "reason": ""}),
            Err("within"),
        );
        check(
            json!({"decision": "retry", "within": "soon", "reason": ""}),
            Err("within"),
        );
        check(json!({"decision": "forget", "reason": ""}), Err("decision"));
    }
}
