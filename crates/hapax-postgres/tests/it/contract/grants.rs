//! Grants: with the grants of the reference a service can make every call of the contract, and
//! little else.

use super::{claim, complete, open};
use crate::fixture::Fixture;

const REFERENCE: &str = include_str!("../../../../../docs/reference/sql-contract.md");
/// The role in the reference.
pub(super) const SERVICE: &str = "shop_service";

#[tokio::test]
async fn a_role_with_the_references_grants_can_make_every_call_and_read_no_event() {
    let fixture = Fixture::new().await;
    let role = format!("service_of_{}", fixture.database.name());
    let create = format!("CREATE ROLE {role}; GRANT ALL ON note TO {role}");
    fixture.run(&create).await;
    let grants = grants().replace(SERVICE, &role);
    fixture.run(&grants).await;
    let mut client = fixture.database.client().await;
    let become_it = format!("SET SESSION AUTHORIZATION {role}");
    client.batch_execute(&become_it).await.unwrap();

    for round in ["first", "second"] {
        let tx = open(&mut client, "k").await;
        let emit = "SELECT hapax.emit('a', '1', 'order', '1', ordered => true),
            hapax.emit_bytes('a', 'x', 'image/png'),
            hapax.accept('ledger', $1, sha256('x'), 'bank'),
            hapax.accept('ledger', $1, sha256('x'), 'bank')";
        tx.execute(emit, &[&round]).await.unwrap();
        let processed = "SELECT hapax.processed('ledger', $1, 'bank', 'applied')";
        tx.execute(processed, &[&round]).await.unwrap();
        complete(&tx, "k", "{}").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(claim(&client, "k").await.unwrap().outcome, "replay");
        let expire = "UPDATE hapax.idempotency_key SET expires_at = now()";
        fixture.plain.execute(expire, &[]).await.unwrap();
    }
    let levels = "BEGIN ISOLATION LEVEL SERIALIZABLE";
    client.batch_execute(levels).await.unwrap();
    assert_eq!(claim(&client, "other").await.unwrap().outcome, "open");
    let release = "SELECT hapax.release('alice', 'POST /orders', 'other')";
    client.execute(release, &[]).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();

    for refused in [
        "SELECT payload FROM hapax.outbox_event",
        "DELETE FROM hapax.outbox_event",
        "UPDATE hapax.outbox_event SET payload = '2'",
        "DELETE FROM hapax.idempotency_key",
        "TRUNCATE hapax.idempotency_key",
        "DELETE FROM hapax.inbox_message",
        "UPDATE hapax.inbox_message SET payload_hash = ''",
        "SELECT state FROM hapax.delivery",
        "SELECT checksum FROM hapax.migration",
        "CREATE FUNCTION hapax.mine() RETURNS int LANGUAGE sql RETURN 1",
    ] {
        let outcome = client.batch_execute(refused).await;
        assert_eq!(super::state(outcome), "42501", "{refused}");
    }
    let leave = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    fixture.run(&leave).await;
}

#[tokio::test]
async fn phased_requests_need_one_grant_more() {
    let fixture = Fixture::new().await;
    let role = format!("phased_of_{}", fixture.database.name());
    fixture.run(&format!("CREATE ROLE {role}")).await;
    fixture.run(&grants().replace(SERVICE, &role)).await;
    let client = fixture.database.client().await;
    let become_it = format!("SET SESSION AUTHORIZATION {role}");
    client.batch_execute(&become_it).await.unwrap();
    let scope = "'alice', 'POST /orders', 'k'";
    for call in [
        format!("enter({scope}, sha256('x'), '0')"),
        format!("enter({scope}, sha256('x'), '0')"),
        format!("take_over({scope}, 2, '0')"),
        format!("renew({scope}, 3)"),
        format!("provider_key({scope}, 3, 'charge')"),
        format!("phase({scope}, 3, 'charged', '{{}}')"),
        format!("finish({scope}, 3, 201)"),
        "enter('alice', 'POST /orders', 'free', sha256('x'))".to_owned(),
    ] {
        let outcome = client.batch_execute(&format!("SELECT hapax.{call}")).await;
        outcome.unwrap_or_else(|error| panic!("{call}: {error:?}"));
    }
    let nothing = "SELECT hapax.nothing_happened('alice', 'POST /orders', 'free', 1)";
    assert_eq!(super::state(client.batch_execute(nothing).await), "42501");
    let delete = block("```sql\nGRANT DELETE").replace(SERVICE, &role);
    fixture.run(&delete).await;
    client.batch_execute(nothing).await.unwrap();
    let leave = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    fixture.run(&leave).await;
}

/// The block of the reference that contains the grants.
fn grants() -> String {
    block("```sql\nGRANT")
}

/// The block of the reference that begins like this.
pub(super) fn block(beginning: &str) -> String {
    let begins = REFERENCE
        .find(beginning)
        .expect("the reference has no such grants");
    let block = &REFERENCE[begins + "```sql\n".len()..];
    let end = block
        .find("```")
        .expect("the block of the reference does not end");
    block[..end].to_owned()
}
