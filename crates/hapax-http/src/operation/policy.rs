//! Settings of an operation: where its key comes from, when it is claimed, what its bodies may be,
//! and how long its responses are kept.
//!
//! The service's settings and its profile give the defaults. What the profile prescribes is applied
//! at the end, by [`OperationPolicy::prescribed`], so that no other setting can undo it.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use hapax::{
    idempotency::{Disposition, OnExpired, OnFailure},
    limits::{BODY_BYTES_MAX, JSON_BYTES_MAX, RETENTION_MAX},
};
use http::HeaderName;

use crate::{
    body::Bounds,
    derived::Derive,
    profile::{FingerprintMode, Profile},
    request::Finished,
    settings::Settings,
};

/// A media type without parameters.
pub(crate) type MediaType = Cow<'static, str>;

/// The settings of an operation.
#[derive(Clone, Debug)]
pub(crate) struct OperationPolicy {
    pub(crate) profile: Profile,
    pub(crate) key_policy: KeyPolicy,
    pub(crate) single_shot: bool,
    /// When an atomic request claims its key.
    pub(crate) claim_mode: ClaimMode,
    pub(crate) bounds: Bounds,
    /// How bodies are compared.
    pub(crate) fingerprint: FingerprintMode,
    /// The accepted media types of bodies; all if empty.
    pub(crate) media_types: Vec<MediaType>,
    pub(crate) retention: Duration,
    /// How long a duplicate waits for the first request.
    pub(crate) wait: Duration,
    pub(crate) on_expired: OnExpired,
    pub(crate) on_failure: OnFailure,
    pub(crate) per_request: Vec<HeaderName>,
}

impl OperationPolicy {
    /// Creates the settings of an operation that sets nothing itself.
    pub(super) fn new(settings: &Settings) -> Self {
        let profile = settings.profile;
        Self {
            profile,
            key_policy: KeyPolicy::of(profile),
            single_shot: false,
            claim_mode: ClaimMode::First,
            bounds: Bounds {
                max: BODY_BYTES_MAX,
                json_max: JSON_BYTES_MAX,
            },
            fingerprint: settings.fingerprint.unwrap_or(profile.fingerprint()),
            media_types: Vec::new(),
            retention: settings.retention.min(RETENTION_MAX),
            wait: settings.wait,
            on_expired: settings.on_expired,
            on_failure: settings.on_failure,
            per_request: Vec::new(),
        }
    }

    /// Changes the profile, and with it the defaults that it gives.
    pub(super) fn follow(&mut self, profile: Profile, settings: &Settings) {
        self.profile = profile;
        self.key_policy = KeyPolicy::of(profile);
        self.fingerprint = settings.fingerprint.unwrap_or(profile.fingerprint());
    }

    /// Returns what to store of a handler's response.
    pub(crate) fn verdict(&self, finished: &Finished) -> Disposition {
        finished.verdict(self.on_failure, self.profile)
    }

    /// Applies what the profile prescribes.
    pub(super) fn prescribed(self) -> Self {
        let profile = self.profile;
        Self {
            retention: self.retention.max(profile.retention_min()),
            on_expired: if profile.refuses_expired() {
                OnExpired::Gone
            } else {
                self.on_expired
            },
            on_failure: if profile.releases_failures() {
                OnFailure::Release
            } else {
                self.on_failure
            },
            ..self
        }
    }
}

/// When an atomic request claims its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimMode {
    /// Before the handler starts.
    First,
    /// Together with the handler's first statement.
    Pipelined,
    /// Together with the response: the key is assumed to be free.
    Optimistic,
}

/// The source of the key if the client sends none.
#[derive(Clone)]
pub(crate) enum KeyPolicy {
    Required,
    Optional,
    Issued,
    Derived(Arc<Derive>),
}

impl KeyPolicy {
    /// Returns the default under a profile.
    fn of(profile: Profile) -> Self {
        if profile.is_key_optional() {
            Self::Optional
        } else {
            Self::Required
        }
    }
}

impl fmt::Debug for KeyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "Required",
            Self::Optional => "Optional",
            Self::Issued => "Issued",
            Self::Derived(_) => "Derived",
        })
    }
}
