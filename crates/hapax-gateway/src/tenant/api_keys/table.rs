//! Table of API keys by id, checked when it is built.

use std::collections::HashMap;

use hapax::{Timestamp, key::Tenant};
use subtle::ConstantTimeEq as _;

use super::{
    entry::ApiKeyEntry,
    key::{hash, id_of, is_id},
    refusal::ApiKeyRefusal,
};

/// Maximum number of keys. The table of so many takes about 50 MB.
const KEYS_MAX: usize = 200_000;
/// The prefix of a hash.
const SCHEME: &str = "sha256:";

/// The keys by their id.
#[derive(Default)]
pub(super) struct Table(HashMap<String, ApiKey>);

struct ApiKey {
    hash: [u8; 32],
    tenant: Tenant,
    expires: Option<Timestamp>,
    is_disabled: bool,
}

impl Table {
    /// Builds a table. The error says which entry is wrong, and never contains a hash.
    pub(super) fn new<'a>(entries: impl Iterator<Item = &'a ApiKeyEntry>) -> Result<Self, String> {
        let mut keys = HashMap::new();
        for entry in entries {
            let id = &entry.id;
            if !is_id(id) {
                return Err(format!("id: expected 12 hexadecimal digits, got {id:?}"));
            }
            let known = ApiKey::new(entry).map_err(|problem| format!("key {id}: {problem}"))?;
            if keys.insert(id.clone(), known).is_some() {
                return Err(format!("key {id}: occurs more than once"));
            }
            if keys.len() > KEYS_MAX {
                return Err(format!("expected at most {KEYS_MAX} keys"));
            }
        }
        Ok(Self(keys))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Finds the tenant of a key.
    pub(super) fn find(&self, key: &str, now: Timestamp) -> Result<Tenant, ApiKeyRefusal> {
        let known = id_of(key).and_then(|id| self.0.get(id));
        // An unknown id takes as long as a wrong secret.
        let expected = known.map_or([0; 32], |known| known.hash);
        let is_equal = bool::from(expected.ct_eq(&hash(key)));
        match known {
            Some(known) if is_equal => known.tenant_at(now),
            _ => Err(ApiKeyRefusal::Unknown),
        }
    }
}

impl ApiKey {
    fn new(entry: &ApiKeyEntry) -> Result<Self, String> {
        let expires = match &entry.expires {
            None => None,
            Some(text) => Some(text.parse::<Timestamp>().map_err(|_| {
                format!("expires: expected a time such as \"2027-01-31T00:00:00Z\", got {text:?}")
            })?),
        };
        let hash = entry.hash.strip_prefix(SCHEME).and_then(unhex);
        if entry.tenant.chars().any(char::is_control) {
            return Err("tenant: contains a control character".to_owned());
        }
        let tenant = Tenant::new(entry.tenant.as_str());
        Ok(Self {
            hash: hash.ok_or("hash: expected \"sha256:\" and 64 hexadecimal digits")?,
            tenant: tenant.map_err(|error| format!("tenant: is not a valid name: {error}"))?,
            expires,
            is_disabled: entry.disabled,
        })
    }

    fn tenant_at(&self, now: Timestamp) -> Result<Tenant, ApiKeyRefusal> {
        if self.is_disabled {
            return Err(ApiKeyRefusal::Disabled);
        }
        if self.expires.is_some_and(|expires| now >= expires) {
            return Err(ApiKeyRefusal::Expired);
        }
        Ok(self.tenant.clone())
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |index: usize| char::from(pair[index]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use super::*;
    use crate::tenant::api_keys::NewApiKey;

    fn made(tenant: &str) -> NewApiKey {
        NewApiKey::make(&Tenant::new(tenant).unwrap(), &SystemRandom::new()).unwrap()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn several_keys_of_one_tenant_are_found_and_a_changed_key_is_not() {
        let (one, two, bob) = (made("alice"), made("alice"), made("bob"));
        let table = Table::new([&one.entry, &two.entry, &bob.entry].into_iter()).unwrap();
        for (key, tenant) in [(&one, "alice"), (&two, "alice"), (&bob, "bob")] {
            assert_eq!(table.find(&key.key, at(0)).unwrap().as_str(), tenant);
        }
        let mut wrong = one.key.clone();
        let last = wrong.pop().unwrap();
        wrong.push(if last == 'A' { 'B' } else { 'A' });
        let unknown = Err(ApiKeyRefusal::Unknown);
        assert_eq!(table.find(&wrong, at(0)), unknown);
        assert_eq!(table.find(&made("alice").key, at(0)), unknown);
        assert_eq!(table.find("", at(0)), unknown);
        assert_eq!(table.find(&one.entry.hash, at(0)), unknown);
        // The id of one key with the secret of another.
        let mixed = format!("{}{}", &one.key[..18], &two.key[18..]);
        assert_eq!(table.find(&mixed, at(0)), unknown);
    }

    #[test]
    fn a_key_ends_at_its_expiry_and_when_it_is_disabled() {
        let key = made("alice");
        let mut entry = key.entry.clone();
        entry.expires = Some("1970-01-01T00:00:01Z".to_owned());
        let table = Table::new([&entry].into_iter()).unwrap();
        assert!(table.find(&key.key, at(999)).is_ok());
        assert_eq!(table.find(&key.key, at(1_000)), Err(ApiKeyRefusal::Expired));
        entry.disabled = true;
        let table = Table::new([&entry].into_iter()).unwrap();
        assert_eq!(table.find(&key.key, at(0)), Err(ApiKeyRefusal::Disabled));
    }

    #[test]
    fn an_entry_that_is_not_valid_is_refused_without_its_hash() {
        let good = made("alice").entry;
        let refused = |change: fn(&mut ApiKeyEntry)| {
            let mut entry = good.clone();
            change(&mut entry);
            let error = Table::new([&entry].into_iter()).err().unwrap();
            assert!(!error.contains(&good.hash[7..]), "{error}");
            error
        };
        assert!(refused(|it| it.id = "0123".to_owned()).contains("12 hexadecimal digits"));
        assert!(refused(|it| it.hash = it.hash[7..].to_owned()).contains("sha256:"));
        assert!(refused(|it| it.hash.push('0')).contains("64 hexadecimal digits"));
        assert!(refused(|it| it.tenant.clear()).contains("tenant"));
        assert!(refused(|it| it.expires = Some("soon".to_owned())).contains("expires"));
        let twice = Table::new([&good, &good].into_iter()).err().unwrap();
        assert!(twice.contains("more than once"), "{twice}");
    }
}
