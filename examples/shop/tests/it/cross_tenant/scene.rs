//! A shop with the endpoints of alice and of bob. All that is bob's contains a marker.

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    wait::eventually,
};
use serde_json::json;

use crate::{
    portal_session::{Session, field, link, shown_secret, start_portal, text},
    shop::{Home, PATIENCE, Shop, Store},
};

/// A word in the URL, the description, the types, the filter, the headers, the events and the
/// responses of bob's endpoint.
pub(super) const MARKER: &str = "bobonly";
/// The id of an endpoint that does not exist.
pub(super) const ABSENT_ENDPOINT: &str = "ep_00000000000000000000000000000000";
/// The id of an event that does not exist.
pub(super) const ABSENT_EVENT: &str = "00000000-0000-7000-8000-000000000000";
/// The tables with rows of tenants.
const TABLES: [&str; 4] = [
    "endpoint",
    "endpoint_delivery",
    "endpoint_attempt",
    "audit_log",
];

/// A shop, its two customers, and what belongs to them.
pub(super) struct Scene {
    pub(super) shop: Shop,
    pub(super) alice: Session,
    pub(super) bob: Session,
    pub(super) own: Own,
    pub(super) bobs: Bobs,
    hooks: HttpReceiver,
    bobs_hooks: HttpReceiver,
}

/// The objects of alice.
pub(super) struct Own {
    pub(super) endpoint: String,
    pub(super) event: String,
}

/// The objects of bob.
pub(super) struct Bobs {
    pub(super) endpoint: String,
    /// The version of his endpoint.
    pub(super) version: String,
    pub(super) secret: String,
    /// The nonce of the form that created his endpoint.
    pub(super) nonce: String,
    /// An event that his endpoint has accepted.
    pub(super) delivered: String,
    /// An event that it has refused.
    pub(super) failed: String,
    /// The order of the first event.
    pub(super) order: String,
}

impl Scene {
    pub(super) async fn new(on: Store) -> Self {
        let shop = start_portal(Home::fresh(on).await);
        let (hooks, bobs_hooks) = (HttpReceiver::start().await, HttpReceiver::start().await);
        bobs_hooks.reply(HttpReply::status(200).body(format!("{MARKER}-accepted")));
        bobs_hooks.reply_next(HttpReply::status(500).body(format!("{MARKER}-refused")));
        let alice = Session::open(&shop, &link(&shop, "alice", "write").await).await;
        let bob = Session::open(&shop, &link(&shop, "bob", "write").await).await;
        let own = [("url", hooks.url("/hook")), ("types", "order.*".to_owned())];
        let (endpoint, _, _) = create(&shop, &alice, &own).await;
        let members = [
            ("url", bobs_hooks.url(&format!("/{MARKER}"))),
            ("description", format!("{MARKER} endpoint")),
            ("types", format!("order.* {MARKER}.*")),
            (
                "filter",
                json!({"/customer_id": {"$startsWith": MARKER}}).to_string(),
            ),
            ("headers", format!("x-{MARKER}: {MARKER}-header")),
        ];
        let (bobs, secret, nonce) = create(&shop, &bob, &members).await;
        order(&shop, "demo-bob", "failed").await;
        let failed = event(&bobs_hooks, 0).await;
        let bobs_order = order(&shop, "demo-bob", "delivered").await;
        let delivered = event(&bobs_hooks, 1).await;
        order(&shop, "demo-alice", "own").await;
        let event = event(&hooks, 0).await;
        let mut scene = Self {
            shop,
            alice,
            bob,
            own: Own { endpoint, event },
            bobs: Bobs {
                endpoint: bobs,
                version: String::new(),
                secret,
                nonce,
                delivered,
                failed,
                order: bobs_order,
            },
            hooks,
            bobs_hooks,
        };
        scene.settled().await;
        scene.bobs.version = scene.version().await;
        scene
    }

    /// Waits until the log has all attempts, and nothing about bob's endpoint changes any more. Its second
    /// event goes through the queue, because the first one has failed.
    async fn settled(&self) {
        let home = self.shop.home();
        let path = format!("/portal/endpoints/{}", self.bobs.endpoint);
        eventually(PATIENCE, async || {
            let attempts = home.rows_of("bob", "endpoint_attempt").await;
            let own = home.rows_of("alice", "endpoint_attempt").await;
            let queue = home.rows_of("bob", "endpoint_delivery").await;
            let waits = queue.iter().any(|it| it.contains("waiting"));
            (attempts.len(), own.len()) == (2, 1) && !waits && {
                let page = self.bob.get(&self.shop, &path).await.text();
                page.contains(">enabled<")
            }
        })
        .await;
    }

