//! Polling endpoints: created, listed, given another token, and removed by operators.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Actor, AdminError, Count, CountKind, Page, check_tenant_name};
use crate::{
    clock::Timestamp,
    delivery::Start,
    limits::{
        EVENT_TYPE_BYTES_MAX, POLLING_OVERLAP_MAX, POLLING_PATTERNS, POLLING_PREVIOUS_TOKENS,
    },
    poll::{CursorSecret, TokenHash, is_endpoint_name},
    relay::route::Pattern,
};

/// The polling endpoints.
#[async_trait]
pub trait PollAdmin: Send + Sync {
    /// Creates an endpoint. Its committed position is where it starts; no event is skipped whose
    /// transaction commits after this call.
    ///
    /// # Errors
    /// `Conflict` if there is an endpoint of this name.
    async fn create_polling_endpoint(
        &self,
        actor: &Actor,
        new: &NewPollingEndpoint,
    ) -> Result<PollingEndpoint, AdminError>;

    /// Lists the endpoints that the actor may see, by name.
    async fn polling_endpoints(
        &self,
        actor: &Actor,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<PollingEndpoint>, AdminError>;

    /// Reads one endpoint.
    async fn polling_endpoint(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<PollingEndpoint, AdminError>;

    /// Replaces the token of an endpoint. The old one stays valid for `overlap`, and earlier ones until
    /// their own ends; an overlap of zero ends all of them at once.
    ///
    /// # Errors
    /// `Conflict` if there is an overlap and [`POLLING_PREVIOUS_TOKENS`] previous tokens are valid.
    async fn rotate_polling_token(
        &self,
        actor: &Actor,
        name: &str,
        token: &TokenHash,
        overlap: Duration,
    ) -> Result<PollingEndpoint, AdminError>;

    /// Moves the committed position of an endpoint. A consumer that commits a later cursor afterwards
    /// moves it on.
    async fn seek_polling_endpoint(
        &self,
        actor: &Actor,
        name: &str,
        to: Start,
    ) -> Result<PollingEndpoint, AdminError>;

    /// Counts the events that an endpoint has not committed. Events whose transaction was open when the
    /// position was committed may be missing in the number.
    async fn polling_lag(&self, actor: &Actor, name: &str) -> Result<PollingLag, AdminError>;

    /// Removes an endpoint with its tokens and its position. Its cursors are not valid at a new
    /// endpoint of the same name.
    async fn remove_polling_endpoint(&self, actor: &Actor, name: &str) -> Result<(), AdminError>;
}

/// An endpoint to be created.
#[derive(Clone, Debug)]
pub struct NewPollingEndpoint {
    /// The name, which is part of the URL.
    pub name: String,
    /// The only tenant whose events it receives.
    pub tenant: Option<String>,
    /// Whether it receives the events of all tenants, and those without a tenant.
    pub all_tenants: bool,
    /// Patterns of event types, such as `order.*`; none means all types.
    pub types: Vec<String>,
    /// Where it starts.
    pub start: Start,
    /// The hash of its token.
    pub token: TokenHash,
    /// The secret of its cursors.
    pub secret: CursorSecret,
}

impl NewPollingEndpoint {
    /// Checks the fields, and that an actor of a tenant creates an endpoint of that tenant. Returns the
    /// patterns as they are stored.
    ///
    /// # Errors
    /// `Invalid` with the first field that is not valid.
    pub fn check(&self, actor: &Actor) -> Result<Vec<String>, AdminError> {
        if !is_endpoint_name(&self.name) {
            let problem = "must be 1 to 64 characters of A-Z a-z 0-9 _ - . and begin with a letter \
                           or a digit";
            return Err(AdminError::invalid("name", problem));
        }
        self.check_tenant(actor)?;
        if self.types.len() > POLLING_PATTERNS {
            let problem = format!("must be at most {POLLING_PATTERNS} patterns");
            return Err(AdminError::invalid("types", problem));
        }
        let is_bad = |it: &String| {
            it.is_empty() || it.len() > EVENT_TYPE_BYTES_MAX || it.contains(char::is_control)
        };
        if self.types.iter().any(is_bad) {
            let problem = "must be patterns of 1 to 255 bytes, such as order.*";
            return Err(AdminError::invalid("types", problem));
        }
        Ok(if self.types.is_empty() {
            vec!["*".to_owned()]
        } else {
            self.types.clone()
        })
    }

    /// The detail of its creation in the audit log, with the patterns as they are stored.
    pub fn detail(&self, types: &[String]) -> Value {
        json!({
            "tenant": self.tenant,
            "all_tenants": self.all_tenants,
            "types": types,
            "start": self.start,
        })
    }

    fn check_tenant(&self, actor: &Actor) -> Result<(), AdminError> {
        if let Some(own) = actor.tenant()
            && (self.tenant.as_deref() != Some(own) || self.all_tenants)
        {
            let problem = format!("must be {own}, the only tenant that you may use");
            return Err(AdminError::invalid("tenant", problem));
        }
        match (&self.tenant, self.all_tenants) {
            (None, false) => {
                let problem = "is missing: name the tenant whose events the endpoint receives, or set \
                               all_tenants";
                Err(AdminError::invalid("tenant", problem))
            }
            (Some(_), true) => {
                let problem = "cannot be set together with all_tenants";
                Err(AdminError::invalid("tenant", problem))
            }
            (Some(tenant), false) => check_tenant_name(tenant),
            (None, true) => Ok(()),
        }
    }
}

/// A polling endpoint, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PollingEndpoint {
    /// The name, which is part of the URL.
    pub name: String,
    /// The only tenant whose events it receives; absent if it receives those of all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether it receives the events of all tenants, and those without a tenant.
    pub all_tenants: bool,
    /// Patterns of event types.
    pub types: Vec<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The operator who created it.
    pub created_by: String,
    /// The highest position of the committed cursor.
    pub position: i64,
    /// When the position was committed last; absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<Timestamp>,
    /// When it was polled last, to the minute; absent if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_polled_at: Option<Timestamp>,
    /// When the last of the previous tokens ends; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_token_until: Option<Timestamp>,
}

impl PollingEndpoint {
    /// The endpoint, if the actor may see it.
    ///
    /// # Errors
    /// `NotFound` if there is none, or if it belongs to another tenant.
    pub fn present(found: Option<Self>, actor: &Actor, name: &str) -> Result<Self, AdminError> {
        found
            .filter(|it| actor.tenant().is_none() || it.tenant.as_deref() == actor.tenant())
            .ok_or_else(|| AdminError::not_found(polling_object(name)))
    }
}

/// The events that a polling endpoint has not committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollingLag {
    /// Their number, exact if all events after the position were looked at.
    pub events: Count,
    /// When the oldest of them was created.
    pub oldest_at: Option<Timestamp>,
}

