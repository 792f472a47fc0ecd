//! Destinations that are declared in the database, as read by a relay.
//!
//! A relay looks for changes once a second; if its heartbeats report that there are none, it reads
//! nothing. A declaration that cannot be read, because it was written by a newer version or its
//! secrets cannot be decrypted, is logged as an error and the relay continues with the previous
//! one. A pause and a removal take effect even then.

use std::{collections::BTreeMap, sync::Arc};

use hapax::admin::{Admin, AdminError, Declared};
use hapax_sinks::endpoints::Keys;
use serde_json::Value;

use crate::destination::{NetworkPolicy, Spec, Written};

/// The destinations declared in the database, as of the last read.
#[derive(Debug)]
pub(crate) struct Watch {
    admin: Arc<dyn Admin>,
    keys: Keys,
    reach: NetworkPolicy,
    version: i64,
    known: BTreeMap<String, KnownDeclaration>,
}

/// The declaration of one destination.
#[derive(Clone, Debug, Default)]
struct KnownDeclaration {
    /// The declaration; `None` if the destination is declared in the configuration.
    spec: Option<Spec>,
    is_paused: bool,
    is_removed: bool,
    version: i64,
}

impl Watch {
    /// Creates a watch that has read nothing yet.
    pub(crate) fn new(admin: Arc<dyn Admin>, keys: Keys, reach: NetworkPolicy) -> Self {
        Self {
            admin,
            keys,
            reach,
            version: 0,
            known: BTreeMap::new(),
        }
    }

    /// Whether all changes up to the version `newest` have been read.
    pub(crate) fn has_read(&self, newest: i64) -> bool {
        newest <= self.version
    }

    /// Reads the changes. Returns false if there are none.
    pub(crate) async fn look(&mut self) -> Result<bool, AdminError> {
        let changes = self.admin.changes(self.version).await?;
        let is_changed = !changes.is_empty();
        for declared in changes {
            self.version = self.version.max(declared.version);
            let name = declared.name.clone();
            match self.read(&declared) {
                Ok(known) => {
                    self.known.insert(name, known);
                }
                Err(problem) => {
                    let known = self.known.entry(name.clone()).or_default();
                    known.is_paused = is_paused(&declared);
                    known.is_removed = declared.removed_at.is_some();
                    known.version = declared.version;
                    let destination = name;
                    tracing::error!(destination, problem, "declared destination cannot be read");
                }
            }
        }
        Ok(is_changed)
    }

    /// The destinations of the configuration and of the database.
    ///
    /// If both declare a destination, the declaration of the database is used.
    pub(crate) fn over(&self, configured: &BTreeMap<String, Spec>) -> BTreeMap<String, Spec> {
        let mut all = configured.clone();
        for (name, known) in &self.known {
            if known.is_removed {
                if all.remove(name).is_some() && configured.contains_key(name) {
                    let destination = name;
                    tracing::warn!(
                        destination,
                        "destination was removed, but is still declared in the configuration"
                    );
                }
                continue;
            }
            if let Some(spec) = &known.spec {
                all.insert(name.clone(), spec.clone());
            }
            if let Some(spec) = all.get_mut(name) {
                spec.paused |= known.is_paused;
                spec.version = known.version;
            }
        }
        all
    }

    fn read(&self, declared: &Declared) -> Result<KnownDeclaration, String> {
        let is_removed = declared.removed_at.is_some();
        let spec = if is_removed {
            None
        } else {
            spec_of(declared, &self.keys, &self.reach)?
        };
        Ok(KnownDeclaration {
            spec,
            is_paused: is_paused(declared),
            is_removed,
            version: declared.version,
        })
    }
}

/// The declaration with its secrets; `None` if the destination is declared in the configuration.
///
/// Fails if it cannot be read here, or is not allowed here.
pub(super) fn spec_of(
    declared: &Declared,
    keys: &Keys,
    reach: &NetworkPolicy,
) -> Result<Option<Spec>, String> {
    let Some(text) = declared.spec.as_deref() else {
        return Ok(None);
    };
    let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut spec = Spec::read(&json).map_err(|wrong| wrong.to_string())?;
    let secrets = keys.open(&declared.name, declared.sealed.as_deref());
    let secrets = secrets.map_err(|bad| format!("its secrets {bad}"))?;
    spec.put_secrets(&secrets)
        .map_err(|wrong| wrong.to_string())?;
    spec.check(&declared.name, Written::AtRunTime(reach))
        .map_err(|wrong| wrong.to_string())?;
    Ok(Some(spec))
}

/// Whether an operator or its own setting has paused the destination, as far as that can be read.
fn is_paused(declared: &Declared) -> bool {
    let text = declared.spec.as_deref().unwrap_or_default();
    let spec: Value = serde_json::from_str(text).unwrap_or_default();
    declared.paused_at.is_some() || spec["paused"] == true
}
