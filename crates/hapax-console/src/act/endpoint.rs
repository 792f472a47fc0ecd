//! Actions on endpoints of tenants: the confirmation page, and the execution.
//!
//! An endpoint is enabled or disabled at the version that the operator has seen. A test event is stored
//! nowhere, and its attempt is shown once.

use hapax::{
    Timestamp,
    admin::{
        Actor, EndpointAction, EndpointEdit, EndpointOperations, EndpointReplay, ReplayEnded,
        ReplayUnsent, TEST_EVENT, TenantEndpoint, UnsentReplayed, check_endpoint_tenant,
        endpoint_has_changed, replay_unsent,
    },
    event::EventId,
    limits::ENDPOINT_REPLAYED,
    retry::parse_duration,
};

use super::{Done, Plan, looked_at, parsed, plan::field, test_event};
use crate::{
    Console,
    fields::{Fields, path_of, url},
    format::{counted, number},
    html::{choice, link},
    pages::{ErrorPage, endpoint_attempts, endpoints},
};

/// How far back failed deliveries are sent again unless the form says otherwise.
const FAILED_SINCE: &str = "1d";
/// How far back events that were never sent are looked for unless the form says otherwise.
const MISSING_SINCE: &str = "7d";
/// The times that a form accepts.
const TIMES: &str = "a duration before now such as 1d, or a time such as 2026-01-31T12:00:00Z";

/// Which failed deliveries are sent again, with the label of each choice: all of them, or only those that
/// were dropped, or only the others.
const DROPPED: [(&str, &str); 3] = [
    ("", "all"),
    ("false", "those whose attempts have failed"),
    ("true", "those that were dropped because too many waited"),
];

/// The words of the actions.
pub(super) const ACTS: [&str; 6] = [
    "enable-endpoint",
    "disable-endpoint",
    "replay-endpoint",
    "replay-endpoint-event",
    "replay-missing",
    "test-endpoint",
];

/// An action on one endpoint.
pub(super) struct EndpointAct {
    verb: Verb,
    tenant: String,
    id: String,
    /// The version of the endpoint that the operator has seen.
    version: Option<i64>,
    /// The times between which events or failures are looked for, as they were written.
    since: Option<String>,
    until: Option<String>,
    /// Whether only dropped deliveries are sent again, or only the others.
    dropped: Option<bool>,
}

#[derive(Clone, Copy)]
enum Verb {
    Enable,
    Disable,
    ReplayFailed,
    ReplayEvent(EventId),
    ReplayMissing,
    Test,
}

impl EndpointAct {
    pub(super) fn read(fields: &Fields) -> Result<Self, ErrorPage> {
        let text = |name| {
            let missing = || ErrorPage::wrong(format!("The field {name} is missing."));
            fields.get(name).map(str::to_owned).ok_or_else(missing)
        };
        let verb = match text("act")?.as_str() {
            "enable-endpoint" => Verb::Enable,
            "disable-endpoint" => Verb::Disable,
            "replay-endpoint" => Verb::ReplayFailed,
            "replay-missing" => Verb::ReplayMissing,
            "test-endpoint" => Verb::Test,
            _ => Verb::ReplayEvent(looked_at(parsed(fields, "event")?, "event")?),
        };
        Ok(Self {
            verb,
            tenant: text("tenant")?,
            id: text("endpoint")?,
            version: parsed(fields, "version")?,
            since: fields.get("since").map(str::to_owned),
            until: fields.get("until").map(str::to_owned),
            dropped: match fields.text("dropped") {
                "" => None,
                _ => parsed(fields, "dropped")?,
            },
        })
    }

