//! Operations on endpoints of tenants: create, change, rotate, reveal, disable and test.
//!
//! A secret is returned by the request that makes it, and by [`EndpointOperations::reveal`]. The
//! secrets of an endpoint are encrypted together. If the URL changes, the values of configured headers
//! have to be given again; otherwise a caller who does not know them could have them sent to a server
//! of their choice.

use std::{collections::BTreeMap, fmt, io, sync::Arc, time::Duration};

use async_trait::async_trait;
use hapax::{
    Clock, Random,
    admin::{
        Actor, Admin, AdminError, EndpointAction, EndpointDelivery, EndpointDraft, EndpointEdit,
        EndpointOperations, EndpointPatch, EndpointWithSecret, NewEndpoint, StoredEndpoint,
        TEST_EVENT, TenantEndpoint, check_secret_overlap, endpoint_has_changed, endpoint_object,
    },
    delivery::AttemptOutcome,
    endpoint::{Endpoint, Transport as _},
    event::{Headers, NewEvent},
    key::{Tenant, hex},
    outbox::{OutboxEvent, build_event},
    signature,
    sink::{Offer, SinkError},
    store::StoreError,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Keys, Secrets,
    previous::PreviousSecrets,
    transport::{EndpointTransport, HEADER, SECRET, secrets_name},
};
use crate::settings::SettingError;

/// Settings of the operations on endpoints.
#[derive(Clone)]
pub struct OperationsSettings {
    /// Maximum number of endpoints of a tenant.
    pub per_tenant: u32,
    /// The wall clock.
    pub clock: Clock,
    /// Randomness for the ids of test events.
    pub random: Random,
    /// Draws 32 bytes of the operating system's randomness, for ids and secrets.
    pub secret_bytes: fn() -> io::Result<[u8; 32]>,
}

/// Creates, changes and tests endpoints.
pub struct TenantEndpoints {
    store: Arc<dyn Admin>,
    keys: Keys,
    transport: EndpointTransport,
    settings: OperationsSettings,
}

impl fmt::Debug for OperationsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationsSettings")
            .field("per_tenant", &self.per_tenant)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TenantEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantEndpoints")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl TenantEndpoints {
    /// Uses a store, the keys that encrypt secrets, and a transport for test events.
    pub fn new(
        store: Arc<dyn Admin>,
        keys: Keys,
        transport: EndpointTransport,
        settings: OperationsSettings,
    ) -> Self {
        Self {
            store,
            keys,
            transport,
            settings,
        }
    }

    /// An edit with its secrets encrypted. An endpoint that can never be sent to is refused.
    fn sealed(
        &self,
        tenant: &str,
        id: &str,
        mut edit: EndpointEdit,
        secrets: &Secrets,
    ) -> Result<EndpointEdit, AdminError> {
        edit.check()?;
        let sealed = self.keys.encrypt(&secrets_name(tenant, id), secrets);
        edit.sealed = sealed.map_err(|problem| AdminError::invalid("secret", problem))?;
        let endpoint = Endpoint {
            id: id.to_owned(),
            tenant: Tenant::new(tenant)
                .map_err(|error| AdminError::invalid("tenant", error.to_string()))?,
            url: edit.url.clone(),
            patterns: Vec::new(),
            filter: None,
            payload: edit.payload,
            // It was checked with the edit.
            mapping: None,
            sealed: edit.sealed.clone(),
            previous_until: edit.previous_until,
            is_enabled: true,
            is_catching_up: false,
            version: 0,
        };
        let built = self.transport.build(&endpoint);
        let built = built
            .map_err(|SettingError { setting, problem }| AdminError::invalid(setting, problem))?;
        match built.refusal() {
            None => Ok(edit),
            Some(blocked) => Err(AdminError::invalid("url", blocked.to_string())),
        }
    }

    fn opened(&self, stored: &StoredEndpoint) -> Result<Secrets, AdminError> {
        let TenantEndpoint { id, tenant, .. } = &stored.endpoint;
        let opened = self
            .keys
            .open(&secrets_name(tenant, id), stored.sealed.as_deref());
        opened.map_err(|problem| AdminError::conflict(format!("its secrets {problem}")))
    }

    fn secret_bytes(&self) -> Result<[u8; 32], AdminError> {
        let drawn = (self.settings.secret_bytes)();
        drawn.map_err(|error| StoreError::unavailable(error).into())
    }

    fn new_secret(&self) -> Result<String, AdminError> {
        Ok(signature::Secret::mint(self.secret_bytes()?).reveal())
    }
}

