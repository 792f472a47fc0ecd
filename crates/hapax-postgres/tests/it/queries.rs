//! Query files: each one is prepared against a fresh database, and its plan is checked.

use std::{collections::HashSet, fs, path::Path};

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::fixture::Fixture;

#[tokio::test]
async fn every_query_file_prepares_and_says_why_it_is_there() {
    let fixture = Fixture::new().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("queries");
    let mut count = 0;
    for noun in fs::read_dir(folder).unwrap() {
        for file in fs::read_dir(noun.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let sql = fs::read_to_string(&path).unwrap();
            assert!(
                sql.starts_with("-- "),
                "{path:?} has no comment that gives its reason"
            );
            let lines = sql.lines().filter(|line| !line.starts_with("--"));
            let text = lines.collect::<Vec<_>>().join("\n");
            // The text between dollar quotes is a program with statements inside.
            let statement: String = text.split("$$").step_by(2).collect();
            assert!(
                !statement.contains(';'),
                "{path:?} holds more than one statement"
            );
            let counts = statement.replace("count(*)", "").replace(" * interval", "");
            assert!(
                !counts.contains('*'),
                "{path:?} does not list its columns by name"
            );
            let prepared = fixture.plain.prepare(&sql).await;
            let prepared = prepared.unwrap_or_else(|error| panic!("{path:?}: {error:?}"));
            let unclear = |of_type: &tokio_postgres::types::Type| of_type.name() == "unknown";
            assert!(
                !prepared.params().iter().any(unclear),
                "{path:?} has a parameter of unknown type"
            );
            check_names(
                &path,
                prepared.columns().iter().map(tokio_postgres::Column::name),
            );
            count += 1;
        }
    }
    assert!(count > 45, "found only {count} files");
}

/// Rows are read by column name, and a name that occurs twice would read the first column.
#[track_caller]
fn check_names<'a>(path: &Path, names: impl Iterator<Item = &'a str>) {
    let mut seen = HashSet::new();
    for (index, name) in names.enumerate() {
        let is_new = seen.insert(name.to_owned());
        let is_named = is_new && name != "?column?";
        assert!(
            index < 2 || is_named,
            "{}: column {index}, {name:?}",
            path.display()
        );
    }
}

/// The generic plan of every hot query uses indexes, even for very large tables.
#[tokio::test]
async fn the_hot_queries_go_by_an_index() {
    let fixture = Fixture::new().await;
    fixture.run(MANY).await;
    for (name, sql) in HOT {
        check_plan(&fixture.plain, name, sql).await;
    }
}

