//! A polling endpoint, as the store has it.

use super::{cursor::CursorSecret, token::TokenHash};
use crate::{delivery::Frontier, event::Event, key::Tenant, relay::Pattern};

/// Maximum length of the name of a polling endpoint in bytes.
pub const ENDPOINT_NAME_BYTES_MAX: usize = 64;

/// A polling endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The name, which is part of the URL.
    pub name: String,
    /// The only tenant whose events it receives; `None` for the events of all tenants and of none.
    pub tenant: Option<Tenant>,
    /// The patterns of event types. An event that matches one of them is received.
    pub patterns: Vec<Pattern>,
    /// The hash of the token.
    pub token: TokenHash,
    /// The hashes of the previous tokens that are still valid.
    pub old_tokens: Vec<TokenHash>,
    /// The secret of its cursors. It also tells the endpoint from a removed one of the same name.
    pub secret: CursorSecret,
    /// The committed position.
    pub committed: Frontier,
}

impl Endpoint {
    /// Whether this endpoint receives an event.
    pub fn takes(&self, event: &Event) -> bool {
        let may_have = match &self.tenant {
            None => true,
            only => event.tenant == *only,
        };
        may_have
            && self
                .patterns
                .iter()
                .any(|pattern| pattern.matches(&event.kind))
    }

    /// Whether a token with this hash opens the endpoint. All of its tokens are compared completely.
    pub(super) fn opens_with(&self, token: &TokenHash) -> bool {
        let is_new = self.token.matches(token);
        let old = self.old_tokens.iter();
        old.fold(is_new, |opens, old| opens | old.matches(token))
    }

    /// Whether `other` is this endpoint, and not another one that was created under its name.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.secret.as_bytes() == other.secret.as_bytes()
    }
}

/// Whether a text is the name of a polling endpoint: 1 to 64 characters of `A-Z a-z 0-9 _ - .`,
/// beginning with a letter or a digit.
pub fn is_endpoint_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=ENDPOINT_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_part_of_a_url_as_it_is() {
        for name in ["a", "acme.orders_2-x", &"x".repeat(64)] {
            assert!(is_endpoint_name(name), "{name}");
        }
        for name in [
            "",
            "-a",
            ".",
            "..",
            "a/b",
            "a b",
            "ä",
            "a\0",
            &"x".repeat(65),
        ] {
            assert!(!is_endpoint_name(name), "{name}");
        }
    }
}
