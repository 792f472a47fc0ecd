//! An attempt of alice to reach what is bob's: a request, and what the response has to be.

use std::time::Duration;

use hapax_testkit::{
    http::HttpResponse,
    wait::{eventually, pace},
};
use http::Method;

use super::scene::{ABSENT_ENDPOINT, ABSENT_EVENT, Scene};
use crate::{
    portal_session::{FORM, Session, encoded, form},
    shop::{PATIENCE, Shop},
};

/// Stands for the version of bob's endpoint in the form of an attempt.
pub(super) const VERSION: &str = "VERSION";
/// The pause before a request that was one too many is sent again.
const REFUSED: Duration = Duration::from_millis(200);
/// The headers that differ between two responses to the same request.
const OWN_HEADERS: [&str; 3] = ["date", "x-request-id", "content-length"];

/// A request that must reach nothing of bob's.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    name: &'static str,
    method: Method,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: String,
    statuses: &'static [u16],
    is_like_absent: bool,
    is_bobs: bool,
}

impl Attempt {
    /// A request for a page with alice's cookie, which is answered with 404.
    pub(super) fn get(scene: &Scene, name: &'static str, path: impl Into<String>) -> Self {
        Self {
            name,
            method: Method::GET,
            path: path.into(),
            headers: vec![("cookie", scene.alice.cookie.clone())],
            body: String::new(),
            statuses: &[404],
            is_like_absent: false,
            is_bobs: false,
        }
    }

    /// A form with alice's cookie and seal, which is answered with 404.
    pub(super) fn post(
        scene: &Scene,
        name: &'static str,
        path: impl Into<String>,
        fields: &[(&str, &str)],
    ) -> Self {
        let seal = [("seal", scene.alice.seal.as_str())];
        Self::bare(scene, name, path, &[&seal[..], fields].concat())
    }

    /// A form with alice's cookie and without her seal, which is answered with 403.
    pub(super) fn unsealed(
        scene: &Scene,
        name: &'static str,
        path: impl Into<String>,
        fields: &[(&str, &str)],
    ) -> Self {
        Self::bare(scene, name, path, fields).answered(&[403])
    }

    fn bare(
        scene: &Scene,
        name: &'static str,
        path: impl Into<String>,
        fields: &[(&str, &str)],
    ) -> Self {
        let mut attempt = Self::get(scene, name, path);
        attempt.method = Method::POST;
        attempt.headers.push(("origin", scene.shop.url("")));
        attempt.headers.push(("content-type", FORM.to_owned()));
        attempt.body = form(fields);
        attempt
    }

