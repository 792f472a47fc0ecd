//! Permanent errors of a service: they are not retryable, and they release the key.

use crate::{
    answers::check_problem,
    service::{Language, say},
    shop::{Shop, body},
};

const CONSTRAINTS: &str = "ALTER TABLE shop_order
    ADD CONSTRAINT shop_order_item_key UNIQUE (item),
    ADD CONSTRAINT shop_order_amount_check CHECK (amount < 1000)";
const UNCONSTRAINED: &str = "ALTER TABLE shop_order
    DROP CONSTRAINT shop_order_item_key, DROP CONSTRAINT shop_order_amount_check";
/// Raises programming errors in a route.
const PYTHON: &str = "import asyncio, idempotency, psycopg

@idempotency.guarded
async def route(error):
    raise error

for error in [TypeError('x'), KeyError('x'), psycopg.ProgrammingError('2 placeholders')]:
    print(asyncio.run(route(error)).body.decode())
";
const NODE: &str = "import { guarded } from './idempotency.js';
for (const error of [new TypeError('x'), new ReferenceError('x')]) {
  const response = { status() {}, appendHeader() {}, end: (body) => console.log(`${body}`) };
  await guarded(async () => { throw error; })({}, response);
}";

#[tokio::test(flavor = "multi_thread")]
async fn a_violated_constraint_is_not_retryable_in_python_and_releases_the_key() {
    check_violations(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violated_constraint_is_not_retryable_in_node_and_releases_the_key() {
    check_violations(Language::Node).await;
}

#[test]
fn an_error_of_the_program_is_not_retryable_in_python() {
    check_program(Language::Python, PYTHON, 3);
}

#[test]
fn an_error_of_the_program_is_not_retryable_in_node() {
    check_program(Language::Node, NODE, 2);
}

async fn check_violations(language: Language) {
    let shop = Shop::open(&[language]).await;
    let alter = async |sql: &str| shop.client.batch_execute(sql).await.expect("valid DDL");
    alter(CONSTRAINTS).await;
    assert_eq!(shop.order(0, "first", &body("socks", 1)).await.status, 201);
    for (key, body) in [
        ("unique", body("socks", 1)),
        ("check", body("shoes", 1000)),
        (
            "range",
            r#"{"item": "hats", "amount": 9007199254740991}"#.to_owned(),
        ),
    ] {
        let refused = shop.order(0, key, &body).await;
        check_problem(&refused, 500, "INTERNAL.statement");
        assert_eq!(refused.json().expect("JSON")["retryable"], false);
        assert_eq!(refused.header("retry-after"), None);
        assert_eq!(refused.header("idempotency-status"), None);
        let said = refused.text();
        assert!(!said.contains("shop_order"), "{said}");
    }
    shop.check_effects(1).await;
    // The keys are free: a rejected request can be sent again, even with another payload.
    alter(UNCONSTRAINED).await;
    for key in ["unique", "check"] {
        let taken = shop.order(0, key, &body("socks", 2)).await;
        assert_eq!(
            (taken.status, taken.header("idempotency-status")),
            (201, Some("stored"))
        );
    }
    shop.check_effects(3).await;
}

#[track_caller]
fn check_program(language: Language, script: &str, problems: usize) {
    let said = say(language, script);
    assert_eq!(said.lines().count(), problems, "{said}");
    for line in said.lines() {
        let problem: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(problem["code"], "INTERNAL", "{line}");
        assert_eq!(problem["status"], 500, "{line}");
        assert_eq!(problem["retryable"], false, "{line}");
    }
}
