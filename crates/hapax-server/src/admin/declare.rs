//! Declares destinations: checks what is asked for, takes its secrets out, seals them, stores both.
//!
//! The API and the verbs declare by these functions. A secret goes in and never comes out: shown
//! it is `***`, and `***` sent back means the one that is kept, as long as the sink stays what it
//! was. With another address it has to be given again, so that nobody who may not know a secret
//! can have it sent to a place of their own.

use std::{collections::BTreeMap, sync::Arc};

use hapax::store::Deliveries as _;
use hapax_console::{Book, Configured};
use hapax_postgres::{
    Postgres,
    operate::{
        Actor, OperateError, PAGE_MAX, destination_of,
        destinations::{self, Declared, Part},
    },
};
use serde_json::Value;

use super::{
    Keys,
    ask::wrong,
    seal::Secrets,
    view::{DestinationView, StandingView},
};
use crate::{
    config::Config,
    destination::{Reach, Spec, SpecError, Written},
    surroundings, wiring,
};

/// What declares destinations.
#[derive(Clone, Debug)]
pub(crate) struct Declare {
    store: Postgres,
    book: Book,
    keys: Keys,
    reach: Reach,
    configured: Arc<BTreeMap<String, Spec>>,
}

/// Why a destination was not declared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// A setting is wrong.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] OperateError),
}

impl Declare {
    /// Over a store, with the keys and the destinations of the configuration.
    pub(crate) fn new(store: Postgres, config: &Config, keys: Keys) -> Self {
        Self {
            book: Book::new(store.clone(), configured(config)),
            store,
            keys,
            reach: config.relay.reach(),
            configured: Arc::new(config.destinations.clone()),
        }
    }

    /// Declares a new destination.
    pub(crate) async fn create(
        &self,
        actor: &Actor,
        name: &str,
        json: &Value,
    ) -> Result<DestinationView, Refusal> {
        if self.configured.contains_key(name) {
            let problem = "stands in the configuration: take it out there, or change it there";
            return Err(wrong("name", problem).into());
        }
        let (text, sealed) = self.prepare(name, json, &Secrets::new())?;
        self.check_free(actor, name).await?;
        let created =
            destinations::create(&self.store, actor, name, &text, sealed.as_deref()).await?;
        Ok(self.view(&created))
    }

    /// Changes a destination that is at `version`.
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

    /// Every destination that is declared anywhere or that a relay has opened.
    pub(crate) async fn list(&self, actor: &Actor) -> Result<Vec<DestinationView>, OperateError> {
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
        let opened = destinations::parts(&self.store, None).await?;
        let mut names: Vec<String> = declared.keys().cloned().collect();
        // Whose events the others take is not said: they are not a tenant's.
        if actor.tenant.is_none() {
            names.extend(self.configured.keys().cloned());
            names.extend(
                opened
                    .iter()
                    .map(|part| destination_of(&part.name).to_owned()),
            );
        }
        names.sort_unstable();
        names.dedup();
        let view = |name: String| {
            let parts: Vec<Part> = opened
                .iter()
                .filter(|it| destination_of(&it.name) == name)
                .cloned()
                .collect();
            let known = declared.remove(&name);
            let configured = self.configured.get(&name);
            DestinationView::of(name, known.as_ref(), &parts, configured)
        };
        Ok(names.into_iter().map(view).collect())
    }

    /// The destinations that a configuration file pauses, and nothing else declares.
    pub(crate) fn paused_by_file(&self) -> impl Iterator<Item = &str> {
        let paused = self.configured.iter().filter(|(_, spec)| spec.paused);
        paused.map(|(name, _)| name.as_str())
    }

    /// One of them, with how far it is.
    pub(crate) async fn show(
        &self,
        actor: &Actor,
        name: &str,
    ) -> Result<DestinationView, OperateError> {
        let found = self
            .list(actor)
            .await?
            .into_iter()
            .find(|it| it.name == name);
        let mut found = found.ok_or_else(|| not_found(name))?;
        let mut sum = StandingView::default();
        for part in destinations::parts(&self.store, Some(name)).await? {
            let standing = self.store.standing(&part.name).await?;
            sum.backlog += standing.backlog;
            sum.parked += standing.parked;
            sum.dead += standing.dead;
        }
        found.standing = Some(sum);
        Ok(found)
    }

    /// Whose a destination is, and what pauses it.
    pub(crate) fn book(&self) -> &Book {
        &self.book
    }

    /// A name under which events are carried already is not free, whoever declares that.
    async fn check_free(&self, actor: &Actor, name: &str) -> Result<(), OperateError> {
        if destinations::parts(&self.store, Some(name))
            .await?
            .is_empty()
        {
            return Ok(());
        }
        let known = self.book.declared(name).await?;
        // What is declared or being removed is refused by the store, in its own words.
        let is_here = known.is_some_and(|it| it.spec.is_some() || it.removed_at.is_some());
        if is_here && actor.tenant.is_none() {
            return Ok(());
        }
        let what = format!(
            "destination {name} exists: a relay carries it, or did: remove it first, or take \
             another name"
        );
        Err(OperateError::Conflict { what })
    }

    fn view(&self, declared: &Declared) -> DestinationView {
        let configured = self.configured.get(&declared.name);
        DestinationView::of(declared.name.clone(), Some(declared), &[], configured)
    }

    /// The text of a declaration without its secrets, and those, sealed.
    fn prepare(
        &self,
        name: &str,
        json: &Value,
        kept: &Secrets,
    ) -> Result<(String, Option<Vec<u8>>), SpecError> {
        let mut spec = Spec::read(json)?;
        spec.put_secrets(kept)?;
        spec.check(name, Written::AtRunTime(&self.reach))?;
        // What can never be made is refused here, and not in the log of every relay.
        wiring::destination(name, &spec, &surroundings::clock())?;
        let secrets = spec.take_secrets()?;
        let sealed = self.keys.seal(name, &secrets);
        let sealed = sealed.map_err(|problem| wrong("sink", &problem))?;
        Ok((spec.to_json().to_string(), sealed))
    }

    /// The secrets that a changed declaration keeps: all, where the rest of its sink is the same.
    fn kept(&self, old: &Declared, json: &Value) -> Result<Secrets, SpecError> {
        let text = old.spec.as_deref().unwrap_or("{}");
        let before: Value = serde_json::from_str(text).unwrap_or_default();
        let mut after = Spec::read(json)?;
        // Before anything is read that it names.
        after.check(&old.name, Written::AtRunTime(&self.reach))?;
        after.take_secrets()?;
        if after.to_json()["sink"] != before["sink"] {
            return Ok(Secrets::new());
        }
        let opened = self.keys.open(&old.name, old.sealed.as_deref());
        opened.map_err(|problem| wrong("sink", &format!("its secrets {problem}")))
    }
}

/// What the configuration says about destinations.
pub(crate) fn configured(config: &Config) -> BTreeMap<String, Configured> {
    let known = |(name, spec): (&String, &Spec)| {
        let known = Configured {
            parts: Some(spec.parts),
            tenant: spec.tenant.clone(),
            paused: spec.paused,
        };
        (name.clone(), known)
    };
    config.destinations.iter().map(known).collect()
}

fn not_found(name: &str) -> OperateError {
    OperateError::NotFound {
        what: format!("destination {name}"),
    }
}
