//! Operations: the settings of one operation and its layer.

mod policy;
mod layer;
mod transaction;

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use hapax::{
    idempotency::{OnExpired, OnFailure, OnStoreError},
    key::Operation,
    limits::RETENTION_MAX,
    store::{Keys, Phases},
};
use http::{HeaderName, Method, request::Parts};

pub use layer::Protected;
pub(crate) use policy::{ClaimMode, KeyPolicy, MediaType, OperationPolicy};

use crate::{
    derived::{Derived, View},
    idempotency::Idempotency,
    phased::{AnyPhases, is_credential},
    problem::Problem,
    profile::{FingerprintMode, Profile},
    settings::operation_name,
    telemetry::Counts,
};

/// The layer of one operation; its methods change the settings.
///
/// POST and PATCH are protected, and the methods added with [`OperationLayer::also`]. All other
/// methods pass through unchanged.
#[derive(Clone, Debug)]
pub struct OperationLayer<K: Keys>(Arc<OperationBuilder<K>>);

impl<K: Keys> OperationLayer<K> {
    pub(crate) fn new(idempotency: Idempotency<K>, template: &str) -> Self {
        let policy = OperationPolicy::new(idempotency.settings());
        let wired = OperationBuilder {
            idempotency,
            template: template.to_owned(),
            methods: vec![Method::POST, Method::PATCH],
            policy,
            phasing: None,
            operations: OnceLock::new(),
        };
        // Fails here, where the service is set up, and not at its first request.
        drop(wired.make_operations());
        Self(Arc::new(wired))
    }

