//! The one statement that moves a batch of rows, generated for one table.
//!
//! Names are quoted and constants are literals, so a description cannot inject SQL. Rows are
//! claimed in their order. If an earlier row of its key is locked by another transaction, a row
//! waits too. Events are inserted and rows are marked in the same statement, which fails as a whole
//! if their numbers differ, or if a trigger undoes a mark.

use hapax::limits::{PAYLOAD_BYTES_MAX, READ_BYTES};

use super::{
    TableSource,
    columns::{literal, numbered, source, untyped},
    described::{Column, Described},
};

const BYTES: &str = "application/octet-stream";

/// An identifier as SQL spells it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The statement that makes the index by which unpublished rows are found.
pub(super) fn index(table: &TableSource, described: &Described) -> String {
    let order: Vec<_> = table.order().iter().map(|name| quoted(name)).collect();
    let rows = match unpublished(table, described, "") {
        Some(condition) => format!(" WHERE {condition}"),
        None => String::new(),
    };
    let (table, order) = (&described.table, order.join(", "));
    format!("CREATE INDEX CONCURRENTLY ON {table} ({order}){rows}")
}

/// The statement that moves a batch: `$1` is the source's name, `$2` the time, `$3` the aggregates
/// that are passed over.
pub(super) fn moving(table: &TableSource, described: &Described) -> String {
    let writer = Writer { table, described };
    let parts = [
        ("aside", writer.aside()),
        ("claimed", writer.claimed()),
        ("waiting", writer.waiting()),
        ("cut", writer.cut()),
        ("worded", writer.worded()),
        ("judged", writer.judged()),
        ("refused", writer.refused()),
        ("inserted", writer.inserted()),
        ("marked", writer.marked()),
        ("failed", writer.failed()),
        ("cleared", writer.cleared()),
    ];
    let parts =
        parts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| match name {
                "refused" | "inserted" | "marked" | "failed" | "cleared" => {
                    format!("{name} AS ({text})")
                }
                _ => format!("{name} AS MATERIALIZED ({text})"),
            });
    let parts: Vec<_> = parts.collect();
    let waiting = match writer.aggregate() {
        Some(_) => WAITING,
        None => "$3::text[]",
    };
    let agrees = if table.failed.is_some() {
        AGREES_FAILED
    } else {
        AGREES
    };
    format!(
        "WITH {} {COUNTS}, 1 / ({agrees})::int4 AS agrees, {waiting} AS waiting",
        parts.join(", ")
    )
}

const REFUSED: &str = "
    INSERT INTO hapax.set_aside (source, row_key, problem, set_aside_at)
    SELECT $1::text, row_key, problem, $2::timestamptz FROM judged WHERE problem IS NOT NULL
    ON CONFLICT (source, row_key)";

/// Aggregates that wait for a row that another transaction has locked.
const WAITING: &str = "ARRAY(
    SELECT DISTINCT aggregate_type || E'\\n' || aggregate_id
    FROM waiting
    WHERE aggregate_type IS NOT NULL AND aggregate_id IS NOT NULL
    LIMIT 1000)";

const COUNTS: &str = "
    SELECT (SELECT count(*) FROM inserted) AS moved,
           (SELECT count(*) FROM refused) AS set_aside,
           ARRAY(SELECT row_key || ': ' || problem FROM refused LIMIT 5) AS examples";

const AGREES: &str =
    "(SELECT count(*) FROM inserted) = (SELECT count(*) FROM marked WHERE is_marked)";

const AGREES_FAILED: &str =
    "(SELECT count(*) FROM inserted) = (SELECT count(*) FROM marked WHERE is_marked)
    AND (SELECT count(*) FROM refused) = (SELECT count(*) FROM failed WHERE is_marked)";

