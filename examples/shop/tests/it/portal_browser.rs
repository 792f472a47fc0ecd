//! The customer portal in a real browser: `portal.mjs` does what a customer does. This program runs the
//! shop and the customer's receiver, places orders, and verifies the signatures of what arrives.

use std::path::Path;

use hapax_testkit::{
    browser::Driver,
    http::{HttpReceiver, HttpReply, Received},
    wait::eventually,
};
use serde_json::json;

use crate::{
    portal_session::{is_signed, link, start_portal, text},
    shop::{Home, PATIENCE, Shop, Store},
};

/// A shop and the receiver of its customer alice.
struct Stage {
    shop: Shop,
    receiver: HttpReceiver,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_portal_in_a_browser() {
    let shop = start_portal(Home::fresh(Store::Postgres).await);
    let receiver = HttpReceiver::start().await;
    let stage = Stage { shop, receiver };
    let shop = &stage.shop;
    let given = json!({
        "shop": shop.url(""),
        "link": shop.url(&link(shop, "alice", "write").await),
        "reader": shop.url(&link(shop, "alice", "read").await),
        "hook": stage.receiver.url("/hook"),
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/portal.mjs");
    let target_tmp = env!("CARGO_TARGET_TMPDIR");
    let mut driver = Driver::start(target_tmp, &script, "portal", &[&given.to_string()]);
    loop {
        let line = driver.heard().await;
        if line == "passed" {
            break;
        }
        let answer = stage.answer(&line).await;
        driver.answer(&answer);
    }
    driver.ended().await;
}

impl Stage {
    /// Does what the driver asks for. Events are named by the customer of their order.
    async fn answer(&self, line: &str) -> String {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["order", customer, amount] => self.order(customer, amount).await,
            ["refuse"] => {
                let broken = HttpReply::status(500).body("the kettle is broken");
                self.receiver.reply(broken);
            }
            ["accept"] => self.receiver.reply(HttpReply::status(200)),
            ["refused", name] => self.answered(name, 500).await,
            ["accepted", name] => self.answered(name, 200).await,
            ["sent", name] => return self.sent(name).len().to_string(),
            ["signed", name, ref secrets @ ..] if !secrets.is_empty() => {
                eventually(PATIENCE, async || !self.sent(name).is_empty()).await;
                let last = self.sent(name).pop().unwrap();
                let unsigned = secrets.iter().find(|it| !is_signed(&last, it));
                if let Some(secret) = unsigned {
                    return format!("not signed with {secret}");
                }
            }
            _ => panic!("unexpected output of the browser driver: {line:?}"),
        }
        "done".to_owned()
    }

    async fn order(&self, customer: &str, amount: &str) {
        let amount: u32 = amount.parse().unwrap();
        let order = json!({"customer_id": customer, "amount": amount, "currency": "EUR"});
        let order = order.to_string();
        let answer = self.shop.post("/orders", Some(customer), &order).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// The webhooks with this text, in order.
    fn sent(&self, name: &str) -> Vec<Received> {
        let quoted = format!("\"{name}\"");
        let all = self.receiver.received().into_iter();
        all.filter(|it| text(it).contains(&quoted)).collect()
    }

    /// Waits until the receiver has answered a webhook with this status.
    async fn answered(&self, name: &str, status: u16) {
        eventually(PATIENCE, async || {
            let sent = self.sent(name);
            sent.iter().any(|it| it.answered == Some(status))
        })
        .await;
    }
}
