//! One operation under the contract: its terms, and the layer that holds requests to them.

mod layer;

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use hapax::{
    idempotency::{OnExpired, OnFailure},
    key::Operation,
    limits::{BODY_BYTES_MAX, JSON_BYTES_MAX, RETENTION_MAX},
    store::{Keys, Phases},
};
use http::{HeaderName, Method};

pub use layer::Protected;

use crate::{
    body::Bounds,
    derived::{Derive, Derived, View},
    idempotency::Idempotency,
    phased::{AnyPhases, is_credential},
    problem::Problem,
    settings::operation_name,
    telemetry::Counts,
};

/// The layer of one operation; its methods change its terms.
///
/// POST and PATCH are protected, and whatever [`OperationLayer::also`] adds; all other methods
/// pass through untouched.
#[derive(Debug)]
pub struct OperationLayer<K: Keys>(Arc<Wired<K>>);

impl<K: Keys> OperationLayer<K> {
    pub(crate) fn new(idempotency: Idempotency<K>, template: &str) -> Self {
        let settings = idempotency.settings();
        let terms = Terms {
            policy: Policy::Required,
            single_shot: false,
            rides: false,
            bounds: Bounds {
                max: BODY_BYTES_MAX,
                json_max: JSON_BYTES_MAX,
            },
            media_types: Vec::new(),
            retention: settings.retention.min(RETENTION_MAX),
            on_expired: settings.on_expired,
            on_failure: settings.on_failure,
            per_request: Vec::new(),
        };
        let wired = Wired {
            idempotency,
            template: template.to_owned(),
            methods: vec![Method::POST, Method::PATCH],
            terms,
            phasing: None,
            acts: OnceLock::new(),
        };
        // Fails here, where the service is wired, and not at its first request.
        drop(wired.make_acts());
        Self(Arc::new(wired))
    }

    /// Refuses requests without a key: the default.
    #[must_use]
    pub fn required(self) -> Self {
        self.change(|it| it.terms.policy = Policy::Required)
    }

    /// Runs requests without a key unprotected.
    #[must_use]
    pub fn optional(self) -> Self {
        self.change(|it| it.terms.policy = Policy::Optional)
    }

    /// Makes a key for requests without one, and returns it.
    #[must_use]
    pub fn issued(self) -> Self {
        self.change(|it| it.terms.policy = Policy::Issued)
    }

    /// Computes the key of requests without one from parts that `derive` names.
    ///
    /// It runs for requests with a key too: the parts stand folded in the fingerprint.
    #[must_use]
    pub fn derived(
        self,
        derive: impl Fn(&View<'_>) -> Result<Derived, Problem> + Send + Sync + 'static,
    ) -> Self {
        self.change(|it| it.terms.policy = Policy::Derived(Arc::new(derive)))
    }

    /// Takes plans ([`crate::Planned`]) instead of opening a transaction for the handler.
    #[must_use]
    pub fn single_shot(self) -> Self {
        self.change(|it| {
            it.terms.single_shot = true;
            it.phasing = None;
        })
    }

    /// Lets the claim travel with the handler's first statement: saves its round trip on
    /// PostgreSQL, and keeps the one writer of SQLite free until then.
    ///
    /// The handler then begins before it is known whether it is to run, and where it is not, it
    /// ends at its first statement: only for handlers that do nothing before it but read their
    /// request, or what may be done again without harm. Whatever stands in the database is as safe
    /// as ever.
    ///
    /// That first statement fails with [`StoreError::NotClaimed`](hapax::store::StoreError::NotClaimed),
    /// and the layer puts the key's answer in the place of the handler's. A handler that returns the
    /// error as a [`Problem`] is not logged as failed. One that logs or counts its errors itself asks
    /// [`is_not_claimed`](hapax::store::StoreError::is_not_claimed) and leaves these out.
    #[must_use]
    pub fn claim_with_first_statement(self) -> Self {
        self.change(|it| it.terms.rides = true)
    }

    /// Protects another method on this route.
    ///
    /// # Panics
    /// When the method's name and the template are too long together.
    #[must_use]
    pub fn also(self, method: Method) -> Self {
        self.change(|it| {
            it.methods.push(method);
            drop(it.make_acts());
        })
    }

    /// Bounds the body, in bytes. JSON has a bound of its own besides, see
    /// [`json_max`](Self::json_max).
    #[must_use]
    pub fn body_max(self, bytes: u64) -> Self {
        self.change(|it| it.terms.bounds.max = bytes)
    }

    /// Bounds bodies that are JSON, in bytes; 1 MiB by default, whatever
    /// [`body_max`](Self::body_max) is. JSON is in memory whole, and twice more while its members
    /// are sorted.
    #[must_use]
    pub fn json_max(self, bytes: u64) -> Self {
        self.change(|it| it.terms.bounds.json_max = bytes)
    }

    /// Takes bodies of these media types alone, such as `multipart/form-data`: others are refused
    /// with 415 before they are read. A request without a body and without a type passes.
    #[must_use]
    pub fn media_types(
        self,
        types: impl IntoIterator<Item = impl Into<Cow<'static, str>>>,
    ) -> Self {
        self.change(|it| {
            it.terms
                .media_types
                .extend(types.into_iter().map(Into::into));
        })
    }

    /// Remembers answers for this long, at most 30 days.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        self.change(|it| it.terms.retention = retention.min(RETENTION_MAX))
    }