/// Enough rows that a sequential scan is visibly more expensive.
const MANY: &str = "
    INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', '{}', '{}', now() FROM generate_series(1, 20000);
    INSERT INTO hapax.destination (name, first_opened_at, opened_at)
    SELECT 'd' || number, now(), now() FROM generate_series(1, 3) AS number;
    INSERT INTO hapax.lease (partition, epoch, taken_at) SELECT name, 1, now() FROM hapax.destination;
    INSERT INTO hapax.checkpoint_log
        (half, number, partition, epoch, frontier, settled, offered, written_at)
    SELECT number % 2, number, name, 1, number, '', '', now()
    FROM hapax.destination, generate_series(1, 15000) AS number;
    INSERT INTO hapax.heartbeat (half, number, node, is_alive, seen_at)
    SELECT number % 2, number, 'n' || number % 3, true, now() - number * interval '1 second'
    FROM generate_series(1, 20000) AS number;
    INSERT INTO hapax.arrival (partition, positions, first, last, started_at, duration_ms)
    SELECT 'd' || number % 3, number::text, number, number, now(), 1
    FROM generate_series(1, 20000) AS number;
    INSERT INTO hapax.delivery
        (destination, position, state, attempt, next_at, order_key, changed_at)
    SELECT 'd' || number % 3, number,
           (ARRAY['scheduled', 'retrying', 'blocked', 'dead', 'delivered'])[number % 5 + 1],
           1, now(), number % 1000, now()
    FROM generate_series(1, 20000) AS number;
    INSERT INTO hapax.attempt
        (destination, position, number, started_at, duration_ms, outcome, response_head)
    SELECT destination, position, 1, now(), 1, 'unavailable', '' FROM hapax.delivery;
    INSERT INTO hapax.inbox_message (consumer, message_id, source, payload_hash, received_at)
    SELECT 'c', number, 's', '', now() FROM generate_series(1, 20000) AS number;
    INSERT INTO hapax.idempotency_key
        (tenant, operation, key, fingerprint, state, created_at, expires_at)
    SELECT 't', 'o', 'k' || number, '', 'completed', now() + number * interval '1 second', now()
    FROM generate_series(1, 20000) AS number;
    INSERT INTO hapax.saga
        (id, name, version, tenant, input, headers, state, deadline_at, wake_at, created_at, ended_at)
    SELECT 's' || number, 'checkout', number % 3, 't' || number % 7, '', '{}', state, now(),
           CASE WHEN state = 'running' THEN now() END, now(),
           CASE WHEN state = 'completed' THEN now() END
    FROM (
        SELECT number, CASE number % 500 WHEN 0 THEN 'needs_attention' WHEN 1 THEN 'running'
            ELSE 'completed' END AS state
        FROM generate_series(1, 20000) AS number
    ) AS saga;
    INSERT INTO hapax.saga_step
        (saga, name, direction, state, request, made, attempts, next_at, began_at)
    SELECT id, 'a', 'forward', 'done', '', '', 1, now(), now() FROM hapax.saga;
    INSERT INTO hapax.saga_signal (saga, name, payload, received_at)
    SELECT id, 'a', '', now() FROM hapax.saga;
    INSERT INTO hapax.poll_endpoint
        (name, tenant, all_tenants, types, token, secret, frontier, created_at, created_by)
    SELECT 'p' || number, 't', false, '[]', sha256(number::text::bytea), sha256(''), 0, now(), 'o'
    FROM generate_series(1, 20000) AS number;
    INSERT INTO hapax.poll_previous_token (endpoint, token, valid_until)
    SELECT name, token, now() FROM hapax.poll_endpoint;
    ANALYZE";

macro_rules! hot {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../queries/", $name, ".sql")))),*]
    };
}

const HOT: &[(&str, &str)] = hot!(
    "idempotency/enter_and_finish_all"
    "outbox/read"
    "outbox/read_late"
    "outbox/purge"
    "outbox/count_beyond"
    "inbox/find"
    "inbox/processed"
    "inbox/purge"
    "poll/find"
    "poll/find_by_token"
    "delivery/epoch"
    "delivery/is_written"
    "delivery/due"
    "delivery/next_due"
    "delivery/due_of"
    "delivery/begin"
    "delivery/deliver"
    "delivery/release"
    "delivery/is_held"
    "delivery/attempt"
    "delivery/attempts"
    "delivery/backlog"
    "delivery/position"
    "delivery/take"
    "delivery/heartbeat"
    "delivery/arrival"
    "delivery/interrupt_begun"
    "delivery/interrupt_offered"
    "delivery/dead_letters"
    "delivery/replay"
    "delivery/discard"
    "saga/start"
    "saga/take"
    "saga/seize"
    "saga/hold"
    "saga/step"
    "saga/write_status"
    "saga/give_back"
    "saga/next"
    "saga/find"
    "saga/steps"
    "saga/signals"
    "saga/list"
    "saga/in_attention"
    "saga/wake"
    "saga/signal"
    "saga/purge"
    "admin/keys"
    "admin/deliveries"
    "admin/inbox"
    "admin/sagas"
    "admin/sagas_of"
    "admin/sagas_waiting"
    "admin/held_up"
    "admin/declined"
    "admin/lately"
);

/// Statements about keys in progress, of which each is found by its name.
const OF_ONE_KEY: &[(&str, &str)] = hot!(
    "idempotency/advance"
    "idempotency/enter"
    "idempotency/enter_and_finish_all"
    "idempotency/enter_anew"
    "idempotency/find"
    "idempotency/find_attempt"
    "idempotency/finish"
    "idempotency/release"
    "idempotency/release_attempt"
    "idempotency/renew"
    "idempotency/resume"
);

/// In a new database all indexes are small. A connection keeps a plan that it makes then, and the index
/// of keys in progress would be read from one end to the other for each key.
#[tokio::test]
async fn a_key_is_found_by_the_primary_key_in_a_database_without_rows() {
    let fixture = Fixture::new().await;
    for (name, sql) in OF_ONE_KEY {
        let steps = generic_plan(&fixture.plain, sql).await.join("\n");
        assert!(steps.contains("idempotency_key_pkey"), "{name}:\n{steps}");
        assert!(
            !steps.contains("idempotency_key_lapses"),
            "{name}:\n{steps}"
        );
    }
}

