//! Tests of the endpoints of customers and of their portal, in a running shop.

use hapax_testkit::{
    http::{HttpReceiver, HttpReply, HttpResponse},
    wait::eventually,
};
use http::Method;
use serde_json::json;

use crate::shop::{JSON, ORDER, PATIENCE, Shop, Store, on_both_stores};

on_both_stores! {
    an_event_of_a_tenant_reaches_the_endpoint_that_it_added_in_the_portal,
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A browser with the session of a link.
struct Browser<'a> {
    shop: &'a Shop,
    cookie: String,
}

async fn link(shop: &Shop, headers: &[(&str, &str)]) -> HttpResponse {
    let headers = [headers, &[JSON]].concat();
    let body = json!({"tenant": "alice"}).to_string();
    let path = "/admin/portal-links";
    shop.send(Method::POST, path, &headers, &body).await
}

impl<'a> Browser<'a> {
    async fn open(shop: &'a Shop) -> Self {
        let answer = link(shop, &[]).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let link = answer.json().unwrap();
        let (base, path) = link["url"].as_str().unwrap().split_at(shop.url("").len());
        assert_eq!(base, shop.url(""));
        let opened = shop.send(Method::GET, path, &[], "").await;
        let header = opened.header("set-cookie").unwrap();
        let (cookie, _) = header.split_once(';').unwrap();
        let cookie = cookie.to_owned();
        Self { shop, cookie }
    }

    async fn page(&self, path: &str) -> String {
        let headers = [("cookie", self.cookie.as_str())];
        let answer = self.shop.send(Method::GET, path, &headers, "").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    async fn post(&self, path: &str, form: &str) -> HttpResponse {
        let seal = field(&self.page("/portal/endpoints/new").await, "seal");
        let form = format!("seal={seal}&{form}");
        let origin = self.shop.url("");
        let headers = [("cookie", self.cookie.as_str()), ("origin", &origin), FORM];
        self.shop.send(Method::POST, path, &headers, &form).await
    }
}

/// The value of a hidden field.
fn field(page: &str, name: &str) -> String {
    let (_, rest) = page
        .split_once(&format!("name=\"{name}\" value=\""))
        .unwrap_or_else(|| panic!("no field {name}: {page}"));
    rest.split_once('"').unwrap().0.to_owned()
}

async fn an_event_of_a_tenant_reaches_the_endpoint_that_it_added_in_the_portal(on: Store) {
    let receiver = HttpReceiver::start().await;
    let shop = Shop::start(on, &["--allow-net", "127.0.0.0/8"]).await;
    let alice = Browser::open(&shop).await;
    let types = alice.page("/portal/event-types").await;
    assert!(types.contains("order.created"), "{types}");
    let form = alice.page("/portal/endpoints/new").await;
    assert!(form.contains("value=\"order.created\""), "{form}");
    let nonce = field(&form, "nonce");
    let url = receiver.url("/").replace(':', "%3A").replace('/', "%2F");
    let new = format!("nonce={nonce}&url={url}&type=order.created");
    let created = alice.post("/portal/endpoints", &new).await.text();
    assert!(created.contains("whsec_"), "{created}");
    let again = alice.post("/portal/endpoints", &new).await;
    assert_eq!(again.status, 409, "a form that is sent twice adds one");
    let (_, rest) = created.split_once("/portal/endpoints/ep_").unwrap();
    let path = format!("/portal/endpoints/ep_{}", rest.split_once('"').unwrap().0);

    receiver.reply_next(HttpReply::status(500));
    for (token, key) in [("demo-bob", "1"), ("demo-alice", "2")] {
        let order = shop.post_as(token, "/orders", Some(key), ORDER).await;
        assert_eq!(order.status, 201, "{}", order.text());
    }
    // The first attempt fails, and the second one succeeds.
    let requests = receiver.received_at_least(2).await;
    let (first, second) = (&requests[0], &requests[1]);
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    let deliveries = format!("{path}/deliveries");
    eventually(PATIENCE, async || {
        let page = alice.page(&deliveries).await;
        page.contains(">500<") && page.contains(">200<")
    })
    .await;
    let event = first.header("webhook-id").unwrap();
    let delivery = format!("{}/{event}", path.replace("/endpoints/", "/deliveries/"));
    let page = alice.page(&delivery).await;
    assert!(
        page.contains("Attempt 1") && page.contains("Attempt 2"),
        "{page}"
    );
    assert!(page.contains("webhook-signature: "), "{page}");
    let replay = format!("event_id={event}");
    let replayed = alice.post(&format!("{path}/replay"), &replay).await;
    assert_eq!(replayed.status, 303);
    let requests = receiver.received_at_least(3).await;
    assert_eq!(requests.len(), 3, "an event of bob was sent to alice");
    assert_eq!(requests[2].header("webhook-id"), Some(event));
    for name in ["portal.key", "endpoints.key"] {
        let secret = std::fs::read_to_string(shop.file(name)).unwrap();
        assert!(!shop.log().contains(secret.trim()), "{name} is printed");
    }
}

#[tokio::test]
async fn a_link_is_made_for_operators_alone_and_without_a_url_there_is_no_portal() {
    let token = ["--console-token", "ops=operator-0123456789"];
    let shop = Shop::start(Store::Sqlite, &token).await;
    let bearer = [("authorization", "Bearer operator-0123456789")];
    assert_eq!(link(&shop, &bearer).await.status, 201);
    for wrong in ["Bearer demo-alice", "Bearer ", "operator-0123456789"] {
        let answer = link(&shop, &[("authorization", wrong)]).await;
        assert_eq!(answer.status, 401, "{wrong}");
    }
    assert_eq!(link(&shop, &[]).await.status, 401);

    let shop = Shop::start(Store::Sqlite, &[]).await;
    for header in [
        ("origin", "http://evil.example"),
        ("x-forwarded-for", "192.0.2.1"),
        ("host", "evil.example"),
    ] {
        assert_eq!(link(&shop, &[header]).await.status, 403, "{header:?}");
    }

    let own = ["--no-demo", "--token", "demo-alice=alice"];
    let shop = Shop::start(Store::Sqlite, &own).await;
    let portal = shop.send(Method::GET, "/portal", &[], "").await;
    assert_eq!((portal.status, link(&shop, &[]).await.status), (404, 404));
}
