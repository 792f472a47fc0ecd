//! Tests of what operators do with a running shop, in its console and with `hapax`, on both stores
//! and without any `hapax relay`.

use std::fmt::Write as _;

use hapax_testkit::{
    http::{HttpReceiver, HttpReply, HttpResponse},
    program::{ProgramOutput, run_to_end},
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    relay_process::hapax,
    shop::{Home, ORDER, PATIENCE, Shop, Store, on_both_stores},
};

/// The number of orders whose events become dead letters.
const ORDERS: usize = 3;

on_both_stores! {
    a_bulk_replay_of_the_command_line_is_done_by_the_running_shop,
    a_bulk_replay_of_the_console_is_done_by_the_running_shop,
    an_event_is_offered_again_to_a_destination_of_the_shop,
    a_paused_destination_is_offered_nothing_until_it_is_resumed,
    a_pause_holds_when_the_shop_starts_again,
    a_removed_destination_is_offered_nothing_more,
    a_test_event_of_the_console_reaches_a_webhook_of_the_shop,
    the_console_is_announced_and_the_root_leads_to_it,
}

/// A shop with a webhook of the tests.
struct Stage {
    shop: Shop,
    receiver: HttpReceiver,
}

impl Stage {
    async fn new(on: Store) -> Self {
        let receiver = HttpReceiver::start().await;
        let shop = start(Home::fresh(on).await, &receiver);
        Self { shop, receiver }
    }

    /// A shop with dead letters, whose receiver works again.
    async fn with_dead_letters(on: Store) -> (Self, Vec<Value>) {
        let stage = Self::new(on).await;
        stage.receiver.reply(HttpReply::status(500));
        for number in 0..ORDERS {
            stage.order(&number.to_string()).await;
        }
        let mut dead = Vec::new();
        eventually(PATIENCE, async || {
            dead = stage.dead_letters();
            dead.len() == ORDERS
        })
        .await;
        stage.receiver.reply(HttpReply::status(200));
        (stage, dead)
    }

    async fn order(&self, key: &str) {
        let order = self.shop.post("/orders", Some(key), ORDER).await;
        assert_eq!(order.status, 201, "{}", order.text());
    }

    /// Runs a command of `hapax` on the shop's database.
    fn hapax(&self, arguments: &[&str]) -> ProgramOutput {
        let url = self.shop.home().url();
        run_to_end(hapax(
            &[arguments, &["--database", &url, "--json"]].concat(),
        ))
    }

    fn dead_letters(&self) -> Vec<Value> {
        let listed = self.hapax(&["dead-letters", "list"]).ended(0).json();
        listed["items"].as_array().unwrap().clone()
    }

    /// The name of the webhook destination.
    fn destination(&self) -> String {
        let listed = self.hapax(&["destinations", "list"]).ended(0).json();
        let names = listed["items"].as_array().unwrap().iter();
        let names = names.map(|it| it["name"].as_str().unwrap().to_owned());
        names
            .into_iter()
            .find(|it| it.starts_with("webhook-"))
            .unwrap()
    }

    /// Waits until the first job has ended.
    async fn job_done(&self, done: usize) {
        let mut job = json!(null);
        eventually(PATIENCE, async || {
            job = self.hapax(&["dead-letters", "jobs", "1"]).ended(0).json();
            job["state"] == "done"
        })
        .await;
        assert_eq!(job["done"], done, "{job}");
    }