    /// The effect of the action.
    pub(super) async fn plan(
        &self,
        console: &Console,
        actor: &Actor,
        at: Timestamp,
    ) -> Result<Plan, ErrorPage> {
        let store = console.store();
        let (tenant, id) = (self.tenant.as_str(), self.id.as_str());
        let endpoint = store.endpoint(actor, tenant, id).await?.endpoint;
        let since = endpoints::a_day_before(at);
        let health = store.endpoint_health(actor, tenant, id, since).await?;
        let waits = counted(health.waiting, "delivery waits", "deliveries wait");
        let back = path_of("/console/endpoints", id);
        let of = format!("endpoint {id} of {tenant}");
        Ok(match self.verb {
            Verb::Enable => {
                self.check_state(&endpoint, false)?;
                let says = format!(
                    "Events are sent to {of} again, and its failures are counted from the \
                     beginning. {waits} for it and will be sent. Events that the relay has read \
                     since it was disabled are not sent."
                );
                Plan::new("Enable an endpoint", says, "Enable it", back)
                    .looked_at("version", &endpoint.version)
            }
            Verb::Disable => {
                self.check_state(&endpoint, true)?;
                let says = format!(
                    "Nothing is sent to {of} until it is enabled. {waits} for it and will be sent \
                     then. Events that the relay reads meanwhile are not sent to it later. The \
                     tenant sees the reason."
                );
                Plan::new("Disable an endpoint", says, "Disable it", back)
                    .looked_at("version", &endpoint.version)
            }
            Verb::ReplayFailed => {
                let failed = counted(health.failed, "delivery", "deliveries");
                let says = format!(
                    "{failed} to {of} failed and will not be retried. Those that failed between the \
                     times below are sent again, the oldest first, at most {}.",
                    number(ENDPOINT_REPLAYED as u64)
                );
                let plan = Plan::new("Send failed deliveries again", says, "Send them", back);
                let plan = self.with_times(plan, "Failed", FAILED_SINCE, "now");
                self.with_dropped(plan)
            }
            Verb::ReplayMissing => {
                let counted = self.missing(console, actor, at, true).await?;
                let says = format!("{} {}", missing_says(&counted, &of), self.times());
                let plan = Plan::new("Send missing events", says, "Send them", back);
                self.with_times(plan, "Created", MISSING_SINCE, "its creation")
            }
            Verb::ReplayEvent(event) => {
                let says = format!(
                    "Event {event} is sent to {of} again, in any state of its delivery, with \
                     no attempts counted. The webhook has the same id as before."
                );
                let back = self.page_of(event);
                Plan::new("Send an event again", says, "Send it", back)
            }
            Verb::Test => {
                operations(console)?;
                let says = format!(
                    "One event of the type {TEST_EVENT} is sent to {of} now, once. To the receiver \
                     it is a real event. It is not written to the outbox, it is not retried, and \
                     the log of attempts does not contain it."
                );
                Plan::new("Send a test event", says, "Send it", back)
            }
        })
    }

    /// Executes the action.
    pub(super) async fn run(
        &self,
        console: &Console,
        actor: &Actor,
        reason: &str,
        at: Timestamp,
    ) -> Result<Done, ErrorPage> {
        let page = path_of("/console/endpoints", &self.id);
        Ok(match self.verb {
            Verb::Enable => {
                self.set_disabled(console, actor, None).await?;
                Done::Next(page, "endpoint-enabled".to_owned())
            }
            Verb::Disable => {
                self.set_disabled(console, actor, Some(reason)).await?;
                Done::Next(page, "endpoint-disabled".to_owned())
            }
            Verb::ReplayFailed => {
                let replay = EndpointReplay::Ended(self.ended(at)?);
                let done = self.replay(console, actor, &replay).await?;
                Done::Next(page, format!("endpoint-replayed&done={done}"))
            }
            Verb::ReplayEvent(event) => {
                let replay = EndpointReplay::Event(event);
                let done = self.replay(console, actor, &replay).await?;
                let said = format!("endpoint-replayed&done={done}");
                Done::Next(self.page_of(event), said)
            }
            Verb::ReplayMissing => {
                let sent = self.missing(console, actor, at, false).await?;
                Done::Next(page, missing_sent(&sent))
            }
            Verb::Test => self.test(console, actor).await?,
        })
    }

    /// Refuses to enable an endpoint that is enabled, and to disable one that is not.
    fn check_state(&self, endpoint: &TenantEndpoint, is_enabled: bool) -> Result<(), ErrorPage> {
        if endpoint.enabled == is_enabled {
            return Ok(());
        }
        let state = if is_enabled { "disabled" } else { "enabled" };
        let why = format!("endpoint {} is {state} already", self.id);
        Err(ErrorPage::late(&why))
    }

    /// Disables the endpoint with a reason, or enables it without one, at the version that was seen.
    async fn set_disabled(
        &self,
        console: &Console,
        actor: &Actor,
        reason: Option<&str>,
    ) -> Result<(), ErrorPage> {
        let version = looked_at(self.version, "version")?;
        let (store, tenant, id) = (console.store(), self.tenant.as_str(), self.id.as_str());
        let stored = store.endpoint(actor, tenant, id).await?;
        if stored.endpoint.version != version {
            return Err(endpoint_has_changed(id, stored.endpoint.version).into());
        }
        let action = match reason {
            Some(_) => EndpointAction::Disable,
            None => EndpointAction::Enable,
        };
        let edit = EndpointEdit {
            disabled_reason: reason.map(str::to_owned),
            ..stored.edit()
        };
        let changed = store.change_endpoint(actor, tenant, id, version, action, &edit);
        changed.await?;
        Ok(())
    }

