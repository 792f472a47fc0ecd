//! `/admin/v1/inbox`: lists received messages.

use axum::{Json, extract::State};
use hapax_postgres::{
    Postgres,
    admin::{
        Actor,
        inbox::{self, Message, Messages},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Admin, Refusal,
    auth::Caller,
    list_query::{MOMENT, PAGE, read, when},
    problem::{Problem, Query},
    view::{PageView, moment},
};

/// Filter of inbox messages, and the page.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams, clap::Args)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskInbox {
    /// Only messages of this consumer
    #[arg(long)]
    #[serde(default)]
    pub(crate) consumer: Option<String>,
    /// Only messages from this source
    #[arg(long)]
    #[serde(default)]
    pub(crate) source: Option<String>,
    /// Only messages with this id; for an event this is the event id
    #[arg(long, value_name = "ID")]
    #[serde(default)]
    pub(crate) message_id: Option<String>,
    /// Only messages received at or after this time (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub(crate) since: Option<String>,
    /// Only messages received before this time (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub(crate) until: Option<String>,
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    #[serde(default)]
    pub(crate) before: Option<String>,
    /// Maximum number of messages
    #[arg(long, value_name = "COUNT")]
    #[serde(default)]
    pub(crate) limit: Option<usize>,
}

/// A received message.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct MessageView {
    /// The consumer that accepted the message.
    pub(crate) consumer: String,
    /// The id of the message.
    pub(crate) message_id: String,
    /// The source of the message.
    pub(crate) source: String,
    /// The hash of the payload, in hex.
    pub(crate) payload_hash: String,
    /// When the message was accepted.
    pub(crate) received_at: String,
    /// When its processing was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processed_at: Option<String>,
    /// The result that the consumer recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
}

/// Lists received messages, newest first.
///
/// Messages have no tenant, so a token of a tenant sees none.
#[utoipa::path(get, path = "/admin/v1/inbox", tag = "inbox", params(AskInbox),
    responses((status = 200, body = PageView<MessageView>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<AskInbox>,
) -> Result<Json<PageView<MessageView>>, Problem> {
    Ok(Json(page(admin.store(), &caller.actor, &ask).await?))
}

/// Reads a page of messages.
pub(crate) async fn page(
    store: &Postgres,
    actor: &Actor,
    ask: &AskInbox,
) -> Result<PageView<MessageView>, Refusal> {
    let cursor = "`next` of the previous page";
    let before = read("before", ask.before.as_ref(), |it| it.parse().ok(), cursor)?;
    let messages = Messages {
        consumer: ask.consumer.clone(),
        source: ask.source.clone(),
        message_id: ask.message_id.clone(),
        since: read("since", ask.since.as_ref(), when, MOMENT)?,
        until: read("until", ask.until.as_ref(), when, MOMENT)?,
    };
    let found = inbox::list(store, actor, &messages, before.as_ref(), ask.limit()).await?;
    Ok(PageView::of(found, MessageView::from, |next| {
        next.to_string()
    }))
}

impl AskInbox {
    /// The maximum number of items.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE)
    }
}

impl From<Message> for MessageView {
    fn from(it: Message) -> Self {
        Self {
            consumer: it.consumer,
            message_id: it.message_id,
            source: it.source,
            payload_hash: it.payload_hash,
            received_at: moment(it.received_at),
            processed_at: it.processed_at.map(moment),
            result: it.result,
        }
    }
}
