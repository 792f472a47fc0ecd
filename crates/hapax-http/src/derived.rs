//! Derived keys: idempotency keys that the service computes from the request.
//!
//! An operation such as a signup is one intent per e-mail address, whether the client sends a key
//! or not. The service chooses the parts of the request from which the key is computed. They are
//! hashed with a secret of the store, so that clients can neither compute such a key nor find its
//! parts by trial. The fingerprint contains the parts in the same, folded form.

use std::borrow::Cow;

use hapax::key::{DERIVED_PREFIX, DerivationSecret, Operation, Tenant, hex};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::request::Parts;
use serde::de::DeserializeOwned;
use sha2::Sha256;

use crate::{body::Kept, extract::from_json, problem::Problem};

/// The version of the format of derived keys. After a change, every request derives another key.
const VERSION: u8 = 2;

/// A request before its handler runs, from which a key is derived.
#[derive(Debug)]
pub struct View<'a> {
    /// The head of the request.
    pub parts: &'a Parts,
    kept: &'a Kept,
}

impl<'a> View<'a> {
    pub(crate) const fn new(parts: &'a Parts, kept: &'a Kept) -> Self {
        Self { parts, kept }
    }

    /// Returns the body, or `None` if it is too long to be in memory. JSON is always in memory.
    pub fn body(&self) -> Option<&[u8]> {
        self.kept.bytes().map(|bytes| &**bytes)
    }

    /// Deserializes the body from JSON.
    ///
    /// # Errors
    /// 400 if the body is not JSON or does not fit `T`. The problem names the member.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        from_json(self.body().unwrap_or_default())
    }
}

/// The parts of a request from which its key is derived.
///
/// ```
/// use hapax_http::Derived;
///
/// let derived = Derived::new().member("email", "Ann@x.org".to_lowercase());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Derived {
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    name: Cow<'static, str>,
    value: String,
    folds: bool,
}

impl Derived {
    /// Creates an empty list of parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a top-level member of the JSON body, in its folded form. The folded form also replaces
    /// the member in the fingerprint, so that spellings with the same folded form are the same
    /// request.
    #[must_use]
    pub fn member(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.add(name.into(), value.into(), true)
    }

    /// Adds a part that is not a member of the body.
    #[must_use]
    pub fn part(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.add(name.into(), value.into(), false)
    }

    /// Computes the key for this tenant and operation, with the store's secret.
    ///
    /// Without the secret it is not possible to find the address from which a key was derived by
    /// trial. The keys of one tenant reveal nothing about the keys of another.
    pub(crate) fn key(
        &self,
        secret: &DerivationSecret,
        tenant: &Tenant,
        operation: &Operation,
    ) -> Cow<'static, str> {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(&[VERSION]);
        let scope = [tenant.as_str(), operation.as_str()];
        let parts = self.parts.iter().flat_map(|it| [&*it.name, &*it.value]);
        for part in scope.into_iter().chain(parts) {
            // Preceded by its length, so that different lists of parts are different texts.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        let mac = mac.finalize().into_bytes();
        Cow::Owned(format!("{DERIVED_PREFIX}{}", hex(&mac)))
    }

    /// Returns the members whose folded form replaces them in the fingerprint.
    pub(crate) fn folded(&self) -> Vec<(&str, &str)> {
        let folded = self.parts.iter().filter(|part| part.folds);
        folded.map(|part| (&*part.name, &*part.value)).collect()
    }

    fn add(mut self, name: Cow<'static, str>, value: String, folds: bool) -> Self {
        self.parts.push(Part { name, value, folds });
        self
    }
}

/// A service's function that derives keys.
pub(crate) type Derive = dyn Fn(&View<'_>) -> Result<Derived, Problem> + Send + Sync;

/// Refuses a derivation without parts, whose key would be the same for all requests.
pub(crate) fn check(derived: &Derived) -> Result<(), Problem> {
    if derived.parts.is_empty() {
        return Err(Problem::internal(
            "the function given to `derived` returned no parts of the request",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hapax::key::IdempotencyKey;

    use super::*;

    #[test]
    fn a_derived_key_tells_parts_apart_and_fits_the_grammar() {
        let a = key(
            &Derived::new().part("x", "ab").part("y", "c"),
            1,
            "a",
            "POST /x",
        );
        let b = key(
            &Derived::new().part("x", "a").part("y", "bc"),
            1,
            "a",
            "POST /x",
        );
        assert_ne!(a, b);
        assert!(a.starts_with("derived:"));
        assert!(IdempotencyKey::new(&*a).is_ok());
    }

    #[test]
    fn a_secret_a_tenant_and_an_operation_each_make_another_key() {
        let ann = Derived::new().part("email", "ann@x.org");
        let first = key(&ann, 1, "alice", "POST /signups");
        assert_eq!(first, key(&ann, 1, "alice", "POST /signups"));
        assert_ne!(first, key(&ann, 2, "alice", "POST /signups"));
        assert_ne!(first, key(&ann, 1, "bob", "POST /signups"));
        assert_ne!(first, key(&ann, 1, "alice", "POST /newsletters"));
    }

    fn key(derived: &Derived, secret: u8, tenant: &str, operation: &str) -> Cow<'static, str> {
        derived.key(
            &DerivationSecret::from_bytes([secret; 32]),
            &Tenant::new(tenant).unwrap(),
            &Operation::new(operation).unwrap(),
        )
    }
}