/// Events of one type after the position of a polling endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsOfType {
    /// The type.
    pub kind: String,
    /// Their number.
    pub number: u64,
    /// When the oldest of them was created.
    pub oldest_at: Timestamp,
}

impl PollingLag {
    /// Adds up the events whose types match a pattern of the endpoint. `is_all` says that no event after
    /// the position was left out.
    pub fn of(types: &[String], counted: &[EventsOfType], is_all: bool) -> Self {
        let patterns: Vec<_> = types.iter().map(|it| Pattern::new(it.clone())).collect();
        let is_own = |it: &&EventsOfType| patterns.iter().any(|one| one.matches(&it.kind));
        let own = counted.iter().filter(is_own);
        let kind = if is_all {
            CountKind::Exact
        } else {
            CountKind::AtLeast
        };
        Self {
            events: Count {
                number: own.clone().map(|it| it.number).sum(),
                kind,
            },
            oldest_at: own.map(|it| it.oldest_at).min(),
        }
    }
}

/// The name of an endpoint in errors and in the audit log.
pub fn polling_object(name: &str) -> String {
    format!("polling endpoint {name}")
}

/// Checks how long an old token stays valid.
///
/// # Errors
/// `Invalid` if it is more than [`POLLING_OVERLAP_MAX`].
pub fn check_overlap(overlap: Duration) -> Result<(), AdminError> {
    if overlap > POLLING_OVERLAP_MAX {
        return Err(AdminError::invalid("overlap", "must be at most 30 days"));
    }
    Ok(())
}

