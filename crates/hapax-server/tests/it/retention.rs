//! Tests of retention in `hapax relay`: no kind of rows prevents the deletion of another kind.

use hapax_testkit::wait::eventually;

use crate::hapax::{PATIENCE, migrated, start_relay};

/// An expired key that a trigger inserts again after each deletion, and a saga that ended long ago.
const OLD_ROWS: &str = "
    CREATE FUNCTION expire_again() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO hapax.idempotency_key SELECT OLD.*;
        RETURN NULL;
    END $$;
    INSERT INTO hapax.idempotency_key
        (tenant, operation, key, fingerprint, state, created_at, expires_at)
    VALUES ('alice', 'POST /orders', 'k', '\\x00', 'completed',
        now() - interval '9 days', now() - interval '8 days');
    CREATE TRIGGER again AFTER DELETE ON hapax.idempotency_key
        FOR EACH ROW EXECUTE FUNCTION expire_again();
    INSERT INTO hapax.saga (id, name, version, input, headers, state, deadline_at, created_at, ended_at)
    VALUES ('s', 'checkout', 1, '', '{}', 'completed', now(), now(), now() - interval '90 days')";

#[tokio::test]
async fn keys_that_expire_without_end_keep_nothing_else_from_going() {
    let database = migrated().await;
    let client = database.client().await;
    client.batch_execute(OLD_ROWS).await.unwrap();
    let relay = start_relay(&database.url(), "[retention]\nevery = \"1s\"\n").await;
    eventually(PATIENCE, async || {
        let left = client.query_one("SELECT count(*) FROM hapax.saga", &[]);
        left.await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    relay.stop().await;
}
