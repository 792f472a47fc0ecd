//! Changes of partitions as events, under the name of their root and under their own names.

use std::collections::BTreeMap;

use super::{Fed, mapped::orders, texts};

/// The columns of `orders_b` have another order, and one of them was dropped.
const ORDERS: &str = "
    CREATE TABLE orders (
        id int, region text, status text NOT NULL, note text, PRIMARY KEY (id, region))
        PARTITION BY LIST (region);
    CREATE TABLE orders_a PARTITION OF orders FOR VALUES IN ('a');
    CREATE TABLE orders_b (
        status text NOT NULL, gone int, note text, region text NOT NULL, id int NOT NULL);
    ALTER TABLE orders_b DROP COLUMN gone;
    ALTER TABLE orders_a ALTER COLUMN note SET STORAGE EXTERNAL;
    CREATE PUBLICATION hapax_orders FOR TABLE orders WITH (publish_via_partition_root = true)";
const ATTACH: &str = "ALTER TABLE orders ATTACH PARTITION orders_b FOR VALUES IN ('b')";
const COLUMNS: &str = "type || ' ' || aggregate_id || ' ' || payload";
const SET_ASIDE: &str = "SELECT problem || ': ' || payload FROM hapax.set_aside";

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_attached_later_has_the_columns_of_its_root() {
    let fed = Fed::new(ORDERS).await;
    let running = fed.run(orders()).await;
    fed.sql(
        "INSERT INTO orders VALUES (1, 'a', 'new', 'x');
         INSERT INTO orders_b (id, region, status) VALUES (100, 'b', 'before')",
    )
    .await;
    fed.sql(ATTACH).await;
    fed.sql(
        "INSERT INTO orders VALUES (2, 'b', 'new', 'y');
         UPDATE orders SET status = 'paid' WHERE id = 2;
         DELETE FROM orders WHERE id = 2;
         UPDATE orders SET region = 'b' WHERE id = 1",
    )
    .await;
    assert_eq!(
        fed.events(6, COLUMNS).await,
        [
            r#"order.insert 1 {"id":1,"region":"a","status":"new","note":"x"}"#,
            r#"order.insert 2 {"id":2,"region":"b","status":"new","note":"y"}"#,
            r#"order.update 2 {"id":2,"region":"b","status":"paid","note":"y"}"#,
            r#"order.delete 2 {"id":2,"region":"b"}"#,
            // A row that moves to another partition.
            r#"order.delete 1 {"id":1,"region":"a"}"#,
            r#"order.insert 1 {"id":1,"region":"b","status":"new","note":"x"}"#,
        ]
    );
    running.stop().await;
}

