//! The section of operational events.

use std::time::Duration;

use hapax::{
    nearest,
    operational::{self, OperationalKind},
};
use serde::{Deserialize, Serialize};

use super::{Span, Wrong, sections::within};

/// The operational events that are emitted.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperationalEvents {
    #[serde(default)]
    pub(crate) types: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) lag: Span,
}

impl OperationalEvents {
    /// The events, for the settings of a store.
    pub(crate) fn emitted(&self) -> Result<operational::OperationalEvents, Wrong> {
        let kinds = self.types.iter().map(|name| kind(name));
        let kinds: Vec<_> = kinds.collect::<Result<_, _>>()?;
        operational::OperationalEvents::new(&self.prefix, kinds)
            .map_err(|error| Wrong::at("operational_events.prefix", error.to_string()))
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        self.emitted()?;
        let (second, days) = (Duration::from_secs(1), Duration::from_hours(30 * 24));
        within("operational_events.lag", self.lag, second, days)
    }
}

fn kind(name: &str) -> Result<OperationalKind, Wrong> {
    OperationalKind::parse(name).ok_or_else(|| {
        let known = OperationalKind::ALL.map(OperationalKind::name);
        let near = nearest(name, known.into_iter());
        let near = near.map_or_else(String::new, |near| format!(": did you mean {near}?"));
        let problem = format!(
            "contains {name:?}; the types are {}{near}",
            known.join(", ")
        );
        Wrong::at("operational_events.types", problem)
    })
}
