//! The key in the header of a request, in the form in which the service has received it first.
//!
//! `"k"` and `k` are one key of the gateway. They may be two keys of a service that compares the text
//! of the header, so every attempt has the form of the first one.

use hapax::key::{KeyForm, parse_header};
use hapax_http::header::IDEMPOTENCY_KEY;
use http::{HeaderMap, HeaderValue};

/// The form of the key of a request; `None` if its header has no key.
pub(super) fn form(headers: &HeaderMap) -> Option<KeyForm> {
    let sent = headers.get(IDEMPOTENCY_KEY)?.as_bytes();
    parse_header(sent).is_ok().then(|| KeyForm::of(sent))
}

/// Writes the key of a request in this form. Parameters, which do not belong to the key, are removed.
/// A header without a key stays as it is.
pub(super) fn rewrite(headers: &mut HeaderMap, form: KeyForm) {
    let sent = headers.get(IDEMPOTENCY_KEY);
    let key = sent.and_then(|sent| parse_header(sent.as_bytes()).ok());
    let text = key.and_then(|key| HeaderValue::from_str(&form.text(&key)).ok());
    if let Some(text) = text {
        headers.insert(IDEMPOTENCY_KEY, text);
    }
}

/// The texts under which the service may know the key of a request: as it has received it in this
/// form, and the key that the text stands for.
pub(super) fn texts(headers: &HeaderMap, form: Option<KeyForm>) -> Vec<String> {
    let sent = headers.get(IDEMPOTENCY_KEY);
    let Some(Ok(key)) = sent.map(|sent| parse_header(sent.as_bytes())) else {
        return Vec::new();
    };
    match form {
        Some(form @ KeyForm::Quoted) => vec![form.text(&key).into_owned(), key.into_owned()],
        Some(KeyForm::Bare) | None => vec![key.into_owned()],
    }
}
