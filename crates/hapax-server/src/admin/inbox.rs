//! `/admin/v1/inbox`: messages that were taken.

use axum::{Json, extract::State};
use hapax_postgres::{
    Postgres,
    operate::{
        Actor,
        inbox::{self, Message, Messages},
    },
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Admin, Refusal,
    ask::{MOMENT, PAGE, read, when},
    door::Caller,
    problem::{Problem, Query},
    view::{PageView, moment},
};

/// Which messages, and which page of them.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams, clap::Args)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskInbox {
    /// Messages that this consumer took
    #[arg(long)]
    #[serde(default)]
    pub(crate) consumer: Option<String>,
    /// Messages from this source
    #[arg(long)]
    #[serde(default)]
    pub(crate) source: Option<String>,
    /// Messages of this id: of an event, the event's
    #[arg(long, value_name = "ID")]
    #[serde(default)]
    pub(crate) message_id: Option<String>,
    /// Messages that were taken at or after this moment (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub(crate) since: Option<String>,
    /// Messages that were taken before this moment (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    #[serde(default)]
    pub(crate) until: Option<String>,
    /// Where the page begins: `next` of the page before
    #[arg(long, value_name = "CURSOR")]
    #[serde(default)]
    pub(crate) before: Option<String>,
    /// How many at most
    #[arg(long, value_name = "COUNT")]
    #[serde(default)]
    pub(crate) limit: Option<usize>,
}

/// A message that was taken.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct MessageView {
    /// Who took it.
    pub(crate) consumer: String,
    /// Its own id.
    pub(crate) message_id: String,
    /// Where it came from.
    pub(crate) source: String,
    /// The hash of what it said, in hex.
    pub(crate) payload_hash: String,
    /// When it was taken.
    pub(crate) received_at: String,
    /// When its effect was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processed_at: Option<String>,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<String>,
}

/// Lists messages that were taken, the newest first. They belong to no tenant: a token of one sees
/// none.
#[utoipa::path(get, path = "/admin/v1/inbox", tag = "inbox", params(AskInbox),
    responses((status = 200, body = PageView<MessageView>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(admin): State<Admin>,
    caller: Caller,
    Query(ask): Query<AskInbox>,
) -> Result<Json<PageView<MessageView>>, Problem> {
    Ok(Json(page(admin.store(), &caller.actor, &ask).await?))
}

/// A page of messages.
pub(crate) async fn page(
    store: &Postgres,
    actor: &Actor,
    ask: &AskInbox,
) -> Result<PageView<MessageView>, Refusal> {
    let cursor = "`next` of the page before";
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
    /// How many items the page has at most.
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
