//! Declaration of destinations: checks a declaration, encrypts its secrets and stores both; reads
//! the declaration that is in effect.
//!
//! The API and the command line both use these functions. A secret that was stored is never shown
//! again: it is printed as `***`. `***` in a change means the stored secret, as long as no setting
//! changes that decides where the secret is sent, such as a URL. Otherwise the secret has to be given
//! again, so that an operator who does not know it cannot have it sent to a server of their choice.

use std::{collections::BTreeMap, sync::Arc};

use hapax::{
    admin::{
        Actor, Admin, AdminError, Configured, Declared, Destination, DestinationIndex, start_of,
    },
    delivery::Start,
};
use hapax_sinks::endpoints::{Keys, Secrets};
use serde_json::Value;

use super::watch::spec_of;
use crate::{
    config::Config,
    destination::{NetworkPolicy, Spec, SpecError, Written},
    environment, wiring,
};

/// Creates and changes destinations.
#[derive(Clone, Debug)]
pub(crate) struct Declare {
    index: DestinationIndex,
    keys: Keys,
    reach: NetworkPolicy,
}

impl From<SpecError> for AdminError {
    fn from(error: SpecError) -> Self {
        Self::invalid(error.field, error.problem)
    }
}

impl Declare {
    /// Uses a store, and the keys and destinations of the configuration.
    pub(crate) fn new(store: Arc<dyn Admin>, config: &Config, keys: Keys) -> Self {
        Self {
            index: DestinationIndex::new(store, configured(config)),
            keys,
            reach: config.relay.reach(),
        }
    }

    /// Creates a destination.
    pub(crate) async fn create(
        &self,
        actor: &Actor,
        name: &str,
        json: &Value,
    ) -> Result<Destination, AdminError> {
        if self.index.configured().contains_key(name) {
            let problem = "is declared in the configuration: change or remove it there";
            return Err(AdminError::invalid("name", problem));
        }
        let (text, sealed) = self.prepare(name, json, &Secrets::new())?;
        check_start(json)?;
        self.check_free(actor, name).await?;
        let (store, sealed) = (self.index.store(), sealed.as_deref());
        let created = store.create_destination(actor, name, &text, sealed);
        Ok(self.index.declared_now(&created.await?))
    }

    /// Changes a destination if it is still at `version`.
    pub(crate) async fn change(
        &self,
        actor: &Actor,
        name: &str,
        version: i64,
        json: &Value,
    ) -> Result<Destination, AdminError> {
        let store = self.index.store();
        let old = store.declaration(actor, name).await?;
        let kept = self.kept(&old, json)?;
        let (text, sealed) = self.prepare(name, json, &kept)?;
        let sealed = sealed.as_deref();
        let changed = store.change_destination(actor, name, version, &text, sealed);
        Ok(self.index.declared_now(&changed.await?))
    }

    /// The declaration of a destination that is in effect, with its secrets: that of the database,
    /// or else `configured`, that of the configuration.
    pub(crate) async fn in_effect(
        &self,
        actor: &Actor,
        name: &str,
        configured: Option<Spec>,
    ) -> Result<Spec, AdminError> {
        // Fails unless the destination exists and the actor may see it.
        self.index.get(actor, name).await?;
        let declared = self.index.declared(name).await?;
        let is_removed = |it: &Declared| it.removed_at.is_some();
        if declared.as_ref().is_some_and(is_removed) {
            let what = format!("destination {name} is being removed");
            return Err(AdminError::conflict(what));
        }
        let read = declared.map(|it| spec_of(&it, &self.keys, &self.reach));
        let read = read.transpose().map_err(|problem| {
            let what = format!("the declaration of destination {name} cannot be read: {problem}");
            AdminError::conflict(what)
        })?;
        read.flatten().or(configured).ok_or_else(|| {
            AdminError::conflict(format!(
                "destination {name} is declared neither in the database nor in this configuration: \
                 give the configuration of its relay"
            ))
        })
    }