/// Why another token with an overlap is refused, if `valid` previous tokens are as many as may be.
/// `first_end` is when the first of them ends.
pub fn too_many_tokens(valid: u64, first_end: Option<Timestamp>) -> Option<String> {
    let first_end = first_end.filter(|_| valid >= POLLING_PREVIOUS_TOKENS)?;
    Some(format!(
        "{POLLING_PREVIOUS_TOKENS} previous tokens of the polling endpoint are still valid, which is \
         the limit: the first of them ends at {first_end}. Rotate after that, or with an overlap of 0s, \
         which ends all of them at once"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Tenant;

    fn new(tenant: Option<&str>, all_tenants: bool, types: &[&str]) -> NewPollingEndpoint {
        NewPollingEndpoint {
            name: "acme".to_owned(),
            tenant: tenant.map(str::to_owned),
            all_tenants,
            types: types.iter().map(|it| (*it).to_owned()).collect(),
            start: Start::Now,
            token: TokenHash::from_bytes([1; 32]),
            secret: CursorSecret::from_bytes([2; 32]),
        }
    }

    #[test]
    fn the_events_of_all_tenants_need_an_explicit_flag() {
        let ops = Actor::new("ops");
        let check = |tenant, all| new(tenant, all, &[]).check(&ops).map(drop);
        assert!(check(Some("acme"), false).is_ok());
        assert!(check(None, true).is_ok());
        assert!(check(None, false).is_err());
        assert!(check(Some("acme"), true).is_err());
        assert!(check(Some(""), false).is_err());
        assert!(check(Some("a\nb"), false).is_err());
    }

    #[test]
    fn an_operator_of_a_tenant_creates_endpoints_of_that_tenant() {
        let own = Actor::new("ann").of(Tenant::new("acme").unwrap());
        let check = |tenant, all| new(tenant, all, &[]).check(&own).map(drop);
        assert!(check(Some("acme"), false).is_ok());
        for (tenant, all) in [(Some("other"), false), (None, true), (None, false)] {
            assert!(check(tenant, all).is_err(), "{tenant:?} {all}");
        }
    }

    #[test]
    fn the_lag_is_that_of_the_types_of_the_endpoint() {
        let counted = [
            ("order.paid", 2, 30),
            ("order.made", 3, 20),
            ("other", 9, 10),
        ];
        let counted = counted.map(|(kind, number, at)| EventsOfType {
            kind: kind.to_owned(),
            number,
            oldest_at: Timestamp::from_millis(at),
        });
        let lag = |types: &[&str], is_all| {
            let types: Vec<_> = types.iter().map(|it| (*it).to_owned()).collect();
            PollingLag::of(&types, &counted, is_all)
        };
        let orders = lag(&["order.*"], true);
        assert_eq!(
            (orders.events.number, orders.events.kind),
            (5, CountKind::Exact)
        );
        assert_eq!(orders.oldest_at, Some(Timestamp::from_millis(20)));
        let all = lag(&["*"], false);
        assert_eq!(
            (all.events.number, all.events.kind),
            (14, CountKind::AtLeast)
        );
        assert_eq!(lag(&["none"], true), PollingLag::default());
    }

    #[test]
    fn patterns_are_checked_and_none_means_all() {
        let ops = Actor::new("ops");
        let check = |types: &[&str]| new(Some("acme"), false, types).check(&ops);
        assert_eq!(check(&[]).unwrap(), ["*"]);
        assert_eq!(check(&["order.*", "a"]).unwrap(), ["order.*", "a"]);
        assert!(check(&[""]).is_err());
        assert!(check(&["a\n"]).is_err());
        assert!(check(&["a"; POLLING_PATTERNS + 1]).is_err());
    }
}