#[async_trait]
impl EndpointOperations for TenantEndpoints {
    async fn create(
        &self,
        actor: &Actor,
        tenant: &str,
        draft: EndpointDraft,
    ) -> Result<EndpointWithSecret, AdminError> {
        let id = match draft.id {
            Some(id) => id,
            None => format!("ep_{}", hex(&self.secret_bytes()?[..16])),
        };
        let secret = match draft.secret {
            Some(secret) => secret,
            None => self.new_secret()?,
        };
        let mut secrets = header_secrets(&draft.headers);
        secrets.insert(SECRET.to_owned(), SecretString::from(secret.clone()));
        let edit = EndpointEdit {
            url: draft.url,
            description: draft.description,
            types: draft.types,
            filter: draft.filter.filter(|it| !it.is_empty()),
            headers: draft.headers.into_keys().collect(),
            payload: draft.payload,
            mapping: draft.mapping.filter(|it| !it.is_empty()),
            ..EndpointEdit::default()
        };
        let edit = self.sealed(tenant, &id, edit, &secrets)?;
        let new = NewEndpoint { id, edit };
        let per_tenant = self.settings.per_tenant;
        let created = self.store.create_endpoint(actor, tenant, &new, per_tenant);
        let endpoint = created.await?;
        Ok(EndpointWithSecret { endpoint, secret })
    }

    async fn update(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        patch: EndpointPatch,
    ) -> Result<TenantEndpoint, AdminError> {
        let stored = self.store.endpoint(actor, tenant, id).await?;
        let (mut edit, mut secrets) = (stored.edit(), self.opened(&stored)?);
        let has_other_url = patch.url.as_ref().is_some_and(|url| *url != edit.url);
        if has_other_url && patch.headers.is_none() && !edit.headers.is_empty() {
            let problem = "have to be given again if the url changes";
            return Err(AdminError::invalid("headers", problem));
        }
        edit.url = patch.url.unwrap_or(edit.url);
        edit.description = patch.description.unwrap_or(edit.description);
        edit.types = patch.types.unwrap_or(edit.types);
        edit.payload = patch.payload.unwrap_or(edit.payload);
        if patch.filter.is_some() {
            edit.filter = patch.filter.filter(|it| !it.is_empty());
        }
        if patch.mapping.is_some() {
            edit.mapping = patch.mapping.filter(|it| !it.is_empty());
        }
        if let Some(headers) = patch.headers {
            secrets.retain(|name, _| !name.starts_with(HEADER));
            secrets.extend(header_secrets(&headers));
            edit.headers = headers.into_keys().collect();
        }
        let edit = self.sealed(tenant, id, edit, &secrets)?;
        let (version, action) = (patch.version, EndpointAction::Change);
        let changed = self
            .store
            .change_endpoint(actor, tenant, id, version, action, &edit);
        changed.await
    }

    async fn rotate(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        version: Option<i64>,
        overlap: Duration,
    ) -> Result<EndpointWithSecret, AdminError> {
        check_secret_overlap(overlap)?;
        let stored = self.store.endpoint(actor, tenant, id).await?;
        let current = stored.endpoint.version;
        if version.is_some_and(|version| version != current) {
            return Err(endpoint_has_changed(id, current));
        }
        let (mut edit, mut secrets) = (stored.edit(), self.opened(&stored)?);
        let secret = self.new_secret()?;
        let old = secrets.insert(SECRET.to_owned(), SecretString::from(secret.clone()));
        let now = self.settings.clock.now();
        let mut previous = PreviousSecrets::default();
        // Without an overlap nothing but the new secret signs: any of the others may have leaked.
        if !overlap.is_zero() {
            previous = PreviousSecrets::read(&secrets, edit.previous_until);
            previous.remove_ended(now);
            if let Some(old) = old {
                previous.add(old, now.after(overlap))?;
            }
        }
        edit.previous_until = previous.until();
        previous.write(&mut secrets);
        let edit = self.sealed(tenant, id, edit, &secrets)?;
        let action = EndpointAction::Rotate;
        let rotated = self
            .store
            .change_endpoint(actor, tenant, id, current, action, &edit);
        Ok(EndpointWithSecret {
            endpoint: rotated.await?,
            secret,
        })
    }