    async fn replay(
        &self,
        console: &Console,
        actor: &Actor,
        replay: &EndpointReplay,
    ) -> Result<u64, ErrorPage> {
        let store = console.store();
        let replayed = store.replay_endpoint(actor, &self.tenant, &self.id, replay);
        Ok(replayed.await?)
    }

    /// Adds the fields of the two times to a form. `end` is the second one if its field is empty.
    fn with_times(&self, mut plan: Plan, what: &str, since: &str, end: &str) -> Plan {
        let since = self.since.as_deref().unwrap_or(since);
        let until = self.until.as_deref().unwrap_or_default();
        let after = field("since", &format!("{what} since: {TIMES}"), since);
        let before = format!("{what} before: the same; {end} if it is empty");
        plan.more = after.add(field("until", &before, until));
        plan.is_short = false;
        plan
    }

    /// Adds the choice between dropped deliveries and the others to a form.
    fn with_dropped(&self, mut plan: Plan) -> Plan {
        let chosen = self.dropped.map(|it| it.to_string()).unwrap_or_default();
        let which = choice("dropped", "Deliveries", &DROPPED, &chosen);
        plan.more = plan.more.add(which);
        plan
    }

    /// The times for which a form counts.
    fn times(&self) -> String {
        let since = self.since.as_deref().unwrap_or(MISSING_SINCE);
        let until = self.until.as_deref().filter(|it| !it.trim().is_empty());
        let until = until
            .map(|it| format!(" and before {it}"))
            .unwrap_or_default();
        format!("The count is that of events since {since}{until}; other times can be set below.")
    }

    /// The failed deliveries that are sent again.
    fn ended(&self, now: Timestamp) -> Result<ReplayEnded, ErrorPage> {
        let since = self.since.as_deref().unwrap_or(FAILED_SINCE);
        Ok(ReplayEnded {
            until: self.end(now)?,
            dropped: self.dropped,
            ..ReplayEnded::since(moment(since, now)?)
        })
    }

    /// The second time of the form; `None` if its field is empty.
    fn end(&self, now: Timestamp) -> Result<Option<Timestamp>, ErrorPage> {
        let until = self.until.as_deref().filter(|it| !it.trim().is_empty());
        until.map(|it| moment(it, now)).transpose()
    }

    /// Queues the events that the endpoint never got, or counts them. This ends after some seconds; a
    /// second call finds what is left.
    async fn missing(
        &self,
        console: &Console,
        actor: &Actor,
        at: Timestamp,
        is_dry_run: bool,
    ) -> Result<UnsentReplayed, ErrorPage> {
        let since = self.since.as_deref().unwrap_or(MISSING_SINCE);
        let ask = ReplayUnsent {
            since: moment(since, at)?,
            until: self.end(at)?,
            after: None,
            is_dry_run,
            waiting_max: console.0.endpoint_waiting,
            now: console.0.clock.now(),
        };
        let (store, tenant, id) = (console.store(), self.tenant.as_str(), self.id.as_str());
        Ok(replay_unsent(store, actor, tenant, id, &ask).await?)
    }

    /// Sends a test event, and returns a page with the attempt.
    async fn test(&self, console: &Console, actor: &Actor) -> Result<Done, ErrorPage> {
        let operations = operations(console)?;
        // An operator of a tenant takes no place of another one.
        check_endpoint_tenant(actor, &self.tenant)?;
        let Some(_place) = console.0.endpoint_tests.take(&self.tenant) else {
            let why = "other test events of the tenant are being sent: wait until one has ended";
            return Err(ErrorPage::late(&why));
        };
        let tested = operations.test(actor, &self.tenant, &self.id);
        let mut attempt = tested.await?;
        let (queries, now) = (console.queries(), console.0.clock.now());
        queries.mask_exchange(&mut attempt);
        tracing::info!(
            actor = actor.name,
            endpoint = self.id,
            outcome = attempt.outcome.as_str(),
            "an operator sent a test event to an endpoint in the console"
        );
        let exchange = endpoint_attempts::exchange(&attempt, now);
        let back = path_of("/console/endpoints", &self.id);
        let back = link(&back, "Back to the endpoint");
        Ok(test_event::page(&self.id, attempt.outcome, exchange, back))
    }

    /// The page with the attempts at the delivery of one event.
    fn page_of(&self, event: EventId) -> String {
        let page = path_of("/console/endpoints", &self.id);
        url(&page, &[("event", &event.to_string())])
    }
}

