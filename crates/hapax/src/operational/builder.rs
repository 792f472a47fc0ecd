//! Builder of operational events: the kinds that are emitted, and the events that a store appends.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use metrics::counter;

use super::{
    PREFIX_BYTES_MAX,
    kind::OperationalKind,
    occurrence::{Occurrence, Receiver},
    rate::Rate,
};
use crate::{
    clock::{Random, Timestamp},
    delivery::Exhausted,
    event::Headers,
    keyring::Keyring,
    outbox::{BuiltEvent, EventError, build_event, check_kind},
    telemetry,
};

/// The operational events that a store emits. Clones share the rate limit. The default emits none.
#[derive(Clone, Default)]
pub struct OperationalEvents(Option<Arc<Inner>>);

struct Inner {
    prefix: String,
    kinds: BTreeSet<OperationalKind>,
    rate: Rate,
}

impl OperationalEvents {
    /// No events.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Events of these kinds, whose types begin with `prefix`.
    ///
    /// # Errors
    /// Fails if the prefix is too long, or contains what an event type must not contain.
    pub fn new(
        prefix: &str,
        kinds: impl IntoIterator<Item = OperationalKind>,
    ) -> Result<Self, EventError> {
        if prefix.len() > PREFIX_BYTES_MAX {
            return Err(EventError::TooLarge {
                part: "prefix of operational events",
                size: prefix.len(),
                max: PREFIX_BYTES_MAX,
            });
        }
        for kind in OperationalKind::ALL {
            check_kind(&format!("{prefix}{}", kind.name()))?;
        }
        let kinds: BTreeSet<_> = kinds.into_iter().collect();
        if kinds.is_empty() {
            return Ok(Self::none());
        }
        Ok(Self(Some(Arc::new(Inner {
            prefix: prefix.to_owned(),
            kinds,
            rate: Rate::default(),
        }))))
    }

    /// Whether events of a kind are emitted.
    pub fn emits(&self, kind: OperationalKind) -> bool {
        self.0.as_ref().is_some_and(|it| it.kinds.contains(&kind))
    }

    /// The events of what has happened at `now`, for the transaction that records it. A store passes
    /// the keyring with which it writes.
    ///
    /// Kinds that are not emitted are left out, deliveries of operational events that have failed,
    /// and exhausted deliveries beyond the rate limit. The last event about a receiver has the number
    /// of those that were left out. An event that cannot be encoded is logged and left out, because
    /// what it reports has happened all the same.
    pub fn build(
        &self,
        occurrences: Vec<Occurrence>,
        now: Timestamp,
        random: &Random,
        keyring: &Keyring,
    ) -> Vec<BuiltEvent> {
        let Some(inner) = &self.0 else {
            return Vec::new();
        };
        let admitted = inner.admit(occurrences, now);
        let mut sealed = Vec::with_capacity(admitted.len());
        for (occurrence, omitted) in admitted {
            let name = occurrence.kind().name();
            match inner.encode(&occurrence, omitted, now, random, keyring) {
                Ok(event) => {
                    counter!(telemetry::OPERATIONAL_EVENTS, "kind" => name).increment(1);
                    sealed.push(event);
                }
                Err(error) => {
                    tracing::error!(kind = name, %error, "operational event cannot be emitted");
                }
            }
        }
        sealed
    }
}

impl Inner {
    /// The occurrences that get events, each with the number of earlier ones that have none.
    fn admit(&self, occurrences: Vec<Occurrence>, now: Timestamp) -> Vec<(Occurrence, u64)> {
        let mut admitted = Vec::new();
        let mut exhausted: BTreeMap<Receiver, Vec<Exhausted>> = BTreeMap::new();
        for occurrence in occurrences {
            if !self.kinds.contains(&occurrence.kind()) {
                continue;
            }
            match occurrence {
                Occurrence::Exhausted { receiver, delivery } => {
                    if !self.is_own(&delivery.event_type) {
                        exhausted.entry(receiver).or_default().push(delivery);
                    }
                }
                other => admitted.push((other, 0)),
            }
        }
        for (receiver, mut all) in exhausted {
            let share = self.rate.take(&receiver.subject(), all.len(), now);
            let left_out = all.len() - share.granted;
            if left_out > 0 {
                let left_out = u64::try_from(left_out).unwrap_or(u64::MAX);
                counter!(telemetry::OPERATIONAL_OMITTED).increment(left_out);
            }
            all.truncate(share.granted);
            let last = all.len().saturating_sub(1);
            for (place, delivery) in all.into_iter().enumerate() {
                let omitted = if place == last { share.omitted } else { 0 };
                let receiver = receiver.clone();
                admitted.push((Occurrence::Exhausted { receiver, delivery }, omitted));
            }
        }
        admitted
    }

    /// Whether a type is that of an operational event.
    fn is_own(&self, event_type: &str) -> bool {
        let name = event_type.strip_prefix(self.prefix.as_str());
        name.and_then(OperationalKind::parse).is_some()
    }

    fn encode(
        &self,
        occurrence: &Occurrence,
        omitted: u64,
        now: Timestamp,
        random: &Random,
        keyring: &Keyring,
    ) -> Result<BuiltEvent, EventError> {
        let kind = format!("{}{}", self.prefix, occurrence.kind().name());
        let new = occurrence.event(kind, omitted);
        let event = build_event(new, None, &Headers::new(), now, random)?;
        BuiltEvent::of(event, keyring)
    }
}

impl fmt::Debug for OperationalEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.0.iter().flat_map(|it| &it.kinds);
        f.debug_set().entries(kinds.map(|it| it.name())).finish()
    }
}
