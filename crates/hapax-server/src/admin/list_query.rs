//! Filters and pagination, as a query string or a JSON body. The commands have separate flags.

use hapax::{
    admin::{AdminError, DeliveryFilter, DeliveryStatus, EventFilter, read_field, read_time},
    key::Tenant,
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// Filter of events, deliveries or dead letters, and the page.
#[derive(Clone, Debug, Default, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only events whose type matches, such as `order.*`
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// Only events of this tenant
    pub(crate) tenant: Option<String>,
    /// Only events about this type of aggregate, such as `order`
    pub(crate) aggregate_type: Option<String>,
    /// Only events about the aggregate with this id
    pub(crate) aggregate_id: Option<String>,
    /// Only the event with this id
    pub(crate) event_id: Option<String>,
    /// Only events created at or after this time (RFC 3339)
    pub(crate) since: Option<String>,
    /// Only events created before this time (RFC 3339)
    pub(crate) until: Option<String>,
    /// Only deliveries with at least this number of attempts
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 4_294_967_295_i64)]
    #[param(value_type = Option<i64>, minimum = 0, maximum = 4_294_967_295_i64)]
    pub(crate) attempts_min: Option<u32>,
    /// Only deliveries whose last error contains this text
    pub(crate) error: Option<String>,
    /// Only deliveries of this destination
    pub(crate) destination: Option<String>,
    /// Only deliveries in one of these states, separated by commas
    pub(crate) state: Option<String>,
    /// Only events that this destination has not read yet, whether they are for it or not. For lists
    /// of events only
    pub(crate) unread: Option<String>,
    /// Start of the page: `next` of the previous page
    pub(crate) before: Option<String>,
    /// Maximum number of items
    pub(crate) limit: Option<usize>,
}

/// Default page size.
pub(super) const PAGE: usize = 50;

impl ListQuery {
    /// The filter of events, parsed. Refuses `unread`, which a list of events takes out before.
    pub(crate) fn filter(&self) -> Result<EventFilter, AdminError> {
        if self.unread.is_some() {
            return Err(AdminError::invalid(
                "unread",
                "applies to lists of events only",
            ));
        }
        let (tenant, event_id) = (self.tenant.as_deref(), self.event_id.as_deref());
        Ok(EventFilter {
            kind: self.kind.clone(),
            tenant: read_field("tenant", tenant, "a tenant's name, 1 to 255 bytes", |it| {
                Tenant::new(it).ok()
            })?,
            aggregate_type: self.aggregate_type.clone(),
            aggregate_id: self.aggregate_id.clone(),
            event_id: read_field("event_id", event_id, "a UUID", |it| it.parse().ok())?,
            since: read_time("since", self.since.as_deref())?,
            until: read_time("until", self.until.as_deref())?,
            after: None,
            attempts_min: self.attempts_min.unwrap_or(0),
            error: self.error.clone(),
        })
    }

    /// The filter of deliveries, parsed.
    pub(crate) fn of_deliveries(&self) -> Result<DeliveryFilter, AdminError> {
        Ok(DeliveryFilter {
            events: self.filter()?,
            destination: self.destination.clone(),
            states: DeliveryStatus::parse_list(self.state.as_deref().unwrap_or_default())?,
        })
    }

    /// The filter of dead letters, parsed. Refuses `state`, which has no meaning for them.
    pub(crate) fn of_dead_letters(&self) -> Result<DeliveryFilter, AdminError> {
        if self.state.is_some() {
            return Err(AdminError::invalid(
                "state",
                "cannot be set: dead letters are always in state dead",
            ));
        }
        Ok(DeliveryFilter {
            states: vec![DeliveryStatus::Dead],
            ..self.of_deliveries()?
        })
    }

    /// The filter of events, parsed, if no field is set that applies to deliveries only. Ignoring
    /// such a field would make the filter match everything.
    pub(crate) fn of_events(&self) -> Result<EventFilter, AdminError> {
        for (field, is_given) in [
            ("destination", self.destination.is_some()),
            ("state", self.state.is_some()),
            ("error", self.error.is_some()),
            ("attempts_min", self.attempts_min.is_some()),
        ] {
            if is_given {
                let problem = "applies to deliveries, not to events";
                return Err(AdminError::invalid(field, problem));
            }
        }
        self.filter()
    }

    /// The maximum number of items.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE)
    }
}

/// A bulk operation on events or dead letters.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Many {
    /// The destination whose dead letters are meant, or to which the events are delivered again.
    pub(crate) destination: String,
    /// Which events or dead letters. `destination`, `state`, `before` and `limit` are not allowed
    /// here.
    #[serde(default)]
    pub(crate) filter: ListQuery,
    /// Maximum number per second.
    #[serde(default)]
    pub(crate) per_second: Option<u32>,
    /// The reason; required to discard.
    #[serde(default)]
    pub(crate) reason: Option<String>,
    /// Whether to count the matches only.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// The `seen` of an earlier count: the job is limited to what existed then.
    #[serde(default)]
    pub(crate) seen: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_would_not_be_applied_is_refused() {
        let some = || Some("x".to_owned());
        let asks = [
            (
                "destination",
                ListQuery {
                    destination: some(),
                    ..ListQuery::default()
                },
            ),
            (
                "state",
                ListQuery {
                    state: some(),
                    ..ListQuery::default()
                },
            ),
            (
                "error",
                ListQuery {
                    error: some(),
                    ..ListQuery::default()
                },
            ),
            (
                "attempts_min",
                ListQuery {
                    attempts_min: Some(1),
                    ..ListQuery::default()
                },
            ),
        ];
        for (field, ask) in asks {
            let refused = ask.of_events().unwrap_err().to_string();
            assert!(refused.starts_with(field), "{refused}");
            assert_eq!(ask.of_dead_letters().is_err(), field == "state");
        }
        let unread = ListQuery {
            unread: some(),
            ..ListQuery::default()
        };
        for refused in [unread.of_events().err(), unread.of_deliveries().err()] {
            assert!(refused.unwrap().to_string().starts_with("unread"));
        }
        ListQuery {
            kind: some(),
            ..ListQuery::default()
        }
        .of_events()
        .unwrap();
    }
}
