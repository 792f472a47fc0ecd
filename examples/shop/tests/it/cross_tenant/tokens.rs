//! Attempts with cookies and tokens that are not a session of bob.

use serde_json::{Value, json};

use super::{attempt::Attempt, forged::Token, scene::Scene};
use crate::portal_session::{COOKIE, PORTAL_KEY};

/// A time in the past, in seconds since 1970.
const PAST: i64 = 1_700_000_000;
/// The status of a request with a token that is not valid.
const REFUSED: &[u16] = &[401];

/// Cookies of alice in other forms and in other places.
pub(super) fn cookies(scene: &Scene) -> Vec<Attempt> {
    let (token, bob) = (scene.alice.token(), scene.bob.token());
    let own = Token::read(token);
    let expired = own
        .with_claims(|it| {
            it["sub"] = json!("bob");
            it["exp"] = json!(PAST);
        })
        .signed(PORTAL_KEY.as_bytes());
    let page = format!("/portal/endpoints/{}", scene.bobs.endpoint);
    let with = |name, cookie: String| {
        Attempt::get(scene, name, page.clone())
            .header("cookie", cookie)
            .answered(&[401, 404])
    };
    let half = &bob[..bob.len() / 2];
    vec![
        Attempt::get(scene, "no cookie", page.clone())
            .without("cookie")
            .answered(REFUSED),
        with("an empty cookie", format!("{COOKIE}=")).answered(REFUSED),
        with("a renamed cookie", format!("portal={token}")).answered(REFUSED),
        with("a cookie of the console", format!("hapax_console={token}")).answered(REFUSED),
        with("a name in upper case", format!("HAPAX_PORTAL={token}")).answered(REFUSED),
        with("a cookie with a prefix", format!("__Host-{COOKIE}={token}")).answered(REFUSED),
        with("a quoted cookie", format!("{COOKIE}=\"{token}\"")),
        with(
            "two cookies",
            format!("{COOKIE}={token}; {COOKIE}={expired}"),
        ),
        with(
            "two cookies, the other first",
            format!("{COOKIE}={expired}; {COOKIE}={token}"),
        ),
        with("two headers", format!("{COOKIE}={token}"))
            .also("cookie", format!("{COOKIE}={expired}")),
        with("joined cookies", format!("{COOKIE}={token}{expired}")).answered(REFUSED),
        with(
            "cookies joined by a comma",
            format!("{COOKIE}={token},{COOKIE}={expired}"),
        ),
        with("bob's expired session", format!("{COOKIE}={expired}")).answered(REFUSED),
        with("half of bob's token", format!("{COOKIE}={half}")).answered(REFUSED),
        with(
            "her seal as a cookie",
            format!("{COOKIE}={}", scene.alice.seal),
        )
        .answered(REFUSED),
        with("the name of bob", format!("{COOKIE}=bob")).answered(REFUSED),
        with("a long cookie", format!("{COOKIE}={}", "A".repeat(4_000))).answered(REFUSED),
        Attempt::get(
            scene,
            "a token in the query",
            format!("{page}?token={token}"),
        )
        .without("cookie")
        .answered(REFUSED),
        Attempt::get(scene, "a token in a header", page.clone())
            .without("cookie")
            .also("authorization", format!("Bearer {token}"))
            .answered(REFUSED),
    ]
}

/// Altered tokens. Each is sent as a cookie, and as the token of a link.
pub(super) fn altered(scene: &Scene) -> Vec<Attempt> {
    let page = format!("/portal/endpoints/{}", scene.bobs.endpoint);
    let attempts = tokens(scene).into_iter().flat_map(|(link, cookie, token)| {
        let opened = Attempt::get(scene, link, format!("/portal/open?token={token}"))
            .without("cookie")
            .answered(&[400, 401]);
        let shown = Attempt::get(scene, cookie, page.clone())
            .header("cookie", format!("{COOKIE}={token}"))
            .answered(REFUSED);
        [opened, shown]
    });
    attempts.collect()
}

/// A token with its names as a link and as a cookie.
type Named = (&'static str, &'static str, String);

