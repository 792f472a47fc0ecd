//! Occurrences: the subjects of operational events, and their payloads.

use serde_json::{Map, Value, json};

use super::{kind::OperationalKind, lag::Lag};
use crate::{
    admin::destination_of,
    delivery::{Exhausted, Settlement},
    event::NewEvent,
    key::Tenant,
    limits::AGGREGATE_BYTES_MAX,
};

/// Something that is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// A relay has disabled an endpoint.
    EndpointDisabled {
        /// The id of the endpoint.
        endpoint: String,
        /// Its tenant, to which the event belongs.
        tenant: String,
        /// Why.
        reason: String,
    },
    /// A relay has enabled an endpoint again that it had disabled.
    EndpointRecovered {
        /// The id of the endpoint.
        endpoint: String,
        /// Its tenant, to which the event belongs.
        tenant: String,
    },
    /// A relay has disabled a destination.
    DestinationDisabled {
        /// The name.
        destination: String,
        /// Why.
        reason: String,
    },
    /// A delivery is exhausted.
    Exhausted {
        /// Where the event was to be delivered.
        receiver: Receiver,
        /// The delivery.
        delivery: Exhausted,
    },
    /// A destination lags, or has caught up.
    Lag(Lag),
}

/// The receiver to which an event could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Receiver {
    /// A destination, by name. The report belongs to no tenant.
    Destination(String),
    /// An endpoint of a tenant. The report belongs to this tenant.
    Endpoint {
        /// The id.
        id: String,
        /// The tenant.
        tenant: String,
    },
}

impl Receiver {
    /// The key by which the rate limit counts.
    pub(super) fn subject(&self) -> String {
        match self {
            Self::Destination(name) => format!("destination {name}"),
            Self::Endpoint { id, .. } => format!("endpoint {id}"),
        }
    }

    fn tenant(&self) -> Option<&String> {
        match self {
            Self::Destination(_) => None,
            Self::Endpoint { tenant, .. } => Some(tenant),
        }
    }

    fn member(&self) -> (&'static str, &str) {
        match self {
            Self::Destination(name) => ("destination", name),
            Self::Endpoint { id, .. } => ("endpoint", id),
        }
    }
}

impl Occurrence {
    /// The occurrences in a settlement.
    pub fn of_settlement(settlement: &Settlement) -> Vec<Self> {
        let destination = destination_of(&settlement.destination);
        let exhausted = settlement.exhausted.iter();
        let exhausted = exhausted.map(|delivery| Self::Exhausted {
            receiver: Receiver::Destination(destination.to_owned()),
            delivery: delivery.clone(),
        });
        let disabled = settlement.disable.iter();
        let disabled = disabled.map(|reason| Self::DestinationDisabled {
            destination: destination.to_owned(),
            reason: reason.clone(),
        });
        exhausted.chain(disabled).collect()
    }

    /// The kind of the event.
    pub fn kind(&self) -> OperationalKind {
        match self {
            Self::EndpointDisabled { .. } => OperationalKind::EndpointDisabled,
            Self::EndpointRecovered { .. } => OperationalKind::EndpointRecovered,
            Self::DestinationDisabled { .. } => OperationalKind::DestinationDisabled,
            Self::Exhausted { .. } => OperationalKind::MessageExhausted,
            Self::Lag(lag) if lag.is_lagging => OperationalKind::RelayLag,
            Self::Lag(_) => OperationalKind::RelayCaughtUp,
        }
    }

    /// The event of this type. `omitted` is the number of earlier occurrences that have no event.
    pub(super) fn event(&self, kind: String, omitted: u64) -> NewEvent {
        let (receiver, tenant, payload) = match self {
            Self::EndpointDisabled {
                endpoint,
                tenant,
                reason,
            } => {
                let payload = json!({"endpoint": endpoint, "tenant": tenant, "reason": reason});
                (("endpoint", endpoint.as_str()), Some(tenant), payload)
            }
            Self::EndpointRecovered { endpoint, tenant } => {
                let payload = json!({"endpoint": endpoint, "tenant": tenant});
                (("endpoint", endpoint.as_str()), Some(tenant), payload)
            }
            Self::DestinationDisabled {
                destination,
                reason,
            } => {
                let payload = json!({"destination": destination, "reason": reason});
                (("destination", destination.as_str()), None, payload)
            }
            Self::Exhausted { receiver, delivery } => {
                let payload = exhausted(receiver, delivery, omitted);
                (receiver.member(), receiver.tenant(), payload)
            }
            Self::Lag(lag) => {
                let payload = json!({
                    "destination": lag.destination,
                    "lag_seconds": lag.lag.as_secs(),
                    "backlog": lag.backlog,
                });
                (("destination", lag.destination.as_str()), None, payload)
            }
        };
        let event = NewEvent::json(kind, &payload);
        // Its name is part of the payload, too.
        let event = if receiver.1.len() <= AGGREGATE_BYTES_MAX {
            event.about(receiver.0, receiver.1)
        } else {
            event
        };
        match tenant.and_then(|tenant| Tenant::new(tenant.as_str()).ok()) {
            Some(tenant) => event.tenant(tenant),
            None => event,
        }
    }
}

fn exhausted(receiver: &Receiver, delivery: &Exhausted, omitted: u64) -> Value {
    let mut members = Map::new();
    let (member, name) = receiver.member();
    members.insert(member.to_owned(), json!(name));
    members.insert("event_id".to_owned(), json!(delivery.event_id.to_string()));
    members.insert("event_type".to_owned(), json!(delivery.event_type));
    if let Some(tenant) = &delivery.event_tenant {
        members.insert("tenant".to_owned(), json!(tenant));
    }
    members.insert("attempts".to_owned(), json!(delivery.attempts));
    if let Some(error) = &delivery.error {
        members.insert("error".to_owned(), json!(error));
    }
    members.insert("omitted".to_owned(), json!(omitted));
    Value::Object(members)
}
