//! `hapax_api`: a role that may execute its functions can make every call, and use no table.

use std::sync::Arc;

use hapax_testkit::postgres::Database;
use tokio_postgres::Client;

use super::{
    grants::{SERVICE, block},
    state,
};
use crate::fixture::Fixture;

/// The grants of the reference, for a role.
fn grants(role: &str) -> String {
    block("```sql\nGRANT USAGE ON SCHEMA hapax_api").replace(SERVICE, role)
}

async fn session_of(fixture: &Fixture, role: &str) -> Client {
    let client = fixture.database.client().await;
    let become_it = format!("SET SESSION AUTHORIZATION {role}");
    client.batch_execute(&become_it).await.unwrap();
    client
}

#[tokio::test]
async fn a_role_that_may_only_execute_makes_every_call_and_reads_no_table() {
    let fixture = Fixture::new().await;
    let role = format!("caller_of_{}", fixture.database.name());
    fixture.run(&format!("CREATE ROLE {role}")).await;
    let client = session_of(&fixture, &role).await;
    let version = client.batch_execute("SELECT hapax_api.contract_version()");
    assert_eq!(state(version.await), "42501");
    fixture.run(&grants(&role)).await;

    let print = "sha256('x')";
    let event = r#"'[{"type": "a", "payload": "1"}]'"#;
    for call in [
        "BEGIN".to_owned(),
        format!("SELECT hapax_api.claim('t', 'o', 'k', {print})"),
        "SELECT hapax_api.emit('a', '1', 'order', '1', ordered => true)".to_owned(),
        "SELECT hapax_api.emit_bytes('a', 'x', 'image/png')".to_owned(),
        format!("SELECT hapax_api.emit_many({event})"),
        "SELECT hapax_api.accept('c', 'm', sha256('x'), 's')".to_owned(),
        "SELECT hapax_api.processed('c', 'm', 's')".to_owned(),
        format!("SELECT hapax_api.complete('t', 'o', 'k', 201, events => {event})"),
        format!("SELECT hapax_api.claim('t', 'o', 'other', {print})"),
        "SELECT hapax_api.release('t', 'o', 'other')".to_owned(),
        "COMMIT".to_owned(),
        format!("SELECT hapax_api.enter('t', 'o', 'p', {print}, '0')"),
        format!("SELECT hapax_api.enter('t', 'o', 'p', {print}, '0', owner => 'me')"),
        "SELECT hapax_api.take_over('t', 'o', 'p', 2, '0')".to_owned(),
        "SELECT hapax_api.renew('t', 'o', 'p', 3)".to_owned(),
        "SELECT hapax_api.provider_key('t', 'o', 'p', 3, 'charge')".to_owned(),
        format!("SELECT hapax_api.phase('t', 'o', 'p', 3, 'charged', '{{}}', {event})"),
        format!("SELECT hapax_api.finish('t', 'o', 'p', 3, 201, events => {event})"),
        format!("SELECT hapax_api.enter('t', 'o', 'free', {print})"),
        "SELECT hapax_api.nothing_happened('t', 'o', 'free', 1)".to_owned(),
        "SELECT hapax_api.contract_version(), hapax_api.profile('hapax')".to_owned(),
    ] {
        let outcome = client.batch_execute(&call).await;
        outcome.unwrap_or_else(|error| panic!("{call}: {error:?}"));
    }
    let stored = "SELECT count(*) FROM hapax.idempotency_key WHERE response_status = 201";
    assert_eq!(fixture.count(stored).await, 2);

    for refused in [
        "SELECT 1 FROM hapax.idempotency_key",
        "SELECT 1 FROM hapax.outbox_event",
        "SELECT hapax.contract_version()",
        "SELECT hapax.emit('a', '1')",
        "CREATE FUNCTION hapax_api.mine() RETURNS int LANGUAGE sql RETURN 1",
        "CREATE OR REPLACE FUNCTION hapax_api.contract_version() RETURNS int LANGUAGE sql RETURN 3",
    ] {
        let outcome = client.batch_execute(refused).await;
        assert_eq!(state(outcome), "42501", "{refused}");
    }
    let leave = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    fixture.run(&leave).await;
}

#[tokio::test]
async fn the_functions_are_the_same_and_run_as_the_owner_of_the_tables() {
    let fixture = Fixture::new().await;
    let calls = "SELECT string_agg(proname, ' ' ORDER BY proname) FROM pg_proc
        WHERE pronamespace = 'hapax_api'::regnamespace";
    let row = fixture.plain.query_one(calls, &[]).await.unwrap();
    assert_eq!(
        row.get::<_, String>(0),
        "accept claim complete contract_version emit emit_bytes emit_many enter finish \
         nothing_happened phase processed profile provider_key release renew take_over"
    );
    let others = "SELECT count(*) FROM pg_proc AS api
        LEFT JOIN pg_proc AS own ON own.pronamespace = 'hapax'::regnamespace
            AND own.proname = api.proname
            AND pg_get_function_arguments(own.oid) = pg_get_function_arguments(api.oid)
            AND pg_get_function_result(own.oid) = pg_get_function_result(api.oid)
            AND own.prosrc = api.prosrc AND own.proconfig IS NOT DISTINCT FROM api.proconfig
        WHERE api.pronamespace = 'hapax_api'::regnamespace
          AND (own.oid IS NULL OR own.prosecdef OR NOT api.prosecdef
               OR api.proowner <> (SELECT relowner FROM pg_class
                                  WHERE oid = 'hapax.idempotency_key'::regclass)
               OR has_function_privilege('pg_monitor', api.oid, 'EXECUTE'))";
    assert_eq!(fixture.count(others).await, 0);
}

/// The tables belong to the role that migrates, which need not be the owner of the schema.
#[tokio::test]
async fn the_functions_work_in_a_schema_that_another_role_owns() {
    let database = Arc::new(Database::empty().await);
    let role = format!("other_of_{}", database.name());
    let create = format!("CREATE ROLE {role}; CREATE SCHEMA hapax AUTHORIZATION {role}");
    let client = database.client().await;
    client.batch_execute(&create).await.unwrap();
    let fixture = Fixture::on(database, |_| {}).await;
    fixture
        .run("SELECT hapax_api.claim('t', 'o', 'k', sha256('x'))")
        .await;
    let leave = format!("REASSIGN OWNED BY {role} TO CURRENT_USER; DROP ROLE {role}");
    fixture.run(&leave).await;
}
