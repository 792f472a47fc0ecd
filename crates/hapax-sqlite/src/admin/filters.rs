//! Filters of events and deliveries, applied to the rows that a page visits.

use hapax::{
    Timestamp,
    admin::{Actor, EventFilter},
    key::Tenant,
    relay::Pattern,
};
use rusqlite::Row;

/// The filter of an actor.
#[derive(Clone, Debug)]
pub(super) struct Filters {
    kind: Option<Pattern>,
    tenant: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    event_id: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    attempts_min: u32,
    /// In lower case.
    error: Option<String>,
}

impl Filters {
    /// The filter of an actor; `None` if it asks for the events of another tenant, which the actor
    /// may not see.
    pub(super) fn of(actor: &Actor, filter: &EventFilter) -> Option<Self> {
        let tenant = filter.tenant_of(actor)?;
        Some(Self {
            kind: filter.kind.as_ref().map(Pattern::new),
            tenant: tenant.map(Tenant::as_str).map(str::to_owned),
            aggregate_type: filter.aggregate_type.clone(),
            aggregate_id: filter.aggregate_id.clone(),
            event_id: filter.event_id.map(|id| id.to_string()),
            since: filter.since,
            until: filter.until,
            attempts_min: filter.attempts_min,
            error: filter.error.as_ref().map(|error| error.to_lowercase()),
        })
    }

    /// Whether the event matches that the columns of a row describe: `event_id`, `type`, `tenant`,
    /// `aggregate_type`, `aggregate_id` and `created_at`.
    pub(super) fn event(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let is = |column: &str, wanted: Option<&String>| {
            let Some(wanted) = wanted else {
                return Ok(true);
            };
            let found = row.get_ref(column)?.as_str_or_null()?;
            Ok::<_, rusqlite::Error>(found == Some(wanted.as_str()))
        };
        let created_at = Timestamp::from_millis(row.get("created_at")?);
        let is_in_time = self.since.is_none_or(|since| created_at >= since)
            && self.until.is_none_or(|until| created_at < until);
        let is_of_kind = match &self.kind {
            None => true,
            Some(pattern) => pattern.matches(row.get_ref("type")?.as_str()?),
        };
        Ok(is_in_time
            && is_of_kind
            && is("tenant", self.tenant.as_ref())?
            && is("aggregate_type", self.aggregate_type.as_ref())?
            && is("aggregate_id", self.aggregate_id.as_ref())?
            && is("event_id", self.event_id.as_ref())?)
    }

    /// Whether the delivery matches that the columns of a row describe: `attempt` and `last_error`.
    pub(super) fn delivery(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        if row.get::<_, u32>("attempt")? < self.attempts_min {
            return Ok(false);
        }
        let Some(wanted) = &self.error else {
            return Ok(true);
        };
        let error = row.get_ref("last_error")?.as_str_or_null()?;
        Ok(error.is_some_and(|error| error.to_lowercase().contains(wanted)))
    }
}

#[cfg(test)]
mod tests {
    use hapax::key::Tenant;

    use super::*;

    #[test]
    fn an_actor_of_a_tenant_asks_for_no_other() {
        let tenant = |name: &str| Tenant::new(name).unwrap();
        let actor = Actor::new("ops").of(tenant("a"));
        let mut filter = EventFilter::default();
        let own = Filters::of(&actor, &filter).unwrap();
        assert_eq!(own.tenant.as_deref(), Some("a"));
        filter.tenant = Some(tenant("b"));
        assert!(Filters::of(&actor, &filter).is_none());
        assert!(Filters::of(&Actor::new("ops"), &filter).is_some());
    }
}
