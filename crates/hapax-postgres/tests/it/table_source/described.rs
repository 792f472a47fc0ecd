//! Invalid descriptions of a table source: each is rejected at the start with one sentence that
//! gives the reason.

use hapax_postgres::{Imported, Postgres, Schema, TableSource};
use hapax_testkit::postgres::connect;

use super::{TOPIC, events, imported, move_batch, topic};
use crate::fixture::{Fixture, settings};

#[tokio::test]
async fn a_table_or_column_that_is_not_there_is_named() {
    let fixture = Fixture::new().await;
    fixture.run(TOPIC).await;
    check(
        &fixture,
        |it| it.table = "outbocks".to_owned(),
        "there is no table \"outbocks\"",
    )
    .await;
    check(
        &fixture,
        |it| it.schema = Some("shop".to_owned()),
        "there is no table \"shop\".\"outbox\"",
    )
    .await;
    check(
        &fixture,
        |it| it.payload = "body".to_owned(),
        "table \"public\".\"outbox\" has no column \"body\", named as payload",
    )
    .await;
    check(
        &fixture,
        |it| it.sequence = Some("topic".to_owned()),
        "column \"topic\" of table \"public\".\"outbox\" cannot be sequence: \
         it is of type text, not int2 or int4 or int8",
    )
    .await;
    fixture
        .run("CREATE VIEW looks AS SELECT id, topic, payload, published_at FROM outbox")
        .await;
    check(
        &fixture,
        |it| it.table = "looks".to_owned(),
        "there is no table \"looks\"",
    )
    .await;
}

#[tokio::test]
async fn a_description_that_contradicts_itself_is_refused() {
    let fixture = Fixture::new().await;
    fixture.run(TOPIC).await;
    check(
        &fixture,
        |it| it.kind = None,
        "either by a column or as a constant",
    )
    .await;
    check(&fixture, |it| it.delete = true, "or that rows are deleted").await;
    check(
        &fixture,
        |it| it.published = None,
        "or that rows are deleted",
    )
    .await;
    check(&fixture, |it| it.batch = 0, "batch is not 1 to 10000").await;
    check(&fixture, |it| it.key.clear(), "key names no column").await;
    let lonely = |it: &mut TableSource| it.aggregate_id = Some("topic".to_owned());
    check(&fixture, lonely, "an aggregate has a type and an id").await;
}