/// The names and the text of a token.
macro_rules! token {
    ($name:literal, $token:expr) => {
        (concat!("link: ", $name), concat!("cookie: ", $name), $token)
    };
}

fn tokens(scene: &Scene) -> Vec<Named> {
    let own = Token::read(scene.alice.token());
    let bob = own.with_claims(to_bob);
    let key = PORTAL_KEY.as_bytes();
    let none = |alg: &str| bob.with_header(&json!({"alg": alg, "typ": "JWT"}).to_string());
    let header = |header: Value| bob.with_header(&header.to_string()).signed(b"");
    let duplicate = own.claims.replacen('{', "{\"sub\":\"bob\",", 1);
    let mut named = vec![
        token!("bob as the tenant, her signature", bob.with_its_signature()),
        token!(
            "bob as a second tenant",
            own.with_raw_claims(duplicate).with_its_signature()
        ),
        token!("algorithm none", format!("{}.", none("none").unsigned())),
        token!("algorithm none, two parts", none("none").unsigned()),
        token!(
            "algorithm nOnE, her signature",
            none("nOnE").with_its_signature()
        ),
        token!("algorithm none, signed", none("none").signed(key)),
        token!("algorithm HS512", none("HS512").signed(key)),
        token!("algorithm RS256", none("RS256").signed(key)),
        token!(
            "another key",
            bob.signed(b"another key of the same length: 0123456789abc")
        ),
        token!("an empty key", bob.signed(b"")),
        token!("the name of the tenant as the key", bob.signed(b"bob")),
        token!("no signature", format!("{}.", bob.unsigned())),
        token!("two parts", bob.unsigned()),
        token!("four parts", format!("{}.x", bob.with_its_signature())),
        token!("five parts", format!("{}..x.y", bob.with_its_signature())),
        token!("a longer signature", format!("{}A", bob.signed(b"x"))),
        token!(
            "a key that is a file",
            header(json!({"alg": "HS256", "typ": "JWT", "kid": "../../../../dev/null"}))
        ),
        token!(
            "a key of SQL",
            header(json!({"alg": "HS256", "typ": "JWT", "kid": "x' UNION SELECT '"}))
        ),
        token!(
            "a key in the header",
            header(json!({"alg": "HS256", "typ": "JWT", "jwk": {"kty": "oct", "k": ""}}))
        ),
        token!(
            "the URL of a key",
            header(json!({"alg": "HS256", "typ": "JWT", "jku": "http://127.0.0.1:9/jwks"}))
        ),
    ];
    named.extend(signed_by_the_key(&own, &bob));
    named
}

/// Tokens with a valid signature and claims that are not those of a session.
fn signed_by_the_key(own: &Token, bob: &Token) -> Vec<Named> {
    let key = PORTAL_KEY.as_bytes();
    let header = bob.with_header(&json!({"typ": "JWT", "alg": "HS256", "kid": "1"}).to_string());
    let with = |name: &str, value: Value| bob.with_claims(|it| it[name] = value).signed(key);
    let without = |name: &str| {
        let remove = |it: &mut Value| {
            it.as_object_mut().unwrap().remove(name);
        };
        bob.with_claims(remove).signed(key)
    };
    vec![
        token!("expired", with("exp", json!(PAST))),
        token!("expired, as text", with("exp", json!("4102444800"))),
        token!("without an expiry", without("exp")),
        token!("without an audience", without("aud")),
        token!("another audience", with("aud", json!("hapax-poll"))),
        token!("without a tenant", without("sub")),
        token!("two tenants", with("sub", json!(["alice", "bob"]))),
        token!("an empty tenant", with("sub", json!(""))),
        token!("unknown rights", with("rights", json!("admin"))),
        token!("another header", header.signed(key)),
        token!("a later expiry, her signature", {
            let later = |it: &mut Value| it["exp"] = json!(4_102_444_800_i64);
            own.with_claims(later).with_its_signature()
        }),
        token!("claims that are not an object", {
            bob.with_raw_claims("[\"bob\"]".to_owned()).signed(key)
        }),
    ]
}

fn to_bob(claims: &mut Value) {
    claims["sub"] = json!("bob");
}
