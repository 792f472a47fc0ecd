//! Request smuggling from HTTP/2: fields that a gateway would have to write as HTTP/1.1, and what the
//! service sees of them.

use hapax_testkit::wait::answered;
use serde_json::Value;

use crate::{
    frames::{Ended, Http2},
    gateway::Gateway,
    upstream::Upstream,
    wire::PATIENCE,
};

type Field = (&'static [u8], &'static [u8]);

/// A request whose fields differ from those of a plain one.
struct Case {
    name: &'static str,
    /// Fields instead of the pseudo-header fields.
    instead: Option<&'static [Field]>,
    more: &'static [Field],
    body: Option<&'static [u8]>,
    trailers: &'static [Field],
    /// The length of the body that the service sees, or nothing if it must not see the request.
    forwarded: Option<u64>,
}

const PLAIN: &[Field] = &[
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"a"),
    (b":path", b"/a"),
];

const KEY: &[Field] = &[(b"idempotency-key", b"resets")];

const fn refused(name: &'static str, more: &'static [Field]) -> Case {
    Case {
        name,
        instead: None,
        more,
        body: Some(b"hello"),
        trailers: &[],
        forwarded: None,
    }
}

const fn refused_instead(name: &'static str, instead: &'static [Field]) -> Case {
    Case {
        instead: Some(instead),
        ..refused(name, &[])
    }
}

const fn forwarded(name: &'static str, more: &'static [Field]) -> Case {
    Case {
        forwarded: Some(5),
        ..refused(name, more)
    }
}

const CASES: &[Case] = &[
    forwarded("a request as it should be", &[]),
    forwarded("a length that is right", &[(b"content-length", b"5")]),
    refused("a length that is too long", &[(b"content-length", b"6")]),
    refused("a length that is too short", &[(b"content-length", b"4")]),
    refused("a length of 0 before a body", &[(b"content-length", b"0")]),
    refused("a length with a sign", &[(b"content-length", b"+5")]),
    refused("a length as a list", &[(b"content-length", b"5, 5")]),
    refused(
        "two lengths",
        &[(b"content-length", b"5"), (b"content-length", b"6")],
    ),
    refused("transfer-encoding", &[(b"transfer-encoding", b"chunked")]),
    refused("connection", &[(b"connection", b"close")]),
    refused("keep-alive", &[(b"keep-alive", b"1")]),
    refused("proxy-connection", &[(b"proxy-connection", b"close")]),
    refused("upgrade", &[(b"upgrade", b"h2c")]),
    refused("te that is not trailers", &[(b"te", b"gzip")]),
    forwarded("te trailers", &[(b"te", b"trailers")]),
    refused("a name in capitals", &[(b"X-A", b"b")]),
    refused("a name with a colon", &[(b"x:a", b"b")]),
    refused("a name with a space", &[(b"x a", b"b")]),
    refused("a name with CR and LF", &[(b"x\r\ny", b"b")]),
    refused("an empty name", &[(b"", b"b")]),
    refused("a value with CR and LF", &[(b"x-a", b"b\r\nx-c: d")]),
    refused(
        "a value with a request",
        &[(
            b"x-a",
            b"b\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n",
        )],
    ),
    refused("a value with LF", &[(b"x-a", b"b\nc")]),
    refused("a value with CR", &[(b"x-a", b"b\rc")]),
    refused("a value with NUL", &[(b"x-a", b"b\0c")]),
    refused("a pseudo-header that does not exist", &[(b":x", b"b")]),
    refused("a pseudo-header of a response", &[(b":status", b"200")]),
    refused("a second path after the fields", &[(b":path", b"/b")]),
    refused("a host that differs", &[(b"host", b"b")]),
    refused("two hosts", &[(b"host", b"a"), (b"host", b"b")]),
    refused_instead(
        "a path with a space",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", b"/a HTTP/1.1"),
        ],
    ),
    refused_instead(
        "a path with CR and LF",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", b"/a HTTP/1.1\r\nhost: b\r\n\r\n"),
        ],
    ),
    refused_instead(
        "an empty path",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", b""),
        ],
    ),
    refused_instead(
        "no path",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"a"),
        ],
    ),
    refused_instead(
        "two paths",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", b"/a"),
            (b":path", b"/b"),
        ],
    ),
    refused_instead(
        "a method with a space",
        &[
            (b":method", b"POST /smuggled HTTP/1.1"),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", b"/a"),
        ],
    ),
    refused_instead(
        "an authority with credentials",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"user@a"),
            (b":path", b"/a"),
        ],
    ),
    refused_instead(
        "an authority with CR and LF",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"a\r\nx: y"),
            (b":path", b"/a"),
        ],
    ),
    refused_instead(
        "a path that leaves its folder",
        &[
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", b"/b/../a"),
        ],
    ),
    Case {
        trailers: &[(b"transfer-encoding", b"chunked")],
        ..refused("a coding in the trailers", &[])
    },
    Case {
        // It is dropped, with the other trailers.
        trailers: &[(b":path", b"/b")],
        forwarded: Some(5),
        ..refused("a pseudo-header in the trailers", &[])
    },
    Case {
        body: None,
        ..refused("a length without a body", &[(b"content-length", b"5")])
    },
];

#[tokio::test]
async fn a_request_of_http2_that_cannot_be_written_as_http1_is_refused() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let mut wrong = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        upstream.ask("POST", "/_forget").await;
        let ended = ended(case, &gateway).await;
        // The service has read what was sent before this request.
        let next = gateway.order(&format!("next-{number}"), "").await;
        assert!(next.status < 300, "{}: {}", case.name, next.text());
        let seen = upstream.seen().await;
        let is_next = |it: &&Value| it["target"] == "/orders";
        let others: Vec<&Value> = seen.iter().filter(|it| !is_next(it)).collect();
        let is_right = match case.forwarded {
            None => others.is_empty(),
            Some(length) => {
                let is_same = |it: &&Value| it["target"] == "/a" && it["length"] == length;
                ended == Ended::Answered && others.len() == 1 && others.iter().all(is_same)
            }
        };
        if !is_right {
            wrong.push(format!(
                "{}: {ended:?}, the service has seen {others:?}",
                case.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn ended(case: &Case, gateway: &Gateway) -> Ended {
    let mut connection = Http2::open(gateway.address()).await.unwrap();
    let fields = [case.instead.unwrap_or(PLAIN), case.more].concat();
    let sent = connection.send(1, &fields, case.body, case.trailers).await;
    if sent.is_err() {
        return Ended::Closed;
    }
    answered(PATIENCE, connection.ended(1)).await
}

#[tokio::test]
async fn a_client_that_resets_its_streams_costs_the_service_nothing_twice() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let fields = [PLAIN, KEY].concat();
    for _ in 0..20 {
        let mut connection = Http2::open(gateway.address()).await.unwrap();
        for stream in [1, 3, 5] {
            let sent = connection.send(stream, &fields, Some(b"{}"), &[]).await;
            sent.unwrap();
        }
        // The connection ends with its streams open.
        drop(connection);
    }
    let mut connection = Http2::open(gateway.address()).await.unwrap();
    let sent = connection.send(1, &fields, Some(b"{}"), &[]).await;
    sent.unwrap();
    let ended = answered(PATIENCE, connection.ended(1)).await;
    assert_eq!(ended, Ended::Answered);
    assert!(upstream.lines_of("resets").len() <= 1);
}