/// The server calls each old row whole, because the identity of the root is full.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_of_a_partition_that_sends_its_key_only_is_set_aside() {
    let fed = Fed::new(ORDERS).await;
    fed.sql(ATTACH).await;
    fed.sql(
        "ALTER TABLE orders REPLICA IDENTITY FULL;
         ALTER TABLE orders_b REPLICA IDENTITY FULL",
    )
    .await;
    let mut paid = orders();
    paid.tables[0].when = BTreeMap::from([("status".to_owned(), vec!["paid".to_owned()])]);
    let running = fed.run(paid).await;
    fed.sql(
        "INSERT INTO orders VALUES (1, 'a', 'paid'), (2, 'b', 'paid'), (3, 'b', 'new');
         DELETE FROM orders",
    )
    .await;
    fed.sql("ALTER TABLE orders_a REPLICA IDENTITY FULL").await;
    fed.sql("INSERT INTO orders VALUES (4, 'a', 'paid'); DELETE FROM orders")
        .await;
    assert_eq!(
        fed.events(5, COLUMNS).await,
        [
            r#"order.insert 1 {"id":1,"region":"a","status":"paid","note":null}"#,
            r#"order.insert 2 {"id":2,"region":"b","status":"paid","note":null}"#,
            r#"order.delete 2 {"id":2,"region":"b","status":"paid","note":null}"#,
            r#"order.insert 4 {"id":4,"region":"a","status":"paid","note":null}"#,
            r#"order.delete 4 {"id":4,"region":"a","status":"paid","note":null}"#,
        ]
    );
    assert_eq!(
        texts(&fed.plain, SET_ASIDE).await,
        [
            "column status is not sent with this change: REPLICA IDENTITY FULL of table \
             public.orders and of its partition public.orders_a includes it: {\"id\":1,\"region\":\"a\"}"
        ]
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_a_partition_does_not_send_are_left_out_and_are_not_null() {
    let fed = Fed::new(ORDERS).await;
    fed.sql("ALTER TABLE orders REPLICA IDENTITY FULL").await;
    let running = fed.run(orders()).await;
    fed.sql(
        "INSERT INTO orders VALUES (1, 'a', 'new', repeat('x', 5000));
         UPDATE orders SET id = 2;
         DELETE FROM orders",
    )
    .await;
    let events = fed.events(3, COLUMNS).await;
    assert_eq!(
        events[1..],
        [
            // The long value has not changed, and the old row has only the key.
            r#"order.update 2 {"id":2,"region":"a","status":"new"}"#,
            r#"order.delete 2 {"id":2,"region":"a"}"#,
        ]
    );
    running.stop().await;
}

/// The server sends the status, and null for the key of the root.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_without_the_key_of_the_root_is_set_aside() {
    let fed = Fed::new(ORDERS).await;
    fed.sql(
        "CREATE UNIQUE INDEX orders_a_status ON orders_a (status);
         ALTER TABLE orders_a REPLICA IDENTITY USING INDEX orders_a_status",
    )
    .await;
    let running = fed.run(orders()).await;
    fed.sql(
        "INSERT INTO orders VALUES (1, 'a', 'new');
         DELETE FROM orders;
         INSERT INTO orders VALUES (2, 'a', 'new')",
    )
    .await;
    assert_eq!(
        fed.events(2, "type || ' ' || aggregate_id").await,
        ["order.insert 1", "order.insert 2"]
    );
    assert_eq!(
        texts(&fed.plain, SET_ASIDE).await,
        [
            "column id is not sent with this change: REPLICA IDENTITY FULL of table public.orders and \
          of its partition public.orders_a includes it: {}"
        ]
    );
    running.stop().await;
}

/// The server refuses the statements of the service, so there is no change that the feed could miss.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_without_an_identity_has_inserts_only() {
    let fed = Fed::new(ORDERS).await;
    fed.sql("ALTER TABLE orders_a REPLICA IDENTITY NOTHING")
        .await;
    let running = fed.run(orders()).await;
    fed.sql("INSERT INTO orders VALUES (1, 'a', 'new')").await;
    for change in ["UPDATE orders SET status = 'paid'", "DELETE FROM orders"] {
        let refused = fed.plain.batch_execute(change).await.unwrap_err();
        let message = refused.as_db_error().unwrap().message();
        assert!(
            message.contains("does not have a replica identity"),
            "{message}"
        );
    }
    // Then it does not refuse them, and sends nothing.
    fed.sql("ALTER PUBLICATION hapax_orders SET (publish = 'insert')")
        .await;
    fed.sql("DELETE FROM orders").await;
    fed.sql("INSERT INTO orders VALUES (2, 'a', 'new')").await;
    assert_eq!(
        fed.events(2, "type || ' ' || aggregate_id").await,
        ["order.insert 1", "order.insert 2"]
    );
    assert_eq!(fed.count("SELECT count(*) FROM hapax.set_aside").await, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_publication_decides_whether_a_change_has_the_name_of_the_root() {
    let fed = Fed::new(ORDERS).await;
    fed.sql("ALTER PUBLICATION hapax_orders SET (publish_via_partition_root = false)")
        .await;
    let mut both = orders();
    let mut of_part = both.tables[0].clone();
    of_part.table = "orders_a".to_owned();
    of_part.kind_constant = Some("a.{operation}".to_owned());
    both.tables.push(of_part.clone());
    // The changes of this table are ignored.
    of_part.table = "orders_b".to_owned();
    of_part.on = Vec::new();
    both.tables.push(of_part);
    let running = fed.run(both).await;
    fed.sql(ATTACH).await;
    fed.sql(
        "INSERT INTO orders VALUES (1, 'a', 'new'), (2, 'b', 'new');
         DELETE FROM orders",
    )
    .await;
    fed.sql("ALTER PUBLICATION hapax_orders SET (publish_via_partition_root = true)")
        .await;
    fed.sql("INSERT INTO orders VALUES (3, 'a', 'new'), (4, 'b', 'new')")
        .await;
    assert_eq!(
        fed.events(4, "type || ' ' || aggregate_id").await,
        [
            "a.insert 1",
            "a.delete 1",
            "order.insert 3",
            "order.insert 4"
        ]
    );
    running.stop().await;
}