#[tokio::test]
async fn a_key_that_tells_no_rows_apart_is_refused() {
    let fixture = Fixture::new().await;
    fixture.run(TOPIC).await;
    check(
        &fixture,
        |it| it.key = vec!["topic".to_owned()],
        "no unique index",
    )
    .await;
    check(
        &fixture,
        |it| it.order = vec!["payload".to_owned()],
        "cannot be order: it may be null",
    )
    .await;
    fixture
        .run("CREATE UNIQUE INDEX ON outbox (topic) WHERE id > 5")
        .await;
    check(
        &fixture,
        |it| it.key = vec!["topic".to_owned()],
        "no unique index",
    )
    .await;
    fixture.run("CREATE UNIQUE INDEX ON outbox (topic)").await;
    let mut table = topic();
    table.key = vec!["topic".to_owned()];
    assert!(Imported::open(&fixture.store, table).await.is_ok());
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_as_its_grant() {
    let fixture = Fixture::new().await;
    fixture.run(TOPIC).await;
    let (role, store) = mover(&fixture).await;
    let mut grants = Vec::new();
    // Each error names a missing grant. Granting it and trying again must lead to a source that
    // works.
    let imported = loop {
        match Imported::open(&store, topic()).await {
            Ok(imported) => break imported,
            Err(error) => {
                let refusal = error.to_string();
                let at = refusal
                    .find("GRANT ")
                    .expect("the error does not name a grant");
                grants.push(refusal[at..].to_owned());
                fixture.run(&format!("{} TO {role}", &refusal[at..])).await;
            }
        }
    };
    fixture
        .run("INSERT INTO outbox (topic, payload) VALUES ('a', '{}')")
        .await;
    assert_eq!(move_batch(&imported).await.rows, 1);
    assert_eq!(
        grants,
        [
            "GRANT SELECT (\"id\") ON \"public\".\"outbox\"",
            "GRANT SELECT (\"payload\") ON \"public\".\"outbox\"",
            "GRANT SELECT (\"published_at\") ON \"public\".\"outbox\"",
            "GRANT SELECT (\"topic\") ON \"public\".\"outbox\"",
            "GRANT UPDATE (\"published_at\") ON \"public\".\"outbox\"",
        ]
    );
    store.close();
    fixture
        .run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

/// Row-level security hides rows without an error; if it hides all of them, the source reports it.
#[tokio::test]
async fn a_table_whose_rows_are_all_hidden_from_the_role_is_refused() {
    let fixture = Fixture::new().await;
    fixture.run(TOPIC).await;
    let (role, store) = mover(&fixture).await;
    fixture
        .run(&format!(
            "GRANT SELECT, UPDATE ON outbox TO {role};
             INSERT INTO outbox (topic, payload) VALUES ('a', '{{}}');
             ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
             CREATE POLICY others ON outbox TO postgres USING (true);
             CREATE POLICY reads ON outbox FOR SELECT TO {role} USING (true)"
        ))
        .await;
    let refused = Imported::open(&store, topic()).await.unwrap_err();
    let refusal = refused.to_string();
    assert!(refusal.contains("row-level security"), "{refusal}");
    let marks = format!("CREATE POLICY marks ON outbox FOR UPDATE TO {role} USING (true)");
    fixture.run(&marks).await;
    let imported = Imported::open(&store, topic()).await.unwrap();
    assert_eq!(move_batch(&imported).await.rows, 1);
    store.close();
    fixture
        .run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

#[tokio::test]
async fn hostile_names_and_constants_are_names_and_constants() {
    let table = "out\"box; DROP TABLE note; --";
    let column = "pay'load\" \\ $1 \u{1f980}";
    let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let ddl = format!(
        "CREATE SCHEMA \"sch.ema\"; CREATE TABLE \"sch.ema\".{} (
            \"select\" bigint PRIMARY KEY, {} json NOT NULL, \"from\" timestamptz)",
        quote(table),
        quote(column)
    );
    let mut described = TableSource::new("it's; \\", table);
    described.schema = Some("sch.ema".to_owned());
    described.key = vec!["select".to_owned()];
    described.payload = column.to_owned();
    described.published = Some("from".to_owned());
    described.kind_constant = Some("order.changed".to_owned());
    described.tenant_constant = Some("o'tool\\e\"".to_owned());
    let (fixture, imported) = imported(&ddl, described).await;
    fixture
        .run(&format!(
            "INSERT INTO \"sch.ema\".{} VALUES (1, '{{}}')",
            quote(table)
        ))
        .await;
    assert_eq!(move_batch(&imported).await.rows, 1);
    let events = events(&fixture).await;
    let tenant = events[0].event.tenant.as_ref().unwrap();
    assert_eq!(tenant.as_str(), "o'tool\\e\"");
    let _still_there = fixture.notes().await;
    fixture.run(imported.index()).await;
    drop(connect(&fixture.database.url()).await);
}

#[tokio::test]
async fn a_table_without_its_index_says_which_it_wants() {
    let (fixture, first) = imported(TOPIC, topic()).await;
    assert!(!first.is_served());
    assert_eq!(
        first.index(),
        "CREATE INDEX CONCURRENTLY ON \"public\".\"outbox\" (\"id\") WHERE \"published_at\" IS NULL"
    );
    fixture.run(first.index()).await;
    let again = Imported::open(&fixture.store, topic()).await.unwrap();
    assert!(again.is_served());
}

/// A new role that may use the tables of the store, but not the table source, and a store that
/// connects as this role.
async fn mover(fixture: &Fixture) -> (String, Postgres) {
    let role = format!("{}_mover", fixture.database.name());
    fixture
        .run(&format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA hapax TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hapax TO {role};
             GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA hapax TO {role}"
        ))
        .await;
    let url = fixture.database.url();
    let url = url.replace("postgres://postgres@", &format!("postgres://{role}@"));
    let mut settings = settings(&url);
    settings.schema = Schema::Check;
    (role, Postgres::open(settings).await.unwrap())
}

#[track_caller]
fn check(
    fixture: &Fixture,
    change: impl FnOnce(&mut TableSource),
    expected: &str,
) -> impl Future<Output = ()> {
    let mut table = topic();
    change(&mut table);
    let caller = std::panic::Location::caller();
    async move {
        let refused = Imported::open(&fixture.store, table).await.unwrap_err();
        let said = refused.to_string();
        assert!(said.starts_with("source \"orders\""), "{caller}: {said}");
        assert!(said.contains(expected), "{caller}: {said}");
    }
}