    /// Sets the protocol that the clients of this operation speak. By default it is that of the
    /// settings ([`Settings::profile`](crate::Settings::profile)).
    ///
    /// The profile gives the defaults of the key policy and of the fingerprint, and replaces what
    /// was set before: call this method first.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        self.change(|it| it.policy.follow(profile, it.idempotency.settings()))
    }

    /// Refuses requests without a key. This is the default, except in [`Profile::Iceberg`].
    #[must_use]
    pub fn required(self) -> Self {
        self.change(|it| it.policy.key_policy = KeyPolicy::Required)
    }

    /// Runs requests without a key unprotected. In [`Profile::Acp`], a POST without a key is refused
    /// nevertheless; so it is in an operation whose keys are issued or derived.
    #[must_use]
    pub fn optional(self) -> Self {
        self.change(|it| it.policy.key_policy = KeyPolicy::Optional)
    }

    /// Generates a key for requests without one, and returns it.
    #[must_use]
    pub fn issued(self) -> Self {
        self.change(|it| it.policy.key_policy = KeyPolicy::Issued)
    }

    /// Derives the key of requests without one from the parts that `derive` returns.
    ///
    /// `derive` is also called for requests with a key, because the parts in their folded form are
    /// part of the fingerprint. In [`FingerprintMode::Raw`] no part is folded.
    #[must_use]
    pub fn derived(
        self,
        derive: impl Fn(&View<'_>) -> Result<Derived, Problem> + Send + Sync + 'static,
    ) -> Self {
        self.change(|it| it.policy.key_policy = KeyPolicy::Derived(Arc::new(derive)))
    }

    /// Accepts plans ([`crate::WritePlan`]) instead of opening a transaction for the handler.
    #[must_use]
    pub fn single_shot(self) -> Self {
        self.change(|it| {
            it.policy.single_shot = true;
            it.phasing = None;
        })
    }

    /// Sends the claim together with the handler's first statement (pipelined claim). This saves a
    /// round trip on PostgreSQL, and on SQLite keeps the single writer free until then.
    ///
    /// The handler starts before the claim is decided, and is aborted at its first statement if the
    /// key is taken. Use this only for handlers that do nothing before that statement except for
    /// reading their request, or only what may be repeated without harm. The data in the database
    /// is as safe as without it. If the service fails open
    /// ([`OnStoreError::Open`](hapax::idempotency::OnStoreError::Open)), the claim is not pipelined,
    /// so that no handler starts twice.
    ///
    /// That first statement fails with
    /// [`StoreError::NotClaimed`](hapax::store::StoreError::NotClaimed), and the layer replaces the
    /// handler's response by that of the key. A handler that returns the error as a [`Problem`] is
    /// not logged as failed. A handler that logs or counts its errors itself should ignore those
    /// for which [`is_not_claimed`](hapax::store::StoreError::is_not_claimed) is true.
    ///
    /// A handler that touches nothing but its transaction saves another round trip with
    /// [`transaction`](Self::transaction).
    #[must_use]
    pub fn claim_pipelined(self) -> Self {
        self.change(|it| it.policy.claim_mode = ClaimMode::Pipelined)
    }

    /// Protects another method on this route.
    ///
    /// # Panics
    /// Panics if the method's name and the template are together too long.
    #[must_use]
    pub fn also(self, method: Method) -> Self {
        self.change(|it| {
            it.methods.push(method);
            drop(it.make_operations());
        })
    }

    /// Sets the maximum length of a body in bytes. JSON has an additional limit, see
    /// [`json_max`](Self::json_max).
    #[must_use]
    pub fn body_max(self, bytes: u64) -> Self {
        self.change(|it| it.policy.bounds.max = bytes)
    }

    /// Sets the maximum length of JSON bodies in bytes. The default is 1 MiB and does not depend on
    /// [`body_max`](Self::body_max). JSON is kept in memory as a whole, and needs another two times
    /// its size while its members are sorted.
    #[must_use]
    pub fn json_max(self, bytes: u64) -> Self {
        self.change(|it| it.policy.bounds.json_max = bytes)
    }

    /// Sets how bodies are compared. By default it is the mode of the settings
    /// ([`Settings::fingerprint`](crate::Settings::fingerprint)), or else that of the profile.
    ///
    /// If an operation with stored keys is changed, a repetition of an earlier request is a
    /// mismatch.
    #[must_use]
    pub fn fingerprint(self, mode: FingerprintMode) -> Self {
        self.change(|it| it.policy.fingerprint = mode)
    }

    /// Accepts only bodies of these media types, such as `multipart/form-data`. Others are refused
    /// with 415 before they are read. A request without a body and without a content type passes.
    #[must_use]
    pub fn media_types(
        self,
        types: impl IntoIterator<Item = impl Into<Cow<'static, str>>>,
    ) -> Self {
        self.change(|it| {
            it.policy
                .media_types
                .extend(types.into_iter().map(Into::into));
        })
    }

    /// Sets how long responses are kept, at most 30 days. [`Profile::Acp`] and [`Profile::Ucp`] keep
    /// them for at least 24 hours.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        self.change(|it| it.policy.retention = retention.min(RETENTION_MAX))
    }

    /// Sets how long a duplicate waits for the first request before it is refused as in progress. By
    /// default it is the time of the settings ([`Settings::wait`](crate::Settings::wait)).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        self.change(|it| it.policy.wait = wait)
    }

    /// Sets the response to a request whose key has expired. [`Profile::Adcp`] always refuses it.
    #[must_use]
    pub fn on_expired(self, on_expired: OnExpired) -> Self {
        self.change(|it| it.policy.on_expired = on_expired)
    }

    /// Sets what happens to the key if the handler fails. [`Profile::Acp`] and [`Profile::Adcp`] always release
    /// it.
    #[must_use]
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.change(|it| it.policy.on_failure = on_failure)
    }

    /// Sets response headers that belong to one exchange and are not stored.
    #[must_use]
    pub fn per_request_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.change(|it| it.policy.per_request.extend(names))
    }

    fn change(self, change: impl FnOnce(&mut OperationBuilder<K>)) -> Self {
        let mut wired = OperationBuilder {
            idempotency: self.0.idempotency.clone(),
            template: self.0.template.clone(),
            methods: self.0.methods.clone(),
            policy: self.0.policy.clone(),
            phasing: self.0.phasing.clone(),
            operations: OnceLock::new(),
        };
        change(&mut wired);
        Self(Arc::new(wired))
    }

    fn operations(&self) -> ProtectedOperations<K> {
        let operations = self.0.operations.get_or_init(|| self.0.make_operations());
        let is_resumed = |it: &Phasing<K>| !it.is_left_to_client;
        for (_, operation) in operations
            .iter()
            .filter(|(_, operation)| operation.phasing.as_ref().is_some_and(is_resumed))
        {
            operation.idempotency.note_phased(&operation.name);
        }
        Arc::clone(operations)
    }
}

impl<K: Phases> OperationLayer<K> {
    /// Commits the key first and lets the handler commit phase by phase ([`crate::Phased`]). This
    /// is for handlers that call remote systems.
    ///
    /// A key is always required, even if the operation is [`optional`](Self::optional). A failure
    /// leaves the key in progress; [`on_failure`](Self::on_failure) has no effect.
    #[must_use]
    pub fn phased(self) -> Self {
        self.change(|it| {
            it.policy.single_shot = false;
            let store = Arc::new(it.idempotency.store().clone());
            it.phasing = Some(Phasing {
                store,
                kept_headers: Vec::new(),
                is_left_to_client: false,
                first_phase: None,
            });
        })
    }

    /// Leaves the requests of this operation to their clients: the
    /// [`Completer`](crate::Completer) does not resume them, and they are not stored with their
    /// keys. Call it after [`phased`](Self::phased).
    #[must_use]
    pub fn left_to_client(self) -> Self {
        self.change(|it| {
            if let Some(phasing) = &mut it.phasing {
                phasing.is_left_to_client = true;
            }
        })
    }

