//! Which destinations there are, and what was made of each.
//!
//! A destination whose declaration is the same, its secrets included, keeps the sink that it has,
//! so that the relay does not disturb it. One that cannot be made as it is declared now goes on
//! as it was, or pauses, and is tried again; one that never could is left out, loudly.

use std::collections::{BTreeMap, HashMap};

use hapax::{Clock, relay::Destination};

use crate::{
    admin::Watch,
    config::{Config, Wrong},
    destination::{Spec, SpecError},
    wiring,
};

/// The destinations that are wanted, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared(BTreeMap<String, Spec>);

impl Declared {
    /// Those of the configuration.
    pub(crate) fn in_configuration(config: &Config) -> Self {
        Self(config.destinations.clone())
    }

    /// Those, with what the database says about them and besides.
    pub(crate) fn and(&self, watch: &Watch) -> Self {
        Self(watch.over(&self.0))
    }
}

/// What was made of the destinations.
#[derive(Debug)]
pub(crate) struct Roster {
    clock: Clock,
    made: HashMap<String, Made>,
    destinations: Vec<Destination>,
    /// Those that cannot be made as they are declared, and why: it is said once.
    failed: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Made {
    mark: String,
    destination: Destination,
}

impl Roster {
    /// An empty one.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            made: HashMap::new(),
            destinations: Vec::new(),
            failed: BTreeMap::new(),
        }
    }

    /// The destinations that there are.
    pub(crate) fn all(&self) -> &[Destination] {
        &self.destinations
    }

    /// Whether one of them is not as it is declared, and is to be tried again.
    pub(crate) fn lags(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Makes what is new or changed; fails when one cannot be made, and then nothing changes.
    pub(crate) fn check(&mut self, declared: &Declared) -> Result<(), Wrong> {
        let mut made = Vec::new();
        for (name, spec) in &declared.0 {
            let new = self.make(name, spec).map_err(|wrong| {
                Wrong::at(
                    format!("destinations.{name}.{}", wrong.field),
                    wrong.problem,
                )
            })?;
            made.extend(new.map(|new| (name.clone(), new)));
        }
        self.made.extend(made);
        Ok(())
    }

    /// The destinations that can be made, each as it is declared now or else as it was.
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
                        tracing::error!(destination, error = wrong, "destination cannot be made");
                    }
                    failed.insert(name.clone(), wrong);
                }
            }
            // Neither a pause nor going on waits for the rest of a declaration.
            if let Some(made) = self.made.get_mut(name) {
                made.destination.paused = spec.paused;
                made.destination.turn = spec.version;
            }
        }
        self.failed = failed;
        let made = declared.0.keys().filter_map(|name| self.made.get(name));
        self.destinations = made.map(|made| made.destination.clone()).collect();
        self.destinations.clone()
    }

    /// Makes a destination, unless it is made already as it is declared.
    fn make(&self, name: &str, spec: &Spec) -> Result<Option<Made>, SpecError> {
        let mark = spec.mark()?;
        if self.made.get(name).is_some_and(|made| made.mark == mark) {
            return Ok(None);
        }
        let destination = wiring::destination(name, spec, &self.clock)?;
        Ok(Some(Made { mark, destination }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::surroundings;

    #[test]
    fn a_pause_holds_where_the_sink_cannot_be_made_anew() {
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
        let mut roster = Roster::new(surroundings::clock());
        assert!(!roster.destinations(&declared(false))[0].paused);
        for broken in [None, Some("no key")] {
            match broken {
                None => std::fs::remove_file(&secret).unwrap(),
                Some(text) => std::fs::write(&secret, text).unwrap(),
            }
            assert!(roster.destinations(&declared(true))[0].paused);
            assert!(roster.lags());
            assert!(!roster.destinations(&declared(false))[0].paused);
        }
        assert!(roster.destinations(&declared(true))[0].paused);
        std::fs::write(&secret, key).unwrap();
        assert!(!roster.destinations(&declared(false))[0].paused);
        assert!(!roster.lags());
    }
}