/// The plan of a statement for any values.
async fn generic_plan(plain: &Client, sql: &str) -> Vec<String> {
    let types = plain.prepare(sql).await.unwrap();
    let count = types.params().len();
    let nulls = vec!["NULL"; count].join(", ");
    let prepare = format!("SET plan_cache_mode = force_generic_plan; PREPARE hot AS {sql}");
    plain.batch_execute(&prepare).await.unwrap();
    let arguments = if count == 0 {
        String::new()
    } else {
        format!("({nulls})")
    };
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE hot{arguments}");
    let steps = lines(plain, &explain).await;
    plain.batch_execute("DEALLOCATE hot").await.unwrap();
    steps
}

async fn check_plan(plain: &Client, name: &str, sql: &str) {
    let steps = generic_plan(plain, sql).await;
    let small = [
        "lease",
        "declaration",
        "destination",
        "start",
        "outbox_event_id",
        "checkpoint_number",
        "outbox_event_kept",
    ];
    // Only the first segment contains rows here.
    let is_empty = |word: &str| {
        let segment = word.strip_prefix("outbox_event_");
        segment.is_some_and(|segment| matches!(segment.as_bytes(), [b'1'..=b'7']))
    };
    let scans = |line: &&String| {
        let line = line.trim();
        line.contains("Seq Scan on ")
            && !small
                .iter()
                .any(|table| line.split_whitespace().any(|word| word == *table))
            && !line.split_whitespace().any(is_empty)
    };
    assert_eq!(
        steps.iter().filter(scans).count(),
        0,
        "{name} reads a whole table:\n{}",
        steps.join("\n")
    );
}

/// A young database: 4,000 rows of one destination, and no statistics.
const YOUNG: &str = "
    ALTER TABLE hapax.delivery SET (autovacuum_enabled = false);
    ALTER TABLE hapax.attempt SET (autovacuum_enabled = false);
    INSERT INTO hapax.delivery
        (destination, position, state, attempt, next_at, order_key, changed_at)
    SELECT 'd', number, CASE WHEN number <= 20 THEN 'retrying' ELSE 'blocked' END,
           1, now(), 'key ' || number % 20, now()
    FROM generate_series(1, 4000) AS number;
    INSERT INTO hapax.attempt
        (destination, position, number, started_at, duration_ms, outcome, response_head)
    SELECT destination, position, 1, now(), 1, 'unavailable', '' FROM hapax.delivery";
#[tokio::test]
async fn a_settlement_finds_its_rows_before_there_are_statistics() {
    let fixture = Fixture::new().await;
    let plain = &fixture.plain;
    plain.batch_execute(YOUNG).await.unwrap();
    let array = |words: Vec<String>| format!("'{{{}}}'", words.join(","));
    let places = array((1..=100).map(|number| number.to_string()).collect());
    let keys = array((0..20).map(|number| format!("key {number}")).collect());
    let each = |value: &str| format!("array_fill({value}, ARRAY[100])");
    let ones = each("1");
    check_pages(
        plain,
        &SETTLED[0],
        &format!("'d', {places}, {ones}, now()"),
        100,
    )
    .await;
    check_pages(plain, &SETTLED[1], &format!("'d', {places}, now()"), 100).await;
    check_pages(plain, &SETTLED[2], &format!("'d', {keys}, now()"), 20).await;
    check_pages(plain, &SETTLED[3], &format!("'d', {keys}"), 20).await;
    let (moments, words) = (each("now()"), each("'delivered'::text"));
    let tried = format!(
        "'d', {places}, {ones}, {moments}, {}, {words}, {}, {words}, {}",
        each("1::int8"),
        each("200::int2"),
        each("''::bytea"),
    );
    check_pages(plain, &SETTLED[4], &tried, 100).await;
}

const SETTLED: &[(&str, &str)] = hot!(
    "delivery/begin"
    "delivery/deliver"
    "delivery/release"
    "delivery/is_held"
    "delivery/attempt"
);

