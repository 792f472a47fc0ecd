//! Declaration of destinations: checks a declaration, encrypts its secrets and stores both.
//!
//! The API and the command line both use these functions. A secret that was stored is never shown
//! again: it is printed as `***`. `***` in a change means the stored secret, as long as the rest of
//! the sink is unchanged. If, for example, the URL changes, the secret has to be given again;
//! otherwise an operator who does not know the secret could have it sent to a server of their
//! choice.

use std::{collections::BTreeMap, sync::Arc};

use hapax::store::Settlements as _;
use hapax_console::{Configured, DestinationIndex};
use hapax_postgres::{
    Postgres,
    admin::{
        Actor, AdminError, PAGE_MAX, destination_of,
        destinations::{self, Declared, Partition},
    },
};
use serde_json::Value;

use super::{
    Keys,
    encryption::Secrets,
    list_query::wrong,
    view::{CountsView, DestinationView},
};
use crate::{
    config::Config,
    destination::{NetworkPolicy, Spec, SpecError, Written},
    environment, wiring,
};

/// Creates, changes and shows destinations.
#[derive(Clone, Debug)]
pub(crate) struct Declare {
    store: Postgres,
    book: DestinationIndex,
    keys: Keys,
    reach: NetworkPolicy,
    configured: Arc<BTreeMap<String, Spec>>,
}

/// Why a destination was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// A setting is not valid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The store failed or refused.
    #[error(transparent)]
    Store(#[from] AdminError),
}

impl Declare {
    /// Uses a store, and the keys and destinations of the configuration.
    pub(crate) fn new(store: Postgres, config: &Config, keys: Keys) -> Self {
        Self {
            book: DestinationIndex::new(store.clone(), configured(config)),
            store,
            keys,
            reach: config.relay.reach(),
            configured: Arc::new(config.destinations.clone()),
        }
    }

    /// Creates a destination.
    pub(crate) async fn create(
        &self,
        actor: &Actor,
        name: &str,
        json: &Value,
    ) -> Result<DestinationView, Refusal> {
        if self.configured.contains_key(name) {
            let problem = "is declared in the configuration: change or remove it there";
            return Err(wrong("name", problem).into());
        }
        let (text, sealed) = self.prepare(name, json, &Secrets::new())?;
        self.check_free(actor, name).await?;
        let created =
            destinations::create(&self.store, actor, name, &text, sealed.as_deref()).await?;
        Ok(self.view(&created))
    }

    /// Changes a destination if it is still at `version`.
    pub(crate) async fn change(
        &self,
        actor: &Actor,
        name: &str,
        version: i64,
        json: &Value,
    ) -> Result<DestinationView, Refusal> {
        let old = destinations::get(&self.store, actor, name).await?;
        let kept = self.kept(&old, json)?;
        let (text, sealed) = self.prepare(name, json, &kept)?;
        let sealed = sealed.as_deref();
        let changed =
            destinations::change(&self.store, actor, name, version, &text, sealed).await?;
        Ok(self.view(&changed))
    }

