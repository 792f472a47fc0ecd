//! Encoding of a request that is stored with its key, so that it can be resumed without its client.
//!
//! The encoding contains version, method, path with query, headers and body, each preceded by its
//! length. Credentials are never stored: a resumed request is identified by the tenant of the key.
//! A body that was written to a file is too long to be stored; such a request waits for its
//! client's retry.

use axum::{body::Body, extract::Request};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use hapax::{key::Scope, limits::REQUEST_BYTES_MAX};
use http::{
    HeaderName, HeaderValue, Method, Uri,
    header::{
        AUTHORIZATION, CONTENT_TYPE, COOKIE, IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
        PROXY_AUTHORIZATION,
    },
    request::Parts,
};

use crate::{
    body::Kept,
    header::{IDEMPOTENCY_KEY, echo},
};

/// The version of the encoding.
const VERSION: u8 = 1;
/// Headers that are stored for every request: the type of its body and its preconditions (both are
/// part of its fingerprint), and the headers of its events.
const ALWAYS: [HeaderName; 7] = [
    CONTENT_TYPE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-correlation-id"),
];

/// Whether a header is a credential.
pub(crate) fn is_credential(name: &HeaderName) -> bool {
    [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name)
}

/// Encodes a request. Returns `None` if it is too long.
pub(crate) fn encode(parts: &Parts, uri: &Uri, body: &Kept, more: &[HeaderName]) -> Option<Bytes> {
    let body = body.bytes()?;
    // Each name once: a header that is stored twice would be sent twice.
    let more = more.iter().filter(|name| !ALWAYS.contains(name)).cloned();
    let names: Vec<_> = ALWAYS.into_iter().chain(more).collect();
    let sent = |name| parts.headers.get_all(name).iter().map(move |it| (name, it));
    let headers: Vec<_> = names.iter().flat_map(sent).collect();
    let mut kept = BytesMut::with_capacity(body.len() + 256);
    kept.put_u8(VERSION);
    put(&mut kept, parts.method.as_str().as_bytes())?;
    put(&mut kept, uri.path().as_bytes())?;
    put(&mut kept, uri.query().unwrap_or_default().as_bytes())?;
    kept.put_u32(u32::try_from(headers.len()).ok()?);
    for (name, value) in headers {
        put(&mut kept, name.as_str().as_bytes())?;
        put(&mut kept, value.as_bytes())?;
    }
    put(&mut kept, body)?;
    (kept.len() <= REQUEST_BYTES_MAX).then(|| kept.freeze())
}

/// Decodes a request, with the key of `scope`. Returns `None` if the encoding is not valid.
pub(crate) fn decode(mut kept: Bytes, scope: &Scope) -> Option<Request> {
    if kept.try_get_u8().ok()? != VERSION {
        return None;
    }
    let method = Method::from_bytes(&take(&mut kept)?).ok()?;
    let (path, query) = (take(&mut kept)?, take(&mut kept)?);
    let mut uri = String::from_utf8(path.into()).ok()?;
    if !query.is_empty() {
        uri = format!("{uri}?{}", std::str::from_utf8(&query).ok()?);
    }
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method;
    *request.uri_mut() = uri.parse().ok()?;
    for _ in 0..kept.try_get_u32().ok()? {
        let name = HeaderName::from_bytes(&take(&mut kept)?).ok()?;
        let value = HeaderValue::from_maybe_shared(take(&mut kept)?).ok()?;
        request.headers_mut().append(name, value);
    }
    let headers = request.headers_mut();
    headers.insert(IDEMPOTENCY_KEY, echo(&scope.key));
    *request.body_mut() = Body::from(take(&mut kept)?);
    kept.is_empty().then_some(request)
}

fn put(kept: &mut BytesMut, part: &[u8]) -> Option<()> {
    kept.put_u32(u32::try_from(part.len()).ok()?);
    kept.put_slice(part);
    Some(())
}

fn take(kept: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(kept.try_get_u32().ok()?).ok()?;
    (length <= kept.len()).then(|| kept.split_to(length))
}

#[cfg(test)]
mod tests {
    use hapax::key::{IdempotencyKey, Operation, Tenant};
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_request_reads_back_as_it_was_kept_but_for_who_sent_it() {
        let body: Bytes = (0..=255).collect();
        let (parts, ()) = Request::post("/pay/%20x?a=1&b=%2F")
            .header("content-type", "application/json")
            .header("authorization", "Bearer secret")
            .header("cookie", "session=secret")
            .header("x-mine", "one")
            .header("x-mine", &b"\xff two"[..])
            .header("x-other", "not named")
            .body(())
            .unwrap()
            .into_parts();
        let named = [HeaderName::from_static("x-mine")];
        let kept = encode(&parts, &parts.uri, &Kept::Memory(body.clone()), &named).unwrap();
        assert!(!kept.windows(6).any(|bytes| bytes == b"secret"));
        let (read, read_body) = decode(kept, &scope()).unwrap().into_parts();
        assert_eq!((&read.method, &read.uri), (&parts.method, &parts.uri));
        assert_eq!(read.headers["idempotency-key"], "\"a b\"");
        assert_eq!(read.headers["content-type"], "application/json");
        let mine: Vec<_> = read.headers.get_all("x-mine").iter().collect();
        assert_eq!(
            mine,
            parts.headers.get_all("x-mine").iter().collect::<Vec<_>>()
        );
        assert_eq!(read.headers.len(), 4);
        assert_eq!(read_body.collect().await.unwrap().to_bytes(), body);
    }

    #[test]
    fn a_request_that_is_cut_short_or_of_another_version_is_not_read() {
        let (parts, ()) = Request::post("/pay").body(()).unwrap().into_parts();
        let body = Kept::Memory(Bytes::from_static(b"{}"));
        let kept = encode(&parts, &parts.uri, &body, &[]).unwrap();
        assert!(decode(kept.clone(), &scope()).is_some());
        for length in 0..kept.len() {
            assert!(decode(kept.slice(..length), &scope()).is_none(), "{length}");
        }
        let mut longer = kept.to_vec();
        longer.push(0);
        assert!(decode(longer.into(), &scope()).is_none());
        let mut other = kept.to_vec();
        other[0] = 2;
        assert!(decode(other.into(), &scope()).is_none());
    }

    #[test]
    fn a_request_that_is_too_long_is_not_kept() {
        let (parts, ()) = Request::post("/pay").body(()).unwrap().into_parts();
        let kept = |length| {
            let body = Kept::Memory(vec![0; length].into());
            encode(&parts, &parts.uri, &body, &[])
        };
        assert!(kept(REQUEST_BYTES_MAX - 1024).is_some());
        assert!(kept(REQUEST_BYTES_MAX).is_none());
    }

    fn scope() -> Scope {
        Scope {
            tenant: Tenant::new("alice").unwrap(),
            operation: Operation::new("POST /pay").unwrap(),
            key: IdempotencyKey::new("a b").unwrap(),
        }
    }
}
