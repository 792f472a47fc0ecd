//! Preparation: what is checked and computed before the key is claimed.
//!
//! A request that is refused here has no effect and leaves its key free: a key that is missing or
//! malformed, and a JSON body that is malformed or has a member twice.

use crate::{
    bugs::Bug,
    fingerprint::Parts,
    http::{Head, Request},
    json::{Duplicates, Json},
    key::{self, InvalidKey},
    node::{Node, Principal},
    profile::KeyPolicy,
    response::Response,
    route::Operation,
    store::Scope,
};

/// A request that passed the checks that come before the key is claimed.
pub(crate) struct Prepared {
    /// `None` if the request runs unprotected.
    pub(crate) scope: Option<Scope>,
    pub(crate) fingerprint: String,
    /// `None` if the body is not JSON.
    pub(crate) payload: Option<Json>,
    pub(crate) is_json: bool,
}

/// Checks a request and fingerprints it, without a look at the store.
pub(crate) fn prepare(
    node: &Node,
    operation: &Operation,
    principal: &Principal,
    request: &Request,
) -> Result<Prepared, Response> {
    let head = &request.head;
    let key = key_of(node, head)?;
    let content_type = head.lower_case("content-type").unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    let is_json = content_type == "application/json" || content_type.ends_with("+json");
    let duplicates = if node.bug == Some(Bug::FingerprintFirstDuplicateMember) {
        Duplicates::Allowed
    } else {
        Duplicates::Refused
    };
    let payload = match Json::parse(&request.body, duplicates) {
        Ok(payload) => Some(payload),
        // Only with the bug: the request does not get here otherwise.
        Err(_) if request.is_cut => {
            let amount = Json::Number("1".to_owned());
            Some(Json::Object(vec![("amount".to_owned(), amount)]))
        }
        Err(wrong) if is_json => return Err(Response::problem(400, "VALIDATION.json", &wrong)),
        Err(_) => None,
    };
    let parts = Parts {
        operation: operation.name,
        path: &head.path,
        query: &head.query,
        content_type,
        body: &request.body,
        json: payload.as_ref().filter(|_| !request.is_cut),
    };
    Ok(Prepared {
        scope: key.map(|key| scope(node, operation, principal, head, key)),
        fingerprint: parts.fingerprint(node.rules.equality, node.bug),
        payload,
        is_json,
    })
}

/// The key of a request, as far as the profile demands or allows one.
pub(crate) fn key_of(node: &Node, head: &Head) -> Result<Option<String>, Response> {
    if node.bug == Some(Bug::KeyIgnored) {
        return Ok(None);
    }
    let codes = node.rules.codes;
    let values = head.values("idempotency-key");
    let key = key::parse(&values, node.rules.key, node.bug)
        .map_err(|InvalidKey(wrong)| Response::problem(400, codes.invalid, wrong))?;
    let is_required = match node.bug {
        Some(Bug::MissingAccepted) => false,
        Some(Bug::MissingRefused) => true,
        _ => node.rules.key == KeyPolicy::Required,
    };
    if key.is_none() && is_required {
        let detail = "the header Idempotency-Key is required";
        return Err(Response::problem(400, codes.missing, detail));
    }
    Ok(key)
}

/// Where a key is unique: per principal and operation.
pub(crate) fn scope(
    node: &Node,
    operation: &Operation,
    principal: &Principal,
    head: &Head,
    key: String,
) -> Scope {
    Scope {
        node: match node.bug {
            Some(Bug::SecondNodeForgets) => node.number,
            _ => 0,
        },
        principal: match node.bug {
            Some(Bug::ScopeWithoutPrincipal) => String::new(),
            Some(Bug::ScopeIncludesCredential) => principal.token.clone(),
            _ => principal.name.to_owned(),
        },
        operation: match node.bug {
            Some(Bug::ScopeWithoutOperation) => String::new(),
            Some(Bug::ScopeIncludesPath) => format!("{} {}", head.method, head.path),
            _ => operation.name.to_owned(),
        },
        key,
    }
}