    /// The index of destinations: which tenant a destination belongs to, and what pauses it.
    pub(crate) fn index(&self) -> &DestinationIndex {
        &self.index
    }

    /// Refuses a name under which a relay already delivers events, wherever that destination is
    /// declared.
    async fn check_free(&self, actor: &Actor, name: &str) -> Result<(), AdminError> {
        let opened = self.index.store().partitions(Some(name)).await?;
        if opened.is_empty() {
            return Ok(());
        }
        let known = self.index.declared(name).await?;
        // If the destination is declared or being removed, the store refuses it with a message of
        // its own.
        let is_here = known.is_some_and(|it| it.spec.is_some() || it.removed_at.is_some());
        if is_here && actor.tenant.is_none() {
            return Ok(());
        }
        Err(AdminError::conflict(format!(
            "destination {name} exists: a relay delivers or delivered to it: remove it first, or \
             use another name"
        )))
    }

    /// The declaration as JSON without its secrets, and the secrets encrypted.
    fn prepare(
        &self,
        name: &str,
        json: &Value,
        kept: &Secrets,
    ) -> Result<(String, Option<Vec<u8>>), AdminError> {
        let mut spec = Spec::read(json)?;
        spec.put_secrets(kept)?;
        spec.check(name, Written::AtRunTime(&self.reach))?;
        // Refuse a destination that can never be built here, and not in the log of every relay.
        wiring::destination(name, &spec, &environment::clock())?;
        let secrets = spec.take_secrets()?;
        let sealed = self.keys.encrypt(name, &secrets);
        let sealed = sealed.map_err(|problem| AdminError::invalid("sink", problem))?;
        Ok((spec.to_json().to_string(), sealed))
    }

    /// The stored secrets, if a change keeps one of them. Fails if the change would send them to another
    /// receiver.
    fn kept(&self, old: &Declared, json: &Value) -> Result<Secrets, AdminError> {
        let mut after = Spec::read(json)?;
        after.check(&old.name, Written::AtRunTime(&self.reach))?;
        let Some(kept) = after.kept_secret() else {
            return Ok(Secrets::new());
        };
        let opened = self.keys.open(&old.name, old.sealed.as_deref());
        let secrets = opened
            .map_err(|problem| AdminError::invalid("sink", format!("its secrets {problem}")))?;
        let Some(before) = whole(old, &secrets) else {
            return Ok(Secrets::new());
        };
        match after.sink.changed_address(&before.sink) {
            None => Ok(secrets),
            Some(setting) => {
                let problem = format!(
                    "has to be given again, because {setting} changes: *** keeps a secret for the \
                     same address only"
                );
                Err(AdminError::invalid(kept, problem))
            }
        }
    }
}

/// The stored declaration with its secrets; `None` if it cannot be read, or if one of them is missing.
fn whole(declared: &Declared, secrets: &Secrets) -> Option<Spec> {
    let json: Value = serde_json::from_str(declared.spec.as_deref()?).ok()?;
    let mut spec = Spec::read(&json).ok()?;
    spec.put_secrets(secrets).ok()?;
    Some(spec)
}

/// Refuses a start in the future. A change is not checked: it keeps the start, and the clock of this
/// process may be slow.
fn check_start(json: &Value) -> Result<(), AdminError> {
    match start_of(json)? {
        Start::At(time) if time > environment::clock().now() => {
            Err(AdminError::invalid("start", "must not be in the future"))
        }
        _ => Ok(()),
    }
}

/// The destinations of the configuration.
pub(crate) fn configured(config: &Config) -> BTreeMap<String, Configured> {
    let known = |(name, spec): (&String, &Spec)| {
        let known = Configured {
            partitions: Some(spec.partitions),
            tenant: spec.tenant.clone(),
            paused: spec.paused,
        };
        (name.clone(), known)
    };
    config.destinations.iter().map(known).collect()
}
