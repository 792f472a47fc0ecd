//! The set of destinations of the relay, with their sinks.
//!
//! A destination keeps its sink while its declaration, including its secrets, is unchanged, so that
//! the relay does not interrupt it. If a changed declaration cannot be built, the destination
//! continues with the previous one, or stays paused, and building is retried. If a new declaration
//! cannot be built, it is left out and an error is logged.

use std::collections::{BTreeMap, HashMap};

use hapax::{Clock, delivery::Start, endpoint::FanOut, relay::Destination};
use tokio::sync::watch;

use crate::{
    admin::Watch,
    config::{Config, Wrong},
    destination::{Spec, SpecError},
    operational::Partitions,
    wiring,
};

/// The declared destinations by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared(BTreeMap<String, Spec>);

impl Declared {
    /// The destinations of the configuration.
    pub(crate) fn in_configuration(config: &Config) -> Self {
        Self(config.destinations.clone())
    }

    /// The destination with this name.
    pub(crate) fn get(&self, name: &str) -> Option<&Spec> {
        self.0.get(name)
    }

    /// Merges the destinations of the database.
    pub(crate) fn and(&self, watch: &Watch) -> Self {
        Self(watch.over(&self.0))
    }
}

/// The destinations that were built.
#[derive(Debug)]
pub(crate) struct DestinationSet {
    clock: Clock,
    /// The sink of the destination for endpoints.
    fan_out: FanOut,
    made: HashMap<String, Made>,
    destinations: Vec<Destination>,
    /// The destinations that are not paused.
    active: watch::Sender<Partitions>,
    /// Destinations whose current declaration cannot be built, with the error, which is logged
    /// once.
    failed: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Made {
    mark: String,
    destination: Destination,
}

impl DestinationSet {
    /// Creates an empty set.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            fan_out: FanOut::unbound(),
            made: HashMap::new(),
            destinations: Vec::new(),
            active: watch::Sender::new(Vec::new()),
            failed: BTreeMap::new(),
        }
    }

    /// The sink of the destination for endpoints, which is not bound to a store yet.
    pub(crate) fn fan_out(&self) -> &FanOut {
        &self.fan_out
    }

    /// The destinations that are not paused, with their partitions, now and after each change.
    pub(crate) fn active(&self) -> watch::Receiver<Partitions> {
        self.active.subscribe()
    }

    /// All destinations.
    pub(crate) fn all(&self) -> &[Destination] {
        &self.destinations
    }

    /// Whether a destination differs from its declaration and has to be built again.
    pub(crate) fn lags(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Builds the destinations that are new or changed. If one cannot be built, nothing changes.
    pub(crate) fn check(&mut self, declared: &Declared) -> Result<(), Wrong> {
        let mut made = Vec::new();
        for (name, spec) in &declared.0 {
            let new = self.make(name, spec).map_err(|wrong| {
                Wrong::at(
                    format!("destinations.{name}.{}", wrong.field),
                    wrong.problem,
                )
            })?;
            if let Some(new) = &new {
                self.warn_of_future(name, &new.destination);
            }
            made.extend(new.map(|new| (name.clone(), new)));
        }
        self.made.extend(made);
        Ok(())
    }

    /// The destinations that can be built, each as declared now, or else as declared before.
    pub(crate) fn destinations(&mut self, declared: &Declared) -> Vec<Destination> {
        self.made.retain(|name, _| declared.0.contains_key(name));
        let mut failed = BTreeMap::new();
        for (name, spec) in &declared.0 {
            match self.make(name, spec) {
                Ok(Some(new)) => {
                    self.made.insert(name.clone(), new);
                }
                Ok(None) => {}
                Err(wrong) => {
                    let (destination, wrong) = (name, wrong.to_string());
                    if self.failed.get(name) != Some(&wrong) {
                        tracing::error!(destination, error = wrong, "destination cannot be built");
                    }
                    failed.insert(name.clone(), wrong);
                }
            }
            // Pausing and resuming take effect even if the rest of the declaration cannot be built.
            if let Some(made) = self.made.get_mut(name) {
                made.destination.paused = spec.paused;
                made.destination.turn = spec.version;
            }
        }
        self.failed = failed;
        let made = declared.0.keys().filter_map(|name| self.made.get(name));
        self.destinations = made.map(|made| made.destination.clone()).collect();
        let active = self.destinations.iter().filter(|it| !it.paused);
        let active = active.map(|it| (it.name.clone(), it.partitions)).collect();
        self.active.send_replace(active);
        self.destinations.clone()
    }

    /// Warns of a start in the future. It is not an error: the clock may be slow, and the start
    /// may be recorded already.
    fn warn_of_future(&self, destination: &str, built: &Destination) {
        if let Start::At(start) = built.start
            && start > self.clock.now()
        {
            tracing::warn!(
                destination,
                start = %start,
                "the start of the destination is in the future: if it is not recorded yet, the \
                 destination starts now"
            );
        }
    }

    /// Builds a destination, unless it was already built from the same declaration.
    fn make(&self, name: &str, spec: &Spec) -> Result<Option<Made>, SpecError> {
        let mark = spec.mark()?;
        if self.made.get(name).is_some_and(|made| made.mark == mark) {
            return Ok(None);
        }
        let mut destination = wiring::destination(name, spec, &self.clock)?;
        if spec.is_for_endpoints() {
            destination.sink = self.fan_out.sink();
        }
        Ok(Some(Made { mark, destination }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::environment;

    #[test]
    fn a_start_in_the_future_does_not_keep_the_relay_from_starting() {
        let json = json!({"start": "9999-01-31T12:00:00Z", "sink": {"webhook": {
            "url": "https://example.com/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        }}});
        let spec = Spec::read(&json).unwrap();
        let declared = Declared(BTreeMap::from([("a".to_owned(), spec)]));
        let mut destination_set = DestinationSet::new(environment::clock());
        assert!(destination_set.check(&declared).is_ok());
        assert_eq!(destination_set.destinations(&declared).len(), 1);
    }

    #[test]
    fn a_pause_holds_where_the_sink_cannot_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        let key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        std::fs::write(&secret, key).unwrap();
        let declared = |paused: bool| {
            let json = json!({"paused": paused, "sink": {"webhook": {
                "url": "https://example.com/", "secret": {"file": secret},
            }}});
            let spec = Spec::read(&json).unwrap();
            Declared(BTreeMap::from([("a".to_owned(), spec)]))
        };
        let mut destination_set = DestinationSet::new(environment::clock());
        assert!(!destination_set.destinations(&declared(false))[0].paused);
        for broken in [None, Some("no key")] {
            match broken {
                None => std::fs::remove_file(&secret).unwrap(),
                Some(text) => std::fs::write(&secret, text).unwrap(),
            }
            assert!(destination_set.destinations(&declared(true))[0].paused);
            assert!(destination_set.lags());
            assert!(!destination_set.destinations(&declared(false))[0].paused);
        }
        assert!(destination_set.destinations(&declared(true))[0].paused);
        std::fs::write(&secret, key).unwrap();
        assert!(!destination_set.destinations(&declared(false))[0].paused);
        assert!(!destination_set.lags());
    }
}
