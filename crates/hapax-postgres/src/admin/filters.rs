//! Filters as parameters of statements.
//!
//! No value of a filter becomes part of the SQL text.

use hapax::{
    admin::{Actor, EventFilter},
    key::Tenant,
};

use crate::{
    delivery::settle::text,
    value::{Moment, Param},
};

/// The first seven parameters of every statement that filters events.
pub(super) struct Filters {
    kind: Option<String>,
    tenant: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    event_id: Option<String>,
    since: Option<Moment>,
    until: Option<Moment>,
    pub(super) attempts_min: i32,
    pub(super) error: Option<String>,
}

impl Filters {
    /// The filter of an actor; `None` if it asks for the events of another tenant, which the actor
    /// may not see.
    pub(super) fn of(actor: &Actor, filter: &EventFilter) -> Option<Self> {
        let tenant = filter.tenant_of(actor)?;
        Some(Self {
            kind: filter.kind.as_deref().map(like),
            tenant: tenant.map(Tenant::as_str).map(text),
            aggregate_type: word(filter.aggregate_type.as_ref()),
            aggregate_id: word(filter.aggregate_id.as_ref()),
            event_id: filter.event_id.map(|id| id.to_string()),
            since: filter.since.map(Moment),
            until: filter.until.map(Moment),
            attempts_min: i32::try_from(filter.attempts_min).unwrap_or(i32::MAX),
            error: word(filter.error.as_ref()),
        })
    }

    /// Whether it matches everything.
    pub(super) fn is_any(&self) -> bool {
        let words = [
            &self.kind,
            &self.tenant,
            &self.aggregate_type,
            &self.aggregate_id,
            &self.event_id,
            &self.error,
        ];
        words.iter().all(|word| word.is_none())
            && self.since.is_none()
            && self.until.is_none()
            && self.attempts_min == 0
    }

    /// The parameters of the filter, followed by `more`.
    pub(super) fn with<'a>(&'a self, more: &[&'a dyn Param]) -> Vec<&'a dyn Param> {
        let mut params: Vec<&dyn Param> = vec![
            &self.kind,
            &self.tenant,
            &self.aggregate_type,
            &self.aggregate_id,
            &self.event_id,
            &self.since,
            &self.until,
        ];
        params.extend_from_slice(more);
        params
    }
}

/// Text without zero bytes, which the database cannot store.
pub(super) fn word(word: Option<&String>) -> Option<String> {
    word.map(|word| text(word))
}

/// A pattern for `LIKE`, in which `*` matches any characters and everything else matches itself.
fn like(pattern: &str) -> String {
    let mut like = String::with_capacity(pattern.len() + 2);
    for letter in text(pattern).chars() {
        match letter {
            '*' => like.push('%'),
            '%' | '_' | '\\' => like.extend(['\\', letter]),
            plain => like.push(plain),
        }
    }
    like
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_alone_stands_for_many_characters() {
        assert_eq!(like("order.*"), "order.%");
        assert_eq!(like("a_b%c\\*"), "a\\_b\\%c\\\\%");
    }

    #[test]
    fn an_actor_of_a_tenant_asks_for_no_other() {
        let tenant = |name: &str| Tenant::new(name).unwrap();
        let actor = Actor::new("ops").of(tenant("a"));
        let mut filter = EventFilter::default();
        assert_eq!(
            Filters::of(&actor, &filter).unwrap().tenant.as_deref(),
            Some("a")
        );
        filter.tenant = Some(tenant("b"));
        assert!(Filters::of(&actor, &filter).is_none());
        assert!(Filters::of(&Actor::new("ops"), &filter).is_some());
    }
}
