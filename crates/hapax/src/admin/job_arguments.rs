//! The arguments of jobs: the filter as JSON, and what bounds a job to what was counted.
//!
//! A store keeps the arguments of a job as text. A batch reads the filter from them.

use serde_json::{Value, json};

use super::{Actor, AdminError, EventFilter, JobOptions, Partition, destination_object};
use crate::{
    clock::Timestamp,
    event::EventId,
    key::{IdempotencyKey, Tenant},
};

/// The members of a job's arguments that depend on the time of the request: two requests with the
/// same key differ in them.
const BOUNDS: [&str; 4] = ["until", "seen", "counted_at", "deaths"];

/// The numbers of partitions that a destination can have.
const PARTITIONS: [u8; 5] = [1, 2, 4, 8, 16];

impl EventFilter {
    /// The filter as JSON for the arguments of a job, limited to the operator's tenant.
    ///
    /// # Errors
    /// `Invalid` if the filter asks for another tenant than that of the operator, or for events after
    /// a position.
    pub fn to_arguments(&self, actor: &Actor) -> Result<Value, AdminError> {
        if self.after.is_some() {
            return Err(AdminError::invalid("after", "is only for lists of events"));
        }
        let wrong = || AdminError::invalid("tenant", "must be your own");
        let tenant = self.tenant_of(actor).ok_or_else(wrong)?;
        Ok(json!({
            "type": self.kind,
            "tenant": tenant.map(Tenant::as_str),
            "aggregate_type": self.aggregate_type,
            "aggregate_id": self.aggregate_id,
            "event_id": self.event_id.map(|id| id.to_string()),
            "since": self.since.map(Timestamp::as_millis),
            "until": self.until.map(Timestamp::as_millis),
            "attempts_min": self.attempts_min,
            "error": self.error,
        }))
    }

    /// The filter in the arguments of a job; `None` if they contain none, or one that is not valid.
    pub fn of_arguments(arguments: &Value) -> Option<Self> {
        let spelled = arguments.get("filter")?;
        let word = |name: &str| spelled[name].as_str().map(str::to_owned);
        let moment = |name: &str| spelled[name].as_i64().map(Timestamp::from_millis);
        let id: Option<EventId> = word("event_id").map(|id| id.parse()).transpose().ok()?;
        Some(Self {
            kind: word("type"),
            tenant: word("tenant").map(Tenant::new).transpose().ok()?,
            aggregate_type: word("aggregate_type"),
            aggregate_id: word("aggregate_id"),
            event_id: id,
            since: moment("since"),
            until: moment("until"),
            after: None,
            attempts_min: spelled["attempts_min"]
                .as_u64()
                .and_then(|it| u32::try_from(it).ok())
                .unwrap_or(0),
            error: word("error"),
        })
    }
}

/// Whether two requests for a job have the same arguments, except for those that depend on the time
/// of the request.
pub fn are_same_arguments(one: &Value, other: &Value) -> bool {
    meaning(one) == meaning(other)
}

fn meaning(arguments: &Value) -> Value {
    let mut read = arguments.clone();
    if let Some(read) = read.as_object_mut() {
        for bound in BOUNDS {
            read.remove(bound);
        }
    }
    read
}

/// Checks the options of a job.
///
/// # Errors
/// `Invalid` for a rate of zero, and for a key that is not valid.
pub fn check_job_options(options: &JobOptions) -> Result<(), AdminError> {
    if options.per_second == Some(0) {
        return Err(AdminError::invalid("per_second", "must be at least 1"));
    }
    match options.request_key.as_deref().map(IdempotencyKey::new) {
        Some(Err(problem)) => Err(AdminError::invalid("request_key", problem.to_string())),
        _ => Ok(()),
    }
}

/// The number of partitions of a destination: as the caller says, or as many as were opened.
///
/// # Errors
/// `NotFound` if none was opened; `Conflict` if other partitions are open than were declared.
pub fn count_partitions(
    destination: &str,
    opened: &[Partition],
    declared: Option<u8>,
) -> Result<u8, AdminError> {
    if opened.is_empty() {
        return Err(AdminError::not_found(destination_object(destination)));
    }
    let count = u8::try_from(opened.len()).unwrap_or(u8::MAX);
    let partitions = declared.unwrap_or(count);
    if !PARTITIONS.contains(&partitions) || count != partitions {
        let what = format!("{count} partitions of {destination} are open: let a relay open all");
        return Err(AdminError::conflict(what));
    }
    Ok(partitions)
}

/// The name of a job in errors and in the audit log.
pub fn job_object(id: i64) -> String {
    format!("job {id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_back_from_the_arguments_of_a_job() {
        let filter = EventFilter {
            kind: Some("order.*".to_owned()),
            tenant: Some(Tenant::new("a").unwrap()),
            since: Some(Timestamp::from_millis(7)),
            attempts_min: 3,
            error: Some("Timeout".to_owned()),
            ..EventFilter::default()
        };
        let actor = Actor::new("ops");
        let arguments = json!({"filter": filter.to_arguments(&actor).unwrap()});
        assert_eq!(EventFilter::of_arguments(&arguments), Some(filter.clone()));
        let other = actor.of(Tenant::new("b").unwrap());
        assert!(filter.to_arguments(&other).is_err());
        let mut bounded = filter.clone();
        bounded.after = Some(7);
        assert!(bounded.to_arguments(&Actor::new("ops")).is_err());
        assert_eq!(EventFilter::of_arguments(&json!({})), None);
        let wrong = json!({"filter": {"event_id": "x"}});
        assert_eq!(EventFilter::of_arguments(&wrong), None);
    }

    #[test]
    fn the_same_request_may_have_been_counted_at_another_time() {
        let first = json!({"filter": {}, "until": 5, "seen": "1:2:", "counted_at": 7});
        let again = json!({"filter": {}, "until": 6, "deaths": 3});
        assert!(are_same_arguments(&first, &again));
        assert!(!are_same_arguments(
            &first,
            &json!({"filter": {}, "reason": "x"})
        ));
    }
}