/// The condition that a row is not published; none where published rows are deleted.
pub(super) fn unpublished(table: &TableSource, described: &Described, of: &str) -> Option<String> {
    let name = table.published.as_deref()?;
    let column = format!("{of}{}", quoted(name));
    let published = described.column(name)?;
    Some(match &*published.of_type {
        "bool" if published.is_required => format!("NOT {column}"),
        "bool" => format!("{column} IS NOT TRUE"),
        _ if published.is_status() => format!("{column} = {}", untyped(table.pending())),
        _ => format!("{column} IS NULL"),
    })
}

pub(super) struct Writer<'a> {
    pub(super) table: &'a TableSource,
    pub(super) described: &'a Described,
}

impl Writer<'_> {
    /// Rows that were set aside; none is looked for where such rows are marked as failed.
    fn aside(&self) -> String {
        if self.table.failed.is_some() {
            return String::new();
        }
        "SELECT row_key FROM hapax.set_aside WHERE source = $1::text".to_owned()
    }

    /// The rows in their order, locked; rows that are locked by other transactions are skipped.
    ///
    /// The rows are found by an index scan, so the rows that were set aside are looked up in a set
    /// instead of joined: a join could sort the whole backlog for every batch.
    fn claimed(&self) -> String {
        let Self { table, .. } = self;
        let payload = source(&table.payload);
        let text = |name: &Option<String>, constant: &Option<String>| match (name, constant) {
            (Some(name), _) => format!("{}::text", source(name)),
            (None, Some(constant)) => literal(constant),
            (None, None) => "NULL::text".to_owned(),
        };
        let kind = text(&table.kind, &table.kind_constant);
        let aggregate_type = text(&table.aggregate_type, &table.aggregate_type_constant);
        let aggregate_id = text(&table.aggregate_id, &None);
        // A constant type is used only if there is an id.
        let aggregate_type = match (&table.aggregate_type, &table.aggregate_id) {
            (None, Some(_)) => {
                format!("CASE WHEN {aggregate_id} IS NOT NULL THEN {aggregate_type} END")
            }
            _ => aggregate_type,
        };
        let sequence = match &table.sequence {
            Some(name) => format!("{}::int8", source(name)),
            None => "NULL::int8".to_owned(),
        };
        let columns = [
            format!("{} AS row_key", self.row_key()),
            numbered(&table.key, "k"),
            numbered(table.order(), "o"),
            format!("{payload} AS payload"),
            format!("octet_length({payload}::text)::int8 AS size"),
            format!("{} AS event_id", text(&table.event_id, &None)),
            format!("{kind} AS type"),
            format!("{} AS tenant", text(&table.tenant, &table.tenant_constant)),
            format!("{aggregate_type} AS aggregate_type"),
            format!("{aggregate_id} AS aggregate_id"),
            format!("{sequence} AS sequence"),
            format!("{} AS headers", text(&table.headers, &None)),
            format!(
                "{} AS available_at",
                self.moment(table.available_at.as_deref())
            ),
            format!("{} AS created_at", self.moment(table.created_at.as_deref())),
        ];
        let columns = columns.join(", ");
        let columns = if self.holds_bytes() {
            columns.replace(
                &format!("octet_length({payload}::text)"),
                &format!("octet_length({payload})"),
            )
        } else {
            columns
        };
        format!(
            "SELECT {columns} FROM {} AS source WHERE {} ORDER BY {} LIMIT {} \
             FOR UPDATE OF source SKIP LOCKED",
            self.described.table,
            self.candidates(),
            self.order("source."),
            table.batch,
        )
    }

    /// Rows before the last claimed one that were passed over: their keys wait for them.
    fn waiting(&self) -> String {
        let Some(aggregate) = self.aggregate() else {
            return String::new();
        };
        let order = self.order("source.");
        let last = self.numbered_order("DESC");
        let names = self.numbered_order("");
        format!(
            "SELECT {aggregate}, {} FROM {} AS source WHERE {} \
             AND ({order}) < (SELECT {names} FROM claimed ORDER BY {last} LIMIT 1) \
             AND {} NOT IN (SELECT row_key FROM claimed)",
            numbered(self.table.order(), "o"),
            self.described.table,
            self.candidates(),
            self.row_key(),
        )
    }

    /// The claimed rows that are moved this time: up to a number of bytes, and none that has to
    /// wait.
    fn cut(&self) -> String {
        let order = self.numbered_order("");
        let waits = if self.aggregate().is_some() {
            let mine = order.replace('o', "counted.o");
            let theirs = order.replace('o', "waiting.o");
            format!(
                " AND NOT EXISTS (SELECT FROM waiting \
                 WHERE waiting.aggregate_type = counted.aggregate_type \
                 AND waiting.aggregate_id = counted.aggregate_id \
                 AND ({theirs}) < ({mine}))"
            )
        } else {
            String::new()
        };
        // What is too large is not carried, and what is missing weighs nothing.
        let bytes = format!(
            "(CASE WHEN size <= {PAYLOAD_BYTES_MAX} THEN size ELSE 0 END \
             + coalesce(octet_length(headers), 0) \
             + octet_length(concat(type, tenant, aggregate_type, aggregate_id)))"
        );
        format!(
            "SELECT {} FROM (SELECT {}, sum({bytes}) OVER (ORDER BY {order} \
             ROWS UNBOUNDED PRECEDING) - {bytes} AS before FROM claimed) AS counted \
             WHERE before <= {READ_BYTES}{waits}",
            self.all(&["payload", "headers"]),
            self.all(&["payload", "headers"]),
        )
    }

    /// Payload and headers in the words of their columns.
    fn worded(&self) -> String {
        let small = format!("size <= {PAYLOAD_BYTES_MAX}");
        let base64 = |bytes: &str| format!("translate(encode({bytes}, 'base64'), E'\\n', '')");
        let words = match (self.carries_json(), self.holds_bytes()) {
            (true, true) => "hapax.text_of(payload)".to_owned(),
            (true, false) => "payload::text".to_owned(),
            (false, true) => base64("payload"),
            (false, false) => base64("convert_to(payload::text, 'UTF8')"),
        };
        let own = "CASE WHEN headers IS NULL THEN '{}' ELSE hapax.row_headers(headers) END";
        // The payload's media type is said once: by its column, or by this header.
        let headers = if self.carries_json() {
            format!("{own} - 'content-type'")
        } else {
            let content_type = self.table.content_type.as_deref().unwrap_or(BYTES);
            let stated = literal(content_type);
            format!("jsonb_build_object('content-type', {stated}::text) || {own}")
        };
        format!(
            "SELECT {}, CASE WHEN {small} THEN {words} WHEN size > 0 THEN '' END AS words, \
             {headers} AS headers FROM cut",
            self.all(&[]),
        )
    }

    /// Each row with what stops it from being an event.
    fn judged(&self) -> String {
        let is_json = if self.carries_json() && !self.column().is_some_and(Column::is_json) {
            format!(
                "CASE WHEN size <= {PAYLOAD_BYTES_MAX} AND words IS NOT NULL \
                 THEN hapax.is_json(words) ELSE true END"
            )
        } else {
            "true".to_owned()
        };
        let problem = format!(
            "hapax.row_problem(type, size, words, {is_json}, headers, aggregate_type, \
             aggregate_id, tenant, available_at)"
        );
        // A text that is not a UUID must not be read as one.
        let problem = format!(
            "CASE WHEN event_id !~* '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' \
             THEN 'the event id is no UUID' ELSE {problem} END"
        );
        format!(
            "SELECT {}, words, headers, {problem} AS problem FROM worded",
            self.all(&[])
        )
    }

    fn inserted(&self) -> String {
        let of_table = literal(&self.described.of_table);
        format!(
            "INSERT INTO hapax.outbox_event \
             (shard, event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, \
             headers, created_at, available_at) \
             SELECT hapax.shard_of(aggregate_type, aggregate_id, event_id), event_id, type, tenant, \
             aggregate_type, aggregate_id, sequence, payload, headers, created_at, available_at \
             FROM (SELECT coalesce(event_id::uuid, hapax.row_event_id({of_table}, row_key)) \
             AS event_id, type, tenant, aggregate_type, aggregate_id, sequence, \
             words AS payload, headers::text AS headers, \
             CASE WHEN created_at >= '1970-01-01 00:00:00+00' \
             AND created_at < '10000-01-01 00:00:00+00' \
             THEN date_trunc('milliseconds', created_at) ELSE $2::timestamptz END AS created_at, \
             available_at FROM judged WHERE problem IS NULL ORDER BY {}) AS event RETURNING 1",
            self.numbered_order(""),
        )
    }

    /// The records of rows that cannot be events. A row whose status was set back may have one.
    fn refused(&self) -> String {
        let again = if self.table.failed.is_some() {
            "DO UPDATE SET problem = excluded.problem, set_aside_at = excluded.set_aside_at"
        } else {
            "DO NOTHING"
        };
        format!("{REFUSED} {again} RETURNING row_key, problem")
    }

    fn marked(&self) -> String {
        let Self { table, described } = self;
        let Some(published) = table.published.as_deref() else {
            let (table, same) = (&described.table, self.same("IS NULL"));
            return format!(
                "DELETE FROM {table} AS source USING judged WHERE {same} RETURNING true AS is_marked"
            );
        };
        let mark = match described.column(published) {
            Some(column) if column.of_type == "bool" => "true".to_owned(),
            Some(column) if column.is_status() => untyped(table.processed()),
            _ => self.now(published).to_owned(),
        };
        let at = table.published_at.as_deref();
        let at = at.map(|at| format!(", {} = {}", quoted(at), self.now(at)));
        let at = at.unwrap_or_default();
        self.update(&format!("{} = {mark}{at}", quoted(published)), "IS NULL")
    }

    /// Rows that cannot be events, where there is a status for them.
    fn failed(&self) -> String {
        match (&self.table.published, &self.table.failed) {
            (Some(published), Some(failed)) => {
                let mark = format!("{} = {}", quoted(published), untyped(failed));
                self.update(&mark, "IS NOT NULL")
            }
            _ => String::new(),
        }
    }

    /// The records of rows that had failed and are events now.
    fn cleared(&self) -> String {
        if self.table.failed.is_none() {
            return String::new();
        }
        "DELETE FROM hapax.set_aside USING judged WHERE source = $1::text \
         AND set_aside.row_key = judged.row_key AND judged.problem IS NULL"
            .to_owned()
    }

    /// Marks rows, and returns whether each one is marked then: a trigger of the table can undo the
    /// mark, and the row would be moved again without end.
    fn update(&self, set: &str, problem: &str) -> String {
        let (table, same) = (&self.described.table, self.same(problem));
        let unmarked = unpublished(self.table, self.described, "source.");
        let unmarked = unmarked.unwrap_or_else(|| "false".to_owned());
        format!(
            "UPDATE {table} AS source SET {set} FROM judged WHERE {same} \
             RETURNING ({unmarked}) IS NOT TRUE AS is_marked"
        )
    }

    fn now(&self, name: &str) -> &'static str {
        match self.described.column(name).map(|it| &*it.of_type) {
            Some("timestamp") => "now() AT TIME ZONE 'UTC'",
            _ => "now()",
        }
    }

    /// The condition for the rows of the batch, with a problem or without one.
    fn same(&self, problem: &str) -> String {
        let same = self.table.key.iter().zip(1..).map(|(name, number)| {
            let column = source(name);
            format!("{column} = judged.k{number}")
        });
        let same: Vec<_> = same.collect();
        format!("judged.problem {problem} AND {}", same.join(" AND "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_and_a_constant_say_no_sql() {
        assert_eq!(
            quoted("a\"; DROP TABLE b; --"),
            "\"a\"\"; DROP TABLE b; --\""
        );
        assert_eq!(literal("it's \\' x"), "E'it''s \\\\'' x'::text");
    }
}
