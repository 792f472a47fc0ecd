//! The filters of lists and of bulk operations as flags. Each command has the flags that it applies.

use crate::admin::{ListQuery, arguments};

/// Which events.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct EventArgs {
    /// Only events whose type matches, such as `order.*`
    #[arg(long = "type", value_name = "PATTERN")]
    kind: Option<String>,
    /// Only events of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only events about this type of aggregate, such as `order`
    #[arg(long, value_name = "TYPE")]
    aggregate_type: Option<String>,
    /// Only events about the aggregate with this id
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
    /// Only the event with this id
    #[arg(long, value_name = "UUID")]
    event_id: Option<String>,
    /// Only events created at or after this time: RFC 3339, or a duration before now such as 1h
    #[arg(long, value_name = "TIME", value_parser = arguments::time)]
    since: Option<String>,
    /// Only events created before this time: RFC 3339, or a duration before now such as 1h
    #[arg(long, value_name = "TIME", value_parser = arguments::time)]
    until: Option<String>,
}

/// One delivery.
#[derive(Debug, clap::Args)]
pub(super) struct DeliveryArgs {
    /// Destination as listed; if it has several partitions, the partition, such as orders/3
    pub(super) destination: String,
    /// Position as listed
    pub(super) position: i64,
}

/// Which deliveries, by their attempts.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AttemptArgs {
    /// Only deliveries with at least this number of attempts
    #[arg(long, value_name = "COUNT")]
    attempts_min: Option<u32>,
    /// Only deliveries whose last error contains this text
    #[arg(long, value_name = "WORDS")]
    error: Option<String>,
}

/// The page of a list.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PageArgs {
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    before: Option<String>,
    /// Maximum number of items, at least 1 [default: 50]
    #[arg(long, value_name = "COUNT", value_parser = arguments::limit)]
    limit: Option<usize>,
}

impl EventArgs {
    /// The filter.
    pub(super) fn query(self) -> ListQuery {
        ListQuery {
            kind: self.kind,
            tenant: self.tenant,
            aggregate_type: self.aggregate_type,
            aggregate_id: self.aggregate_id,
            event_id: self.event_id,
            since: self.since,
            until: self.until,
            ..ListQuery::default()
        }
    }
}

impl AttemptArgs {
    /// Adds the flags to a filter.
    pub(super) fn add_to(self, query: &mut ListQuery) {
        query.attempts_min = self.attempts_min;
        query.error = self.error;
    }
}

impl PageArgs {
    /// Adds the flags to a filter.
    pub(super) fn add_to(self, query: &mut ListQuery) {
        query.before = self.before;
        query.limit = self.limit;
    }
}