    /// Enters a new key at the recovery point that `name` computes from its request, if it returns
    /// one. Call it after [`phased`](Self::phased).
    ///
    /// This is for handlers whose first act is to record that they call a remote system: the record
    /// is part of the commit that enters the key, and needs no other one. The handler then starts
    /// with that [`recovery_point`](crate::Phased::recovery_point), although the key is not
    /// [resumed](crate::Phased::is_resumed). The key counts as used from the beginning: a client
    /// error does not release it, unless the handler returns
    /// [`Disposition::Release`](crate::Disposition::Release). A key that is resumed keeps the
    /// recovery point that it has.
    ///
    /// If the recovery point is not the [name of a phase](hapax::phases::check_name), the key is not
    /// claimed, and the request fails.
    #[must_use]
    pub fn first_phase(
        self,
        name: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.change(|it| {
            if let Some(phasing) = &mut it.phasing {
                phasing.first_phase = Some(Arc::new(name));
            }
        })
    }

    /// Sets request headers that are kept, in addition to the content type and the headers of
    /// events, so that a phased request can be resumed if its client does not retry.
    ///
    /// # Panics
    /// Panics if one of them is a credential. Credentials are never kept.
    #[must_use]
    pub fn kept_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.change(|it| {
            let names = names.into_iter().inspect(|name| {
                assert!(
                    !is_credential(name),
                    "{name} is a credential and cannot be kept"
                );
            });
            if let Some(phasing) = &mut it.phasing {
                phasing.kept_headers.extend(names);
            }
        })
    }
}

/// Computes the recovery point at which the key of a request is entered.
pub(crate) type FirstPhase = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// The additional settings of a phased operation.
pub(crate) struct Phasing<K: Keys> {
    pub(crate) store: Arc<dyn AnyPhases<K::Tx>>,
    /// Request headers that are kept to resume the request.
    pub(crate) kept_headers: Vec<HeaderName>,
    /// Whether no completer resumes the requests. They are not stored then.
    pub(crate) is_left_to_client: bool,
    /// Computes the recovery point of new keys. Without it, a new key has none.
    pub(crate) first_phase: Option<Arc<FirstPhase>>,
}

impl<K: Keys> Clone for Phasing<K> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            kept_headers: self.kept_headers.clone(),
            is_left_to_client: self.is_left_to_client,
            first_phase: self.first_phase.clone(),
        }
    }
}

impl<K: Keys> fmt::Debug for Phasing<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phasing")
            .field("kept_headers", &self.kept_headers)
            .finish_non_exhaustive()
    }
}

/// The operations of a route by method. Each method is a separate operation.
type ProtectedOperations<K> = Arc<[(Method, Arc<ProtectedOperation<K>>)]>;

/// The state of an operation's layer.
#[derive(Debug)]
struct OperationBuilder<K: Keys> {
    idempotency: Idempotency<K>,
    template: String,
    methods: Vec<Method>,
    policy: OperationPolicy,
    phasing: Option<Phasing<K>>,
    /// Created once: a router without state applies its layers again for every request.
    operations: OnceLock<ProtectedOperations<K>>,
}

impl<K: Keys> OperationBuilder<K> {
    fn make_operations(&self) -> ProtectedOperations<K> {
        let operation = |method: &Method| {
            let service = self.idempotency.settings().service.as_deref();
            let name = operation_name(service, method, &self.template);
            let name = Operation::new(name).expect("method and template fit in a scope");
            Arc::new(ProtectedOperation {
                idempotency: self.idempotency.clone(),
                counts: Counts::new(name.clone()),
                name,
                policy: self.policy.clone().prescribed(),
                phasing: self.phasing.clone(),
            })
        };
        let methods = self.methods.iter();
        methods
            .map(|method| (method.clone(), operation(method)))
            .collect()
    }
}

/// One operation: a method on a route, with everything that its requests need.
#[derive(Debug)]
pub(crate) struct ProtectedOperation<K: Keys> {
    pub(crate) idempotency: Idempotency<K>,
    /// The name: method and route.
    pub(crate) name: Operation,
    pub(crate) policy: OperationPolicy,
    /// Set if the operation is phased.
    pub(crate) phasing: Option<Phasing<K>>,
    pub(crate) counts: Counts,
}

impl<K: Keys> ProtectedOperation<K> {
    /// Whether a request runs without its key while the store is unavailable.
    pub(crate) fn fails_open(&self) -> bool {
        let on_store_error = self.idempotency.settings().on_store_error;
        on_store_error == OnStoreError::Open && !self.policy.profile.fails_closed()
    }
}