    /// Says what a request gets whose key has expired.
    #[must_use]
    pub fn on_expired(self, on_expired: OnExpired) -> Self {
        self.change(|it| it.terms.on_expired = on_expired)
    }

    /// Says what becomes of the key when the handler fails.
    #[must_use]
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.change(|it| it.terms.on_failure = on_failure)
    }

    /// Names response headers that belong to one exchange and are not stored.
    #[must_use]
    pub fn per_request_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.change(|it| it.terms.per_request.extend(names))
    }

    fn change(self, change: impl FnOnce(&mut Wired<K>)) -> Self {
        let mut wired = Wired {
            idempotency: self.0.idempotency.clone(),
            template: self.0.template.clone(),
            methods: self.0.methods.clone(),
            terms: self.0.terms.clone(),
            phasing: self.0.phasing.clone(),
            acts: OnceLock::new(),
        };
        change(&mut wired);
        Self(Arc::new(wired))
    }

    fn acts(&self) -> Acts<K> {
        let acts = self.0.acts.get_or_init(|| self.0.make_acts());
        for (_, act) in acts.iter().filter(|(_, act)| act.phasing.is_some()) {
            act.idempotency.note_phased(&act.operation);
        }
        Arc::clone(acts)
    }
}

impl<K: Phases> OperationLayer<K> {
    /// Commits the key first and lets the handler commit phase by phase ([`crate::Phased`]): for
    /// handlers that call foreign systems.
    ///
    /// A key is needed always, also where the operation is [`optional`](Self::optional). A failure
    /// leaves the key in progress, whatever [`on_failure`](Self::on_failure) says.
    #[must_use]
    pub fn phased(self) -> Self {
        self.change(|it| {
            it.terms.single_shot = false;
            let store = Arc::new(it.idempotency.store().clone());
            it.phasing = Some(Phasing {
                store,
                kept_headers: Vec::new(),
            });
        })
    }

    /// Names request headers that a phased request is resumed with when its client does not come
    /// again, besides the content type and what its events carry.
    ///
    /// # Panics
    /// When one of them is a credential: those are never kept.
    #[must_use]
    pub fn kept_headers(self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.change(|it| {
            let names = names.into_iter().inspect(|name| {
                assert!(
                    !is_credential(name),
                    "{name} is a credential and is not kept"
                );
            });
            if let Some(phasing) = &mut it.phasing {
                phasing.kept_headers.extend(names);
            }
        })
    }
}

/// What a phased operation has besides its terms.
pub(crate) struct Phasing<K: Keys> {
    pub(crate) store: Arc<dyn AnyPhases<K::Tx>>,
    /// Request headers that are kept for who resumes it.
    pub(crate) kept_headers: Vec<HeaderName>,
}

impl<K: Keys> Clone for Phasing<K> {
    fn clone(&self) -> Self {
        Self {
            store: Arc::clone(&self.store),
            kept_headers: self.kept_headers.clone(),
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

impl<K: Keys> Clone for OperationLayer<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// The operations of a route, by method: each method is an operation of its own.
type Acts<K> = Arc<[(Method, Arc<Act<K>>)]>;

/// What an operation's layer is made of.
#[derive(Debug)]
struct Wired<K: Keys> {
    idempotency: Idempotency<K>,
    template: String,
    methods: Vec<Method>,
    terms: Terms,
    phasing: Option<Phasing<K>>,
    /// Made once: a router without a state puts its layers on anew for every request.
    acts: OnceLock<Acts<K>>,
}

impl<K: Keys> Wired<K> {
    fn make_acts(&self) -> Acts<K> {
        let act = |method: &Method| {
            let service = self.idempotency.settings().service.as_deref();
            let name = operation_name(service, method, &self.template);
            let operation = Operation::new(name).expect("method and template fit in a scope");
            Arc::new(Act {
                idempotency: self.idempotency.clone(),
                counts: Counts::new(operation.clone()),
                operation,
                terms: self.terms.clone(),
                phasing: self.phasing.clone(),
            })
        };
        let methods = self.methods.iter();
        methods
            .map(|method| (method.clone(), act(method)))
            .collect()
    }
}

/// A media type without parameters.
pub(crate) type MediaType = Cow<'static, str>;

/// What holds for one operation.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) policy: Policy,
    pub(crate) single_shot: bool,
    /// Whether the claim travels with the first statement.
    pub(crate) rides: bool,
    pub(crate) bounds: Bounds,
    /// The media types of bodies that are taken; all where there is none.
    pub(crate) media_types: Vec<MediaType>,
    pub(crate) retention: Duration,
    pub(crate) on_expired: OnExpired,
    pub(crate) on_failure: OnFailure,
    pub(crate) per_request: Vec<HeaderName>,
}

/// Where a key comes from when the client sends none.
#[derive(Clone)]
pub(crate) enum Policy {
    Required,
    Optional,
    Issued,
    Derived(Arc<Derive>),
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "Required",
            Self::Optional => "Optional",
            Self::Issued => "Issued",
            Self::Derived(_) => "Derived",
        })
    }
}

/// One operation: a method on a route, with all that its requests need.
#[derive(Debug)]
pub(crate) struct Act<K: Keys> {
    pub(crate) idempotency: Idempotency<K>,
    pub(crate) operation: Operation,
    pub(crate) terms: Terms,
    /// Where the operation is phased.
    pub(crate) phasing: Option<Phasing<K>>,
    pub(crate) counts: Counts,
}
