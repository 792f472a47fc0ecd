//! Filters and pagination, as a query string, a JSON body or command-line flags.

use hapax::{Timestamp, event::EventId, key::Tenant};
use hapax_postgres::admin::{Filter, events::DeliveryStatus};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::destination::SpecError;

/// Filter of events, deliveries or dead letters, and the page.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema, IntoParams, clap::Args)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only events whose type matches, such as `order.*`
    #[arg(long = "type", value_name = "PATTERN")]
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// Only events of this tenant
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// Only events about this type of aggregate, such as `order`
    #[arg(long, value_name = "TYPE")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_type: Option<String>,
    /// Only events about the aggregate with this id
    #[arg(long, value_name = "ID")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) aggregate_id: Option<String>,
    /// Only the event with this id
    #[arg(long, value_name = "UUID")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) event_id: Option<String>,
    /// Only events created at or after this time (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// Only events created before this time (RFC 3339)
    #[arg(long, value_name = "MOMENT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<String>,
    /// Only deliveries with at least this number of attempts
    #[arg(long, value_name = "COUNT")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 4_294_967_295_i64)]
    #[param(value_type = Option<i64>, minimum = 0, maximum = 4_294_967_295_i64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempts_min: Option<u32>,
    /// Only deliveries whose last error contains this text
    #[arg(long, value_name = "WORDS")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Only deliveries of this destination
    #[arg(long, value_name = "NAME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) destination: Option<String>,
    /// Only deliveries in one of these states, separated by commas
    #[arg(long, value_name = "STATES")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// Start of the page: `next` of the previous page
    #[arg(long, value_name = "CURSOR")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<String>,
    /// Maximum number of items
    #[arg(long, value_name = "COUNT")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
}

/// Default page size.
pub(super) const PAGE: usize = 50;

impl ListQuery {
    /// The filter, parsed.
    pub(crate) fn filter(&self) -> Result<Filter, SpecError> {
        Ok(Filter {
            kind: self.kind.clone(),
            tenant: read(
                "tenant",
                self.tenant.as_ref(),
                |it| Tenant::new(it).ok(),
                "a tenant's name, 1 to 255 bytes",
            )?,
            aggregate_type: self.aggregate_type.clone(),
            aggregate_id: self.aggregate_id.clone(),
            event_id: read(
                "event_id",
                self.event_id.as_ref(),
                |it| it.parse::<EventId>().ok(),
                "a UUID",
            )?,
            since: read("since", self.since.as_ref(), when, MOMENT)?,
            until: read("until", self.until.as_ref(), when, MOMENT)?,
            attempts_min: self.attempts_min.unwrap_or(0),
            error: self.error.clone(),
        })
    }

    /// The states, parsed.
    pub(crate) fn states(&self) -> Result<Vec<DeliveryStatus>, SpecError> {
        let words = self.state.as_deref().unwrap_or_default().split(',');
        let words = words.map(str::trim).filter(|word| !word.is_empty());
        words
            .map(|word| {
                let all = [
                    DeliveryStatus::Scheduled,
                    DeliveryStatus::Retrying,
                    DeliveryStatus::Blocked,
                    DeliveryStatus::Dead,
                    DeliveryStatus::Delivered,
                    DeliveryStatus::Discarded,
                ];
                let found = all.into_iter().find(|it| it.as_str() == word);
                found.ok_or_else(|| {
                    wrong(
                        "state",
                        "must be scheduled, retrying, blocked, dead, delivered or discarded",
                    )
                })
            })
            .collect()
    }

    /// Refuses the fields that apply to deliveries only. Ignoring them would make a filter of
    /// events match everything.
    pub(crate) fn check_of_events(&self) -> Result<(), SpecError> {
        for (field, is_given) in [
            ("destination", self.destination.is_some()),
            ("state", self.state.is_some()),
            ("error", self.error.is_some()),
            ("attempts_min", self.attempts_min.is_some()),
        ] {
            if is_given {
                return Err(wrong(field, "applies to deliveries, not to events"));
            }
        }
        Ok(())
    }

    /// Refuses `state`, which has no meaning for dead letters.
    pub(crate) fn check_of_dead(&self) -> Result<(), SpecError> {
        if self.state.is_some() {
            return Err(wrong(
                "state",
                "cannot be set: dead letters are always in state dead",
            ));
        }
        Ok(())
    }

    /// The page's start, parsed: only positions below it are listed.
    pub(crate) fn before_number(&self) -> Result<Option<i64>, SpecError> {
        read(
            "before",
            self.before.as_ref(),
            |it| it.parse().ok(),
            "`next` of the previous page",
        )
    }

    /// The maximum number of items.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(PAGE)
    }
}

/// A bulk operation on events or dead letters.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
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

pub(super) const MOMENT: &str = "a moment such as 2026-01-31T12:00:00Z";

pub(super) fn when(text: &str) -> Option<Timestamp> {
    let moment: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp::from_millis(moment.as_millisecond()))
}

pub(super) fn read<T>(
    field: &str,
    text: Option<&String>,
    read: impl FnOnce(&str) -> Option<T>,
    what: &str,
) -> Result<Option<T>, SpecError> {
    let Some(text) = text else { return Ok(None) };
    read(text)
        .map(Some)
        .ok_or_else(|| wrong(field, &format!("must be {what}")))
}

pub(crate) fn wrong(field: &str, problem: &str) -> SpecError {
    SpecError {
        field: field.to_owned(),
        problem: problem.to_owned(),
    }
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
            assert_eq!(ask.check_of_events().unwrap_err().field, field);
            assert_eq!(ask.check_of_dead().is_err(), field == "state");
        }
        ListQuery {
            kind: some(),
            ..ListQuery::default()
        }
        .check_of_events()
        .unwrap();
    }
}