/// The effect of a replay of events that were never sent.
fn missing_says(counted: &UnsentReplayed, of: &str) -> String {
    let exact = if counted.next.is_some() {
        "At least "
    } else {
        ""
    };
    let events = format_events(counted.missing);
    let unreadable = match counted.unreadable {
        0 => String::new(),
        number => format!(
            " Its filter cannot read the payloads of {}, which are not sent.",
            format_events(number)
        ),
    };
    format!(
        "{exact}{events} of its tenant match {of} and were never sent to it. They are queued, the oldest \
         first, until its queue is full.{unreadable}"
    )
}

/// The message after a replay of events that were never sent.
fn missing_sent(sent: &UnsentReplayed) -> String {
    let rest = match (sent.is_full, &sent.next) {
        (true, _) => "full",
        (false, Some(_)) => "more",
        (false, None) => "none",
    };
    format!("endpoint-missing&done={}&rest={rest}", sent.queued)
}

fn format_events(count: u64) -> String {
    counted(count, "event", "events")
}

/// A time of a form: a duration before `now`, or RFC 3339.
fn moment(text: &str, now: Timestamp) -> Result<Timestamp, ErrorPage> {
    let text = text.trim();
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ago = parse_duration(text).map_err(|_| {
        let why = format!("The time {text:?} is not valid: expected {TIMES}. Nothing was done.");
        ErrorPage::wrong(why)
    })?;
    Ok(endpoints::before(now, ago))
}

/// The operations that need the secrets of endpoints.
fn operations(console: &Console) -> Result<&dyn EndpointOperations, ErrorPage> {
    console.0.endpoints.as_deref().ok_or_else(|| {
        let why = "this console cannot send test events to endpoints: its process does not know \
                   their secrets";
        ErrorPage::late(&why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(form: &str) -> EndpointAct {
        let form = format!("act=replay-endpoint&tenant=acme&endpoint=ep_1&{form}");
        let fields = Fields::parse(form.as_bytes());
        EndpointAct::read(&fields).unwrap_or_else(|_| panic!("{form} is an action"))
    }

    #[test]
    fn failed_deliveries_are_sent_again_for_a_day_unless_the_form_says_otherwise() {
        let now = Timestamp::from_millis(100_000_000);
        let ended = |form: &str| act(form).ended(now);
        let day = Timestamp::from_millis(13_600_000);
        let (hour, half) = (
            Timestamp::from_millis(96_400_000),
            Timestamp::from_millis(98_200_000),
        );
        assert_eq!(ended("").unwrap(), ReplayEnded::since(day));
        assert_eq!(ended("since=1h&until=+").unwrap(), ReplayEnded::since(hour));
        let until = ended("since=1h&until=30m").unwrap();
        assert_eq!((until.since, until.until), (hour, Some(half)));
        let exact = ended("since=1970-01-01T00%3A00%3A00Z").unwrap();
        assert_eq!(exact.since, Timestamp::from_millis(0));
        assert!(ended("since=soon").is_err());
        assert!(ended("until=soon").is_err());
    }

    #[test]
    fn only_dropped_deliveries_or_only_the_others_are_sent_again_if_the_form_says_so() {
        let now = Timestamp::from_millis(100_000_000);
        let dropped = |form: &str| act(form).ended(now).unwrap().dropped;
        assert_eq!(dropped("dropped="), None);
        assert_eq!(dropped("dropped=false"), Some(false));
        assert_eq!(dropped("dropped=true"), Some(true));
        let fields = "act=replay-endpoint&tenant=acme&endpoint=ep_1&dropped=maybe";
        assert!(EndpointAct::read(&Fields::parse(fields.as_bytes())).is_err());
    }

    #[test]
    fn a_count_that_is_not_complete_says_so() {
        let said = |counted: &UnsentReplayed| missing_says(counted, "endpoint ep_1 of acme");
        let mut counted = UnsentReplayed {
            missing: 1,
            ..UnsentReplayed::default()
        };
        assert!(said(&counted).starts_with("1 event of its tenant"));
        assert!(!said(&counted).contains("cannot read"));
        counted.next = Some("7".to_owned());
        counted.unreadable = 2;
        assert!(said(&counted).starts_with("At least 1 event"));
        assert!(said(&counted).contains("payloads of 2 events"));
        assert_eq!(missing_sent(&counted), "endpoint-missing&done=0&rest=more");
        counted.is_full = true;
        assert_eq!(missing_sent(&counted), "endpoint-missing&done=0&rest=full");
    }
}
