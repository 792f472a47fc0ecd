//! `/admin/v1/inbox`: lists received messages.

use axum::extract::State;
use hapax::admin::{AdminError, Message, MessageFilter, Page, read_time};
use hapax_http::{Json, Problem, Query};
use serde::Deserialize;

use super::{AdminApi, arguments, auth::Caller, list_query::PAGE};

/// Filter of inbox messages, and the page.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams, clap::Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskInbox {
    /// Only messages of this consumer
    #[arg(long)]
    pub(crate) consumer: Option<String>,
    /// Only messages from this source
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// Only messages with this id; for an event this is the event id
    #[arg(long, value_name = "ID")]
    pub(crate) message_id: Option<String>,
    /// Only messages received at or after this time (RFC 3339)
    #[arg(
        long,
        value_name = "TIME",
        value_parser = arguments::time,
        help = "Only messages received at or after this time: RFC 3339, or a duration before now such as 1h"
    )]
    pub(crate) since: Option<String>,
    /// Only messages received before this time (RFC 3339)
    #[arg(
        long,
        value_name = "TIME",
        value_parser = arguments::time,
        help = "Only messages received before this time: RFC 3339, or a duration before now such as 1h"
    )]
    pub(crate) until: Option<String>,
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) before: Option<String>,
    /// Maximum number of messages
    #[arg(long, value_name = "COUNT", value_parser = arguments::limit)]
    pub(crate) limit: Option<usize>,
}

/// Lists received messages, newest first.
///
/// Messages have no tenant, so a token of a tenant sees none.
#[utoipa::path(get, path = "/admin/v1/inbox", tag = "inbox", params(AskInbox),
    responses((status = 200, body = Page<Message>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<AdminApi>,
    caller: Caller,
    Query(ask): Query<AskInbox>,
) -> Result<Json<Page<Message>>, Problem> {
    let (filter, before) = (ask.filter()?, ask.before.as_deref());
    let page = admin
        .store()
        .messages(&caller.actor, &filter, before, ask.limit());
    Ok(Json(page.await?))
}

impl AskInbox {
    /// The filter, parsed.
    pub(crate) fn filter(&self) -> Result<MessageFilter, AdminError> {
        Ok(MessageFilter {
            consumer: self.consumer.clone(),
            source: self.source.clone(),
            message_id: self.message_id.clone(),
            since: read_time("since", self.since.as_deref())?,
            until: read_time("until", self.until.as_deref())?,
        })
    }

    /// The maximum number of items.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE)
    }
}