    /// The version of bob's endpoint in the form that changes it.
    pub(super) async fn version(&self) -> String {
        let path = format!("/portal/endpoints/{}", self.bobs.endpoint);
        let page = self.bob.get(&self.shop, &path).await;
        field(&page.text(), "version").unwrap_or_else(|| panic!("{}", page.text()))
    }

    /// The texts that alice must not see, with names.
    pub(super) fn secrets(&self) -> Vec<(&'static str, String)> {
        let bobs = &self.bobs;
        vec![
            ("the marker", MARKER.to_owned()),
            (
                "the address of bob's endpoint",
                self.bobs_hooks.address().to_string(),
            ),
            ("the id of bob's endpoint", bobs.endpoint.clone()),
            ("the id of bob's event", bobs.delivered.clone()),
            ("the id of bob's failed event", bobs.failed.clone()),
            ("the id of bob's order", bobs.order.clone()),
            (
                "bob's secret",
                bobs.secret.trim_start_matches("whsec_").to_owned(),
            ),
            ("bob's token", self.bob.token().to_owned()),
            ("bob's seal", self.bob.seal.clone()),
        ]
    }

    /// All rows of bob.
    pub(super) async fn rows(&self) -> Vec<String> {
        let home = self.shop.home();
        let mut rows = Vec::new();
        for table in TABLES {
            rows.extend(home.rows_of("bob", table).await);
        }
        rows
    }

    /// Checks that bob's endpoint got nothing more, and that alice's got nothing of bob's.
    pub(super) fn check_receivers(&self) {
        let sent = self.bobs_hooks.received();
        assert_eq!(sent.len(), 2, "{sent:?}");
        for received in self.hooks.received() {
            let body = text(&received);
            assert!(!body.contains(MARKER), "{body}");
        }
    }

    /// Checks that bob's rows are as they were, and that none of alice's has anything of bob's. What
    /// a form queues for an endpoint is in a row before the form is answered.
    pub(super) async fn check_rows(&self, before: &[String]) {
        assert_eq!(self.rows().await, before, "bob's rows have changed");
        let home = self.shop.home();
        for table in &TABLES[..3] {
            for row in home.rows_of("alice", table).await {
                assert!(!row.contains(MARKER), "{table}: {row}");
                assert!(!row.contains(&self.bobs.endpoint), "{table}: {row}");
            }
        }
    }
}

/// Creates an endpoint in the portal. Returns its id, its secret and the nonce of the form.
async fn create(
    shop: &Shop,
    user: &Session,
    members: &[(&str, String)],
) -> (String, String, String) {
    let form = user.get(shop, "/portal/endpoints/new").await.text();
    let nonce = field(&form, "nonce").unwrap();
    let mut fields = vec![("nonce", nonce.as_str()), ("action", "create")];
    fields.extend(members.iter().map(|(name, value)| (*name, value.as_str())));
    let answer = user.post(shop, "/portal/endpoints", &fields).await;
    let page = answer.text();
    assert!(matches!(answer.status, 200 | 201), "{page}");
    let secret = shown_secret(&page).unwrap_or_else(|| panic!("no secret: {page}"));
    (id_in(&page), secret, nonce)
}

/// The first id of an endpoint in a page.
fn id_in(page: &str) -> String {
    let (_, rest) = page.split_once("/portal/endpoints/ep_").unwrap();
    let ends = |it: char| !it.is_ascii_alphanumeric();
    format!("ep_{}", rest.split(ends).next().unwrap())
}

/// Places an order of a customer whose name has the marker if it is bob's. Returns its id.
async fn order(shop: &Shop, token: &str, key: &str) -> String {
    let customer = match token {
        "demo-bob" => format!("{MARKER}-customer"),
        _ => "ann".to_owned(),
    };
    let order = json!({"customer_id": customer, "amount": 500, "currency": "EUR"}).to_string();
    let answer = shop.post_as(token, "/orders", Some(key), &order).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let id = answer.json().unwrap()["id"].clone();
    id.as_str().unwrap().to_owned()
}

/// The id of the event in the request with this number.
async fn event(receiver: &HttpReceiver, number: usize) -> String {
    let requests = receiver.received_at_least(number + 1).await;
    requests[number].header("webhook-id").unwrap().to_owned()
}