    /// Adds a header, or replaces the one with this name.
    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(it, _)| *it != name);
        self.also(name, value)
    }

    /// Adds a header, also if there is one with this name.
    pub(super) fn also(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Leaves a header out.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(it, _)| *it != name);
        self
    }

    /// Sends another method.
    pub(super) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sends another body.
    pub(super) fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }

    /// Expects one of these statuses.
    pub(super) fn answered(mut self, statuses: &'static [u16]) -> Self {
        self.statuses = statuses;
        self
    }

    /// Expects the response that ids get which do not exist.
    pub(super) fn like_absent(mut self) -> Self {
        self.is_like_absent = true;
        self
    }

    /// Expects the response that ids get which do not exist, and that bob's session succeeds with the
    /// same request.
    pub(super) fn bobs(mut self) -> Self {
        self.is_bobs = true;
        self.like_absent()
    }

    /// The name.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the same request succeeds in bob's session.
    pub(super) fn is_bobs(&self) -> bool {
        self.is_bobs
    }

    /// Sends the request, and checks its response.
    pub(super) async fn check(&self, scene: &Scene) {
        let request = self.versioned(&scene.bobs.version);
        let answer = request.send(&scene.shop).await;
        let (name, shown) = (self.name, shown(&answer));
        assert!(
            self.statuses.contains(&answer.status),
            "{name}: {self:?}: {shown}"
        );
        let lower = shown.to_lowercase();
        for (what, secret) in scene.secrets() {
            let secret = secret.to_lowercase();
            assert!(!lower.contains(&secret), "{name} shows {what}: {shown}");
        }
        if self.is_like_absent {
            let absent = request.of_absent(scene).send(&scene.shop).await;
            assert_eq!(
                comparable(&answer, scene),
                comparable(&absent, scene),
                "{name}: what exists is answered differently"
            );
        }
    }

    /// Sends the request in bob's session, and checks that it succeeds.
    pub(super) async fn check_of_bob(&self, scene: &Scene, bob: &Session, version: &str) {
        let own = |text: &str| {
            text.replace(&scene.alice.cookie, &bob.cookie).replace(
                &form(&[("seal", scene.alice.seal.as_str())]),
                &form(&[("seal", bob.seal.as_str())]),
            )
        };
        let mut request = self.versioned(version);
        request.body = own(&request.body);
        for (_, value) in &mut request.headers {
            *value = own(value);
        }
        let answer = request.send(&scene.shop).await;
        let (name, shown) = (self.name, shown(&answer));
        assert!(
            matches!(answer.status, 200 | 303),
            "control of {name}: {request:?}: {shown}"
        );
        if self.method == Method::GET {
            let own = scene.secrets();
            let has_own = own.iter().any(|(_, own)| shown.contains(own));
            assert!(has_own, "control of {name} shows nothing of bob's: {shown}");
        }
    }

    fn versioned(&self, version: &str) -> Self {
        let mut request = self.clone();
        request.body = request.body.replace(VERSION, version);
        request
    }

    /// The same request for ids that do not exist.
    fn of_absent(&self, scene: &Scene) -> Self {
        let ids = [
            (&scene.bobs.endpoint, ABSENT_ENDPOINT),
            (&scene.bobs.delivered, ABSENT_EVENT),
            (&scene.bobs.failed, ABSENT_EVENT),
        ];
        // A form has its values encoded.
        let absent = |text: &str| {
            ids.iter().fold(text.to_owned(), |text, (own, absent)| {
                let text = text.replace(own.as_str(), absent);
                text.replace(&encoded(own), &encoded(absent))
            })
        };
        let mut request = self.clone();
        request.path = absent(&request.path);
        request.body = absent(&request.body);
        assert_ne!(
            (&request.path, &request.body),
            (&self.path, &self.body),
            "{}: the attempt has no id of bob's",
            self.name
        );
        request
    }

    /// Sends the request. If it is refused because the tenant has sent too many, it is sent again.
    async fn send(&self, shop: &Shop) -> HttpResponse {
        let headers = self.headers.iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let mut answer = None;
        eventually(PATIENCE, async || {
            let method = self.method.clone();
            let sent = shop.send(method, &self.path, &headers, &self.body).await;
            let is_refused = sent.status == 429;
            if is_refused {
                pace(REFUSED).await;
            }
            answer = Some(sent);
            !is_refused
        })
        .await;
        answer.unwrap()
    }
}

/// The headers and the body of a response, in which a secret must not be.
fn shown(answer: &HttpResponse) -> String {
    let body = answer.text();
    format!("{} {:?}\n{body}", answer.status, answer.headers)
}

/// The parts of a response that may depend on nothing but the request's form.
fn comparable(answer: &HttpResponse, scene: &Scene) -> (u16, Vec<(String, String)>, String) {
    let request_id = answer.header("x-request-id").unwrap_or("no request id");
    let ids = [
        (request_id, "REQUEST"),
        (scene.bobs.endpoint.as_str(), "ENDPOINT"),
        (ABSENT_ENDPOINT, "ENDPOINT"),
        (scene.bobs.delivered.as_str(), "EVENT"),
        (scene.bobs.failed.as_str(), "EVENT"),
        (ABSENT_EVENT, "EVENT"),
    ];
    let same = |text: &str| {
        let text = text.to_owned();
        ids.iter()
            .fold(text, |text, (id, word)| text.replace(id, word))
    };
    let headers = answer.headers.iter();
    let mut headers: Vec<_> = headers
        .filter(|(name, _)| !OWN_HEADERS.contains(&name.as_str()))
        .map(|(name, value)| {
            (
                name.to_string(),
                same(&String::from_utf8_lossy(value.as_bytes())),
            )
        })
        .collect();
    headers.sort();
    (answer.status, headers, same(&answer.text()))
}