    /// Opens the form of an action in the console and confirms it.
    async fn act(&self, asked: &str) -> HttpResponse {
        let path = format!("/console/act?{asked}");
        let page = self.shop.send(Method::GET, &path, &[], "").await;
        assert_eq!(page.status, 200, "{asked}: {}", page.text());
        let cookie = page.header("set-cookie").unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let form = format!("{}&reason=test", form_of(&page.text()));
        let origin = self.shop.url("");
        let headers = [
            ("cookie", cookie),
            ("origin", origin.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        let sent = self
            .shop
            .send(Method::POST, "/console/act", &headers, &form);
        sent.await
    }
}

async fn a_bulk_replay_of_the_command_line_is_done_by_the_running_shop(on: Store) {
    let (stage, dead) = Stage::with_dead_letters(on).await;
    let destination = dead[0]["destination"].as_str().unwrap();
    let replay = ["dead-letters", "replay-all", "--destination", destination];
    stage.hapax(&[&replay[..], &["--yes"]].concat()).ended(0);
    stage.job_done(ORDERS).await;
    delivered(&stage.receiver, ORDERS).await;
    assert_eq!(stage.dead_letters(), Vec::<Value>::new());
}

async fn a_bulk_replay_of_the_console_is_done_by_the_running_shop(on: Store) {
    let (stage, dead) = Stage::with_dead_letters(on).await;
    let destination = dead[0]["destination"].as_str().unwrap();
    let answer = stage
        .act(&format!("act=replay-dead&dest={destination}&q="))
        .await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    stage.job_done(ORDERS).await;
    delivered(&stage.receiver, ORDERS).await;
}

async fn an_event_is_offered_again_to_a_destination_of_the_shop(on: Store) {
    let stage = Stage::new(on).await;
    stage.order("k").await;
    let sent = stage.receiver.received_at_least(1).await.remove(0);
    let event = sent.header("webhook-id").unwrap().to_owned();
    let destination = stage.destination();
    eventually(PATIENCE, async || {
        let shown = stage.hapax(&["events", "show", &event]).ended(0).json();
        let mut traces = shown["destinations"].as_array().unwrap().iter();
        traces.any(|it| it["destination"] == *destination && it["state"] == "delivered")
    })
    .await;
    let path = format!("/console/events/{event}");
    let page = stage.shop.send(Method::GET, &path, &[], "").await.text();
    let (_, link) = page
        .split_once("/console/act?act=replay-events&amp;dest=webhook-")
        .unwrap_or_else(|| panic!("the event cannot be offered again: {page}"));
    let (link, _) = link.split_once('"').unwrap();
    let link = link.replace("&amp;", "&");
    let answer = stage
        .act(&format!("act=replay-events&dest=webhook-{link}"))
        .await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let again = stage.receiver.received_at_least(2).await.remove(1);
    assert_eq!(again.header("webhook-id"), Some(event.as_str()));
}

async fn a_paused_destination_is_offered_nothing_until_it_is_resumed(on: Store) {
    let stage = Stage::new(on).await;
    stage.order("before").await;
    stage.receiver.received_at_least(1).await;
    pause(&stage).await;
    stage.order("paused").await;
    stage.shop.received("order.created", 2).await;
    assert_eq!(stage.receiver.received().len(), 1);
    let destination = stage.destination();
    stage
        .hapax(&["destinations", "resume", &destination, "--yes"])
        .ended(0);
    stage.receiver.received_at_least(2).await;
}

async fn a_pause_holds_when_the_shop_starts_again(on: Store) {
    let stage = Stage::new(on).await;
    stage.order("before").await;
    stage.receiver.received_at_least(1).await;
    pause(&stage).await;
    let home = stage.shop.home();
    stage.shop.stop().await;
    let shop = start(home, &stage.receiver);
    let order = shop.post("/orders", Some("paused"), ORDER).await;
    assert_eq!(order.status, 201);
    shop.received("order.created", 1).await;
    assert_eq!(stage.receiver.received().len(), 1);
}

async fn a_removed_destination_is_offered_nothing_more(on: Store) {
    let stage = Stage::new(on).await;
    stage.order("before").await;
    stage.receiver.received_at_least(1).await;
    let destination = stage.destination();
    stage
        .hapax(&["destinations", "remove", &destination, "--yes"])
        .ended(0);
    stage.job_done(0).await;
    stage.order("after").await;
    stage.shop.received("order.created", 2).await;
    assert_eq!(stage.receiver.received().len(), 1);
}

async fn a_test_event_of_the_console_reaches_a_webhook_of_the_shop(on: Store) {
    let stage = Stage::new(on).await;
    stage.order("before").await;
    stage.receiver.received_at_least(1).await;
    let ask = format!("act=test&dest={}", stage.destination());
    let answer = stage.act(&ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("accepted the test event"));
    let sent = stage.receiver.received_at_least(2).await.remove(1);
    let body: Value = serde_json::from_slice(&sent.body).unwrap();
    assert_eq!(body["type"], "hapax.test", "{body}");
}

async fn the_console_is_announced_and_the_root_leads_to_it(on: Store) {
    let stage = Stage::new(on).await;
    let root = stage.shop.send(Method::GET, "/", &[], "").await;
    assert_eq!(
        (root.status, root.header("location")),
        (303, Some("/console"))
    );
    let page = stage.shop.send(Method::GET, "/console", &[], "").await;
    assert_eq!(page.status, 200, "{}", page.text());
    check_settings(&stage.shop).await;
    let types = stage.shop.send(Method::GET, "/console/catalogue", &[], "");
    let types = types.await.text();
    assert!(types.contains("order.created"), "{types}");
    let announced = format!("console at {}", stage.shop.url("/console"));
    let mut shop = stage.shop;
    shop.signal("TERM");
    let (_, output) = shop.ended().await;
    assert!(output.contains(&announced), "{output}");
}

/// Checks that the console shows the settings of the shop with their meanings, and no secret.
async fn check_settings(shop: &Shop) {
    let path = "/console/configuration";
    let page = shop.send(Method::GET, path, &[], "").await.text();
    for said in [
        "idempotency.retention",
        "24h",
        "how long responses are stored",
        "--webhook-schedule",
        "/console/reference/configuration?q=idempotency.retention",
    ] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    if !shop.home().is_in_a_file() {
        assert!(!page.contains(&shop.home().url()), "{page}");
    }
}

/// Starts a shop whose events go to the receiver, with one attempt for each.
fn start(home: Home, receiver: &HttpReceiver) -> Shop {
    let url = receiver.url("/hook");
    let flags = [
        "--webhook",
        &url,
        "--allow-net",
        "127.0.0.0/8",
        "--webhook-schedule",
        "0s",
    ];
    Shop::start_in(home, &flags)
}

/// Pauses the webhook, and waits until the relay of the shop has stopped for it.
async fn pause(stage: &Stage) {
    let destination = stage.destination();
    stage
        .hapax(&["destinations", "pause", &destination, "--yes"])
        .ended(0);
    let epoch = format!("hapax_relay_lease_epoch{{destination=\"{destination}\"}}");
    eventually(PATIENCE, async || stage.shop.metric(&epoch).await == 0.0).await;
}

/// Waits until the receiver has accepted this number of events.
async fn delivered(receiver: &HttpReceiver, count: usize) {
    eventually(PATIENCE, async || {
        let requests = receiver.received();
        let accepted = requests.iter().filter(|it| it.answered == Some(200));
        accepted.count() == count
    })
    .await;
}

/// The hidden fields of the form of an action, as a browser sends them.
fn form_of(page: &str) -> String {
    let (_, form) = page.split_once("class=\"act\"").expect("a form");
    let (form, _) = form.split_once("</form>").expect("its end");
    let mut fields = Vec::new();
    for field in form.split("type=\"hidden\" name=\"").skip(1) {
        let (name, rest) = field.split_once("\" value=\"").expect("a value");
        let value = rest.split('"').next().unwrap();
        let value = value.replace("&amp;", "&");
        let mut encoded = format!("{name}=");
        for byte in value.bytes() {
            let _ = write!(encoded, "%{byte:02X}");
        }
        fields.push(encoded);
    }
    fields.join("&")
}
