//! `/admin/v1/sagas`: lists sagas, shows one with its steps, and accepts decisions about one.

use std::time::Duration;

use axum::{extract::State, http::StatusCode};
use bytes::Bytes;
use hapax::{
    admin::{Actor, Admin, AdminError, Page, SagaView, read_field},
    limits::SAGA_DEADLINE,
    retry::parse_duration,
    saga::{Decision, Filter, State as Stands},
};
use hapax_http::{Json, Path, Problem, Query};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{AdminApi, arguments, auth::Caller, list_query::PAGE};

/// Filter of sagas, and the page.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams, clap::Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskSagas {
    /// Only sagas in this state: running, `needs_attention`, completed or failed
    #[arg(long)]
    state: Option<String>,
    /// Only sagas with this name, such as checkout
    #[arg(long)]
    name: Option<String>,
    /// Only sagas with this version of their definition
    #[arg(long, value_name = "NUMBER", id = "of_version")]
    version: Option<u32>,
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Maximum number of sagas
    #[arg(long, value_name = "COUNT", value_parser = arguments::limit)]
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
    responses((status = 200, body = Page<SagaView>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<AskSagas>,
) -> Result<Json<Page<SagaView>>, Problem> {
    Ok(Json(page(admin.store(), &caller.actor, ask).await?))
}

/// Shows a saga: its steps, its signals, and why it does not move.
#[utoipa::path(get, path = "/admin/v1/sagas/{id}", tag = "sagas", params(("id" = String, Path)),
    responses((status = 200, body = SagaView), (status = 404, body = Problem)))]
pub(super) async fn show(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SagaView>, Problem> {
    let look = admin.store().look_at_saga(&caller.actor, &id).await?;
    Ok(Json(SagaView::whole(look, &admin.0.mask)))
}

/// Decides how a saga that needs attention continues.
#[utoipa::path(post, path = "/admin/v1/sagas/{id}/decide", tag = "sagas",
    params(("id" = String, Path)), request_body = Decide,
    responses((status = 204), (status = 400, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub(super) async fn decide(
    State(admin): State<AdminApi>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<Decide>,
) -> Result<StatusCode, Problem> {
    let (decision, store) = (body.decision()?, admin.store());
    let decided = store.decide(&caller.actor, &id, body.epoch, &decision, &body.reason);
    decided.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a page of sagas.
pub(crate) async fn page(
    store: &dyn Admin,
    actor: &Actor,
    ask: AskSagas,
) -> Result<Page<SagaView>, AdminError> {
    let (limit, filter) = (ask.limit.unwrap_or(PAGE), ask.filter()?);
    let Page { items, next } = store.list_sagas(actor, &filter, limit).await?;
    let items = items.into_iter().map(SagaView::brief).collect();
    Ok(Page { items, next })
}

impl AskSagas {
    fn filter(self) -> Result<Filter, AdminError> {
        let states = format!("one of {}", Stands::ALL.map(Stands::as_str).join(", "));
        let state = read_field("state", self.state.as_deref(), &states, Stands::named)?;
        if self.version.is_some_and(|it| i32::try_from(it).is_err()) {
            return Err(AdminError::invalid("version", "must be at most 2147483647"));
        }
        Ok(Filter {
            name: self.name,
            version: self.version,
            state,
            after: self.after,
        })
    }
}

impl Decide {
    /// The decision, parsed. Fields that do not belong to it are refused instead of ignored.
    fn decision(&self) -> Result<Decision, AdminError> {
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
                return Err(AdminError::invalid(
                    field,
                    format!("does not belong to {word:?}"),
                ));
            }
        }
        let step = || {
            let missing = || AdminError::invalid("step", "is missing: expected the name of a step");
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
                return Err(AdminError::invalid("decision", problem));
            }
        })
    }

    fn within(&self) -> Result<Duration, AdminError> {
        let Some(text) = &self.within else {
            return Ok(SAGA_DEADLINE);
        };
        parse_duration(text)
            .map_err(|_| AdminError::invalid("within", "must be a duration such as 15m"))
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
            spelled.map_err(|wrong| match wrong {
                AdminError::Invalid { field, .. } => field,
                other => other.to_string(),
            }),
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
