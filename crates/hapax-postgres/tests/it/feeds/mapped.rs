//! Changes of business tables as events.

use std::collections::BTreeMap;

use hapax_postgres::{Change, Feed, FeedTable};

use super::{Fed, feed, texts};

const ORDERS: &str = "
    CREATE TABLE orders (
        id bigint PRIMARY KEY, status text NOT NULL, total numeric, note text, paid boolean,
        details jsonb);
    ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL;
    CREATE PUBLICATION hapax_orders FOR TABLE orders";

/// The feed of a table `orders` with the key `id`.
pub(crate) fn orders() -> Feed {
    Feed {
        tables: vec![FeedTable {
            schema: "public".to_owned(),
            table: "orders".to_owned(),
            on: vec![Change::Insert, Change::Update, Change::Delete],
            kind_constant: Some("order.{operation}".to_owned()),
            aggregate_type_constant: Some("order".to_owned()),
            aggregate_id: Some("id".to_owned()),
            ..FeedTable::default()
        }],
        ..feed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inserts_updates_and_deletes_become_events_of_their_aggregate() {
    let fed = Fed::new(ORDERS).await;
    let running = fed.run(orders()).await;
    fed.sql(
        "INSERT INTO orders VALUES (1, 'new', 1.50, 'a', false, '{\"b\": 1}');
         UPDATE orders SET status = 'paid', paid = true;
         UPDATE orders SET id = 2;
         TRUNCATE orders;
         INSERT INTO orders VALUES (3, 'new', 'NaN');
         DELETE FROM orders",
    )
    .await;
    let columns = "type || ' ' || aggregate_id || ' ' || payload";
    assert_eq!(
        fed.events(5, columns).await,
        [
            r#"order.insert 1 {"id":1,"status":"new","total":1.50,"note":"a","paid":false,"details":{"b": 1}}"#,
            r#"order.update 1 {"id":1,"status":"paid","total":1.50,"note":"a","paid":true,"details":{"b": 1}}"#,
            r#"order.update 2 {"id":2,"status":"paid","total":1.50,"note":"a","paid":true,"details":{"b": 1}}"#,
            r#"order.insert 3 {"id":3,"status":"new","total":"NaN","note":null,"paid":null,"details":null}"#,
            r#"order.delete 3 {"id":3}"#,
        ]
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_columns_are_selected() {
    let fed = Fed::new(ORDERS).await;
    let mut paid = orders();
    let table = &mut paid.tables[0];
    table.when = BTreeMap::from([("status".to_owned(), vec!["paid".to_owned()])]);
    table.on = vec![Change::Update];
    table.columns = vec!["id".to_owned(), "total".to_owned()];
    let running = fed.run(paid).await;
    fed.sql(
        "INSERT INTO orders VALUES (1, 'paid', 1), (2, 'new', 2);
         UPDATE orders SET note = 'a';
         UPDATE orders SET status = 'paid' WHERE id = 2",
    )
    .await;
    let payloads = fed.events(2, "payload").await;
    assert_eq!(payloads, [r#"{"id":1,"total":1}"#, r#"{"id":2,"total":2}"#]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_value_that_was_not_changed_is_missing_until_the_identity_is_full() {
    let fed = Fed::new(ORDERS).await;
    let mut of_note = orders();
    of_note.tables[0].payload = Some("note".to_owned());
    of_note.tables[0].on = vec![Change::Update];
    let running = fed.run(of_note).await;
    fed.sql(
        "INSERT INTO orders (id, status, note) VALUES (1, 'new', to_json(repeat('x', 10000))::text);
         UPDATE orders SET status = 'paid';
         ALTER TABLE orders REPLICA IDENTITY FULL;
         UPDATE orders SET status = 'sent'",
    )
    .await;
    let lengths = fed.events(1, "octet_length(payload)::text").await;
    assert_eq!(lengths, ["10002"]);
    let problems = texts(&fed.plain, "SELECT problem FROM hapax.set_aside").await;
    assert_eq!(
        problems,
        [
            "column note is not sent with this change: REPLICA IDENTITY FULL of the table includes it"
        ]
    );
    running.stop().await;
}