    async fn reveal(&self, actor: &Actor, tenant: &str, id: &str) -> Result<String, AdminError> {
        let stored = self.store.endpoint(actor, tenant, id).await?;
        let secrets = self.opened(&stored)?;
        let secret = secrets.get(SECRET).map(|it| it.expose_secret().to_owned());
        let secret = secret.ok_or_else(|| AdminError::conflict("it has no signing secret"))?;
        // A secret that was seen and is in no log would be worse than a line too many.
        let (object, detail) = (endpoint_object(id), json!({ "tenant": tenant }));
        self.store.record(actor, "reveal", &object, &detail).await?;
        Ok(secret)
    }

    async fn set_disabled(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
        reason: Option<String>,
    ) -> Result<TenantEndpoint, AdminError> {
        let stored = self.store.endpoint(actor, tenant, id).await?;
        let action = match &reason {
            Some(_) => EndpointAction::Disable,
            None => EndpointAction::Enable,
        };
        let edit = EndpointEdit {
            disabled_reason: reason,
            ..stored.edit()
        };
        let version = stored.endpoint.version;
        let changed = self
            .store
            .change_endpoint(actor, tenant, id, version, action, &edit);
        changed.await
    }

    async fn test(
        &self,
        actor: &Actor,
        tenant: &str,
        id: &str,
    ) -> Result<EndpointDelivery, AdminError> {
        let endpoint = self.store.endpoint(actor, tenant, id).await?.readable()?;
        let started_at = self.settings.clock.now();
        let payload = json!({
            "test": true,
            "endpoint": id,
            "message": "This is a test event of Hapax. Nothing has happened.",
        });
        let new = NewEvent::json(TEST_EVENT, &payload);
        let owner = Some(&endpoint.tenant);
        let random = &self.settings.random;
        let event = build_event(new, owner, &Headers::new(), started_at, random);
        let event = event.map_err(|error| AdminError::invalid("endpoint", error.to_string()))?;
        let event_id = event.id.to_string();
        let detail = json!({"tenant": tenant, "event_id": event_id});
        let object = endpoint_object(id);
        self.store.record(actor, "test", &object, &detail).await?;
        let offer = Offer {
            event: Arc::new(OutboxEvent { position: 0, event }),
            attempt: 1,
            trace: None,
        };
        let began = Instant::now();
        let exchange = self.transport.send(&endpoint, &offer).await;
        let error = exchange.outcome.as_ref().err();
        let receipt = match &exchange.outcome {
            Ok(receipt) => receipt,
            Err(error) => error.receipt(),
        };
        let state = if error.is_some() {
            "failed"
        } else {
            "delivered"
        };
        let mut tested = EndpointDelivery {
            event_id,
            kind: TEST_EVENT.to_owned(),
            state: state.to_owned(),
            next_at: None,
            attempt: 1,
            started_at,
            duration: began.elapsed().saturating_sub(exchange.prepared_in),
            outcome: outcome_of(error),
            status: receipt.status,
            error: error.map(SinkError::error_chain),
            request_headers: BTreeMap::new(),
            request_body: None,
            response: None,
        };
        tested.set_exchange(&exchange.request.encode(), &receipt.head);
        Ok(tested)
    }
}

fn outcome_of(error: Option<&SinkError>) -> AttemptOutcome {
    match error {
        None => AttemptOutcome::Delivered,
        Some(SinkError::Declined { .. }) => AttemptOutcome::Declined,
        Some(SinkError::Rejected { .. }) => AttemptOutcome::Rejected,
        Some(SinkError::Gone { .. }) => AttemptOutcome::Gone,
        Some(_) => AttemptOutcome::Unavailable,
    }
}

fn header_secrets(headers: &BTreeMap<String, String>) -> Secrets {
    let secret = |(name, value): (&String, &String)| {
        let value = SecretString::from(value.as_str());
        (format!("{HEADER}{name}"), value)
    };
    headers.iter().map(secret).collect()
}