/// A young database: sagas that are due, of kinds that this node does not run, some of a kind that
/// it runs, many that have ended, and no statistics.
const YOUNG_SAGAS: &str = "
    ALTER TABLE hapax.saga SET (autovacuum_enabled = false);
    ALTER TABLE hapax.saga_step SET (autovacuum_enabled = false);
    ALTER TABLE hapax.saga_signal SET (autovacuum_enabled = false);
    INSERT INTO hapax.saga
        (id, name, version, input, headers, state, deadline_at, wake_at, created_at, ended_at)
    SELECT 's' || number, CASE WHEN number <= 20000 THEN 'other' ELSE 'checkout' END, 1, '', '{}',
           CASE WHEN number <= 20100 THEN 'running' ELSE 'completed' END, now(),
           CASE WHEN number <= 20100 THEN now() - interval '1 minute' END, now(),
           CASE WHEN number > 20100 THEN now() END
    FROM generate_series(1, 22000) AS number;
    INSERT INTO hapax.saga_step
        (saga, name, direction, state, request, made, attempts, next_at, began_at)
    SELECT id, 'a', 'forward', 'done', '', '', 1, now(), now() FROM hapax.saga;
    INSERT INTO hapax.saga_signal (saga, name, payload, received_at)
    SELECT id, 'a', '', now() FROM hapax.saga";

#[tokio::test]
async fn a_worker_finds_its_sagas_before_there_are_statistics() {
    let fixture = Fixture::new().await;
    let plain = &fixture.plain;
    plain.batch_execute(YOUNG_SAGAS).await.unwrap();
    // The arguments are few, so that a sequential scan of a table is noticed.
    let (take, ids) = ("NULL, 10000, '{checkout}', '{1}', 2", "'{s20001,s20002}'");
    check_pages(plain, &SAGAS[0], take, 2).await;
    check_pages(plain, &SAGAS[1], "NULL, '{checkout}', '{1}'", 1).await;
    check_pages(plain, &SAGAS[2], ids, 2).await;
    check_pages(plain, &SAGAS[3], ids, 2).await;
    check_pages(plain, &SAGAS[4], "'s20001', 0, 10000, NULL", 1).await;
    check_pages(plain, &SAGAS[5], "NULL, 0, 2", 2).await;
}

const SAGAS: &[(&str, &str)] = hot!(
    "saga/take"
    "saga/next"
    "saga/steps"
    "saga/signals"
    "saga/hold"
    "saga/purge"
);

/// Requires that each row costs only the pages of a few indexes, for any size of the table, both
/// with a custom and with a generic plan.
async fn check_pages(plain: &Client, query: &(&str, &str), arguments: &str, rows: u64) {
    for mode in ["force_custom_plan", "force_generic_plan"] {
        // The first write to a full index page also visits the rows to which its entries point,
        // once, so a second try is allowed.
        let mut tries = 0;
        loop {
            let (pages, removed, error_chain) = touched(plain, query, mode, arguments).await;
            assert_eq!(removed, 0, "{}, {mode}:\n{error_chain}", query.0);
            if pages < rows * 30 {
                break;
            }
            tries += 1;
            assert!(
                tries < 3,
                "{}, {mode}: {pages} pages:\n{error_chain}",
                query.0
            );
        }
    }
}

/// The number of pages that a query touches, the number of rows that a join discards, and the plan.
async fn touched(
    plain: &Client,
    (name, sql): &(&str, &str),
    mode: &str,
    arguments: &str,
) -> (u64, u64, String) {
    let prepare = format!("BEGIN; SET LOCAL plan_cache_mode = {mode}; PREPARE one AS {sql}");
    plain.batch_execute(&prepare).await.unwrap();
    let explain =
        format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE one({arguments})");
    let steps = lines(plain, &explain).await;
    let done = plain.batch_execute("DEALLOCATE one; ROLLBACK");
    done.await.unwrap();
    let said = |word: &'static str| steps.iter().filter_map(|line| number_after(line, word));
    let error_chain = steps.join("\n");
    let pages = said("shared hit=").next();
    let pages = pages.unwrap_or_else(|| panic!("{name} touches nothing:\n{error_chain}"));
    (pages, said("Join Filter: ").sum(), error_chain)
}

fn number_after(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(word)?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

async fn lines(plain: &Client, explain: &str) -> Vec<String> {
    let explained = plain.simple_query(explain).await.unwrap();
    let line = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    explained.iter().filter_map(line).collect()
}
