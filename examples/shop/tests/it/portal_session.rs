//! Fixture: a shop with the customer portal, the links that open it, and its users.

use std::fmt::Write as _;

use hapax::signature::{self, Secret, TOLERANCE, Verifier, verify};
use hapax_testkit::{
    clock::system_clock,
    http::{HttpResponse, Received},
    port::free_port,
};
use http::Method;
use serde_json::json;

use crate::shop::{Home, Shop, command_at};

/// The key of the portal.
pub(crate) const PORTAL_KEY: &str = "the portal key of the tests: 0123456789abcdef";
/// The token of an operator of the console.
pub(crate) const OPERATOR: &str = "operator-0123456789";
/// The name of the cookie.
pub(crate) const COOKIE: &str = "hapax_portal";
/// The media type of a form.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Starts a shop that serves the portal to the tenants alice and bob, with one attempt for each
/// delivery.
pub(crate) fn start_portal(home: Home) -> Shop {
    let listen = format!("127.0.0.1:{}", free_port());
    let url = format!("http://{listen}");
    let operator = format!("ops={OPERATOR}");
    let flags = [
        "--no-demo",
        "--token",
        "demo-alice=alice",
        "--token",
        "demo-bob=bob",
        "--console-token",
        &operator,
        "--allow-net",
        "127.0.0.0/8",
        "--webhook-schedule",
        "0s",
        "--portal-url",
        &url,
        "--portal-key",
        PORTAL_KEY,
        "--portal-name",
        "Tea shop",
    ];
    let mut command = command_at(&listen, home.path(), &flags);
    if !home.is_in_a_file() {
        command.args(["--database", &home.database().url()]);
    }
    Shop::spawn(command, home)
}

/// Asks the shop for a link to the portal of a tenant. Returns its path.
pub(crate) async fn link(shop: &Shop, tenant: &str, rights: &str) -> String {
    let asked = json!({"tenant": tenant, "rights": rights, "expires_in": "1h"}).to_string();
    let answer = shop
        .post_as(OPERATOR, "/admin/portal-links", None, &asked)
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let link = answer.json().unwrap()["url"].as_str().unwrap().to_owned();
    let base = shop.url("");
    let path = link.strip_prefix(&base);
    path.unwrap_or_else(|| panic!("{link} is not at {base}"))
        .to_owned()
}

/// A user of the portal.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The cookie with its name, as it is sent.
    pub(crate) cookie: String,
    /// The hidden field of every form.
    pub(crate) seal: String,
}

impl Session {
    /// Opens a link with the right to write.
    pub(crate) async fn open(shop: &Shop, link: &str) -> Self {
        let answer = shop.send(Method::GET, link, &[], "").await;
        let to = answer.header("location");
        assert_eq!(
            (answer.status, to),
            (303, Some("/portal")),
            "{}",
            answer.text()
        );
        let set = answer.header("set-cookie").unwrap().to_owned();
        for attribute in ["HttpOnly", "Path=/portal", "SameSite=Lax"] {
            assert!(set.contains(attribute), "{set}");
        }
        let mut session = Self {
            cookie: set.split(';').next().unwrap().to_owned(),
            seal: String::new(),
        };
        let form = session.get(shop, "/portal/endpoints/new").await;
        assert_eq!(form.status, 200, "{}", form.text());
        session.seal = field(&form.text(), "seal").unwrap();
        session
    }

    /// The token in the cookie.
    pub(crate) fn token(&self) -> &str {
        self.cookie.split_once('=').unwrap().1
    }

    /// Requests a page.
    pub(crate) async fn get(&self, shop: &Shop, path: &str) -> HttpResponse {
        let headers = [("cookie", self.cookie.as_str())];
        shop.send(Method::GET, path, &headers, "").await
    }

    /// Sends a form as a page of the portal does.
    pub(crate) async fn post(
        &self,
        shop: &Shop,
        path: &str,
        fields: &[(&str, &str)],
    ) -> HttpResponse {
        let seal = [("seal", self.seal.as_str())];
        let body = form(&[&seal[..], fields].concat());
        let origin = shop.url("");
        let headers = [
            ("cookie", self.cookie.as_str()),
            ("origin", origin.as_str()),
            ("content-type", FORM),
        ];
        shop.send(Method::POST, path, &headers, &body).await
    }
}

/// The body of a form with these fields.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let mut body = String::new();
    for (name, value) in fields {
        let separator = if body.is_empty() { "" } else { "&" };
        let _ = write!(body, "{separator}{name}={}", encoded(value));
    }
    body
}

/// A value with each byte that is neither a letter nor a digit percent-encoded.
pub(crate) fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// The value of the first input of a page with this name.
pub(crate) fn field(page: &str, name: &str) -> Option<String> {
    let named = format!("name=\"{name}\"");
    let inputs = page.split("<input").skip(1);
    let mut tags = inputs.filter_map(|rest| rest.split('>').next());
    let tag = tags.find(|tag| tag.contains(&named))?;
    let (_, value) = tag.split_once("value=\"")?;
    let value = value.split('"').next()?;
    Some(value.replace("&quot;", "\"").replace("&amp;", "&"))
}

/// The text of the element that shows a signing secret.
pub(crate) fn shown_secret(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("id=\"secret\"")?;
    let at = rest.find("whsec_")?;
    let ends = |it: char| !(it.is_ascii_alphanumeric() || "_+/=-".contains(it));
    rest[at..].split(ends).next().map(str::to_owned)
}

/// Whether a webhook was signed with this secret.
pub(crate) fn is_signed(received: &Received, secret: &str) -> bool {
    let header = |name: &str| received.header(name).unwrap();
    let signed = signature::Received {
        id: header(signature::ID_HEADER),
        timestamp: header(signature::TIMESTAMP_HEADER),
        signature: header(signature::SIGNATURE_HEADER),
        body: &received.body,
    };
    let keys = [Verifier::V1(secret.parse::<Secret>().unwrap())];
    verify(&signed, &keys, system_clock().now(), TOLERANCE).is_ok()
}

/// The text of a webhook.
pub(crate) fn text(received: &Received) -> String {
    String::from_utf8_lossy(&received.body).into_owned()
}
