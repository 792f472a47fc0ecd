//! Keys that are computed from the request itself.
//!
//! An operation such as a signup is one intent per e-mail address, whether the
//! client sends a key or not. Its service says which parts make the key; they
//! are hashed, so that the key tells nothing, and they stand in the fingerprint
//! in the same, folded form.

use std::borrow::Cow;

use hapax::key::{FingerprintBuilder, IdempotencyKey, hex};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::{body::Kept, extract::from_json, problem::Problem};

/// The version of the format of derived keys.
const VERSION: u8 = 1;

/// A request as a derivation sees it, before anything has run.
#[derive(Debug)]
pub struct View<'a> {
    /// Its head.
    pub parts: &'a Parts,
    kept: &'a Kept,
}

impl<'a> View<'a> {
    pub(crate) const fn new(parts: &'a Parts, kept: &'a Kept) -> Self {
        Self { parts, kept }
    }

    /// The body's bytes; `None` when it is too long to be in memory. JSON always is.
    pub fn body(&self) -> Option<&[u8]> {
        self.kept.bytes().map(|bytes| &**bytes)
    }

    /// The body as a type, with refusals that name the member.
    ///
    /// # Errors
    /// 400 when the body is no JSON or does not fit.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        from_json(self.body().unwrap_or_default())
    }
}

/// The parts that make a key.
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
    /// No parts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a top-level member of the JSON body, in its folded form: it stands for the member in
    /// the fingerprint too, so that spellings that fold alike are one request.
    #[must_use]
    pub fn member(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.add(name.into(), value.into(), true)
    }

    /// Adds a part that is no member of the body.
    #[must_use]
    pub fn part(self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.add(name.into(), value.into(), false)
    }

    /// The key that the parts make.
    pub(crate) fn key(&self) -> Cow<'static, str> {
        let hash = self
            .parts
            .iter()
            .fold(FingerprintBuilder::new(VERSION), |hash, part| {
                hash.part(part.name.as_bytes()).part(part.value.as_bytes())
            });
        Cow::Owned(format!("derived:{}", hex(hash.finish().as_bytes())))
    }

    /// The members that stand in another form in the fingerprint.
    pub(crate) fn folded(&self) -> Vec<(&str, &str)> {
        let folded = self.parts.iter().filter(|part| part.folds);
        folded.map(|part| (&*part.name, &*part.value)).collect()
    }

    fn add(mut self, name: Cow<'static, str>, value: String, folds: bool) -> Self {
        self.parts.push(Part { name, value, folds });
        self
    }
}

/// How a service derives keys.
pub(crate) type Derive = dyn Fn(&View<'_>) -> Result<Derived, Problem> + Send + Sync;

/// A key without parts would be one key for all: refused before it is used.
pub(crate) fn check(derived: &Derived) -> Result<(), Problem> {
    if derived.parts.is_empty() {
        return Err(Problem::internal(
            "the derivation named no part of the request",
        ));
    }
    debug_assert!(IdempotencyKey::new(&*derived.key()).is_ok());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_key_tells_parts_apart_and_fits_the_grammar() {
        let a = Derived::new().part("x", "ab").part("y", "c").key();
        let b = Derived::new().part("x", "a").part("y", "bc").key();
        assert_ne!(a, b);
        assert!(a.starts_with("derived:"));
        assert!(IdempotencyKey::new(&*a).is_ok());
    }
}