    /// All destinations that are declared anywhere or that a relay has opened.
    pub(crate) async fn list(&self, actor: &Actor) -> Result<Vec<DestinationView>, AdminError> {
        let mut declared = BTreeMap::new();
        let mut after = None;
        loop {
            let page = destinations::list(&self.store, actor, after.as_deref(), PAGE_MAX).await?;
            declared.extend(page.items.into_iter().map(|it| (it.name.clone(), it)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let opened = destinations::partitions(&self.store, None).await?;
        let mut names: Vec<String> = declared.keys().cloned().collect();
        // A tenant's token sees only the destinations in the database, because the tenant of the
        // others is not known.
        if actor.tenant.is_none() {
            names.extend(self.configured.keys().cloned());
            names.extend(
                opened
                    .iter()
                    .map(|partition| destination_of(&partition.name).to_owned()),
            );
        }
        names.sort_unstable();
        names.dedup();
        let view = |name: String| {
            let partitions: Vec<Partition> = opened
                .iter()
                .filter(|it| destination_of(&it.name) == name)
                .cloned()
                .collect();
            let known = declared.remove(&name);
            let configured = self.configured.get(&name);
            DestinationView::of(name, known.as_ref(), &partitions, configured)
        };
        Ok(names.into_iter().map(view).collect())
    }

    /// The destinations that are paused by the configuration file.
    pub(crate) fn paused_by_file(&self) -> impl Iterator<Item = &str> {
        let paused = self.configured.iter().filter(|(_, spec)| spec.paused);
        paused.map(|(name, _)| name.as_str())
    }

    /// One destination with its progress.
    pub(crate) async fn show(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<DestinationView, AdminError> {
        let found = self
            .list(actor)
            .await?
            .into_iter()
            .find(|it| it.name == name);
        let mut found = found.ok_or_else(|| not_found(name))?;
        let mut sum = CountsView::default();
        for partition in destinations::partitions(&self.store, Some(name)).await? {
            let counts = self.store.backlog(&partition.name).await?;
            sum.backlog += counts.events;
            sum.parked += counts.parked;
            sum.dead += counts.dead;
        }
        found.counts = Some(sum);
        Ok(found)
    }

    /// The index of destinations: which tenant a destination belongs to, and what pauses it.
    pub(crate) fn book(&self) -> &DestinationIndex {
        &self.book
    }

    /// Refuses a name under which a relay already delivers events, wherever that destination is
    /// declared.
    async fn check_free(&self, actor: &Actor, name: &str) -> Result<(), AdminError> {
        if destinations::partitions(&self.store, Some(name))
            .await?
            .is_empty()
        {
            return Ok(());
        }
        let known = self.book.declared(name).await?;
        // If the destination is declared or being removed, the store refuses it with a message of
        // its own.
        let is_here = known.is_some_and(|it| it.spec.is_some() || it.removed_at.is_some());
        if is_here && actor.tenant.is_none() {
            return Ok(());
        }
        let what = format!(
            "destination {name} exists: a relay delivers or delivered to it: remove it first, or \
             use another name"
        );
        Err(AdminError::Conflict { what })
    }

    fn view(&self, declared: &Declared) -> DestinationView {
        let configured = self.configured.get(&declared.name);
        DestinationView::of(declared.name.clone(), Some(declared), &[], configured)
    }

    /// The declaration as JSON without its secrets, and the secrets encrypted.
    fn prepare(
        &self,
        name: &str,
        json: &Value,
        kept: &Secrets,
    ) -> Result<(String, Option<Vec<u8>>), SpecError> {
        let mut spec = Spec::read(json)?;
        spec.put_secrets(kept)?;
        spec.check(name, Written::AtRunTime(&self.reach))?;
        // Refuse a destination that can never be built here, and not in the log of every relay.
        wiring::destination(name, &spec, &environment::clock())?;
        let secrets = spec.take_secrets()?;
        let sealed = self.keys.seal(name, &secrets);
        let sealed = sealed.map_err(|problem| wrong("sink", &problem))?;
        Ok((spec.to_json().to_string(), sealed))
    }

    /// The secrets that a change keeps: all of them if the rest of the sink is unchanged, none
    /// otherwise.
    fn kept(&self, old: &Declared, json: &Value) -> Result<Secrets, SpecError> {
        let text = old.spec.as_deref().unwrap_or("{}");
        let before: Value = serde_json::from_str(text).unwrap_or_default();
        let mut after = Spec::read(json)?;
        // Checked before any file or variable that the declaration names is read.
        after.check(&old.name, Written::AtRunTime(&self.reach))?;
        after.take_secrets()?;
        if after.to_json()["sink"] != before["sink"] {
            return Ok(Secrets::new());
        }
        let opened = self.keys.open(&old.name, old.sealed.as_deref());
        opened.map_err(|problem| wrong("sink", &format!("its secrets {problem}")))
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

fn not_found(name: &str) -> AdminError {
    AdminError::NotFound {
        what: format!("destination {name}"),
    }
}
