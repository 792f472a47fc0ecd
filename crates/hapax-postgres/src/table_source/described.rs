//! A description held against the catalog: what is missing is named, once, at the start.

use tokio_postgres::Row;

use super::{TableSource, TableSourceError, statement::quoted};
use crate::{postgres::Postgres, query, value::Param};

/// The definition of a table, as the database describes it.
#[derive(Debug)]
pub(super) struct Described {
    /// Its object id.
    pub(super) number: i32,
    /// Its schema and name, as the catalog spells them. Ids are derived from them.
    pub(super) of_table: String,
    /// The same as SQL spells it.
    pub(super) table: String,
    columns: Vec<Column>,
    /// Whether an index leads to the rows that are not published.
    pub(super) is_served: bool,
    /// Whether row-level security may hide rows of it from the role.
    pub(super) hides_some: bool,
}

/// The definition of a column, as the database describes it.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) of_type: String,
    pub(super) is_required: bool,
    labels: Vec<String>,
    may_select: bool,
    may_update: bool,
}

const TEXTS: &[&str] = &["text", "varchar", "bpchar", "name", "citext"];
const MOMENTS: &[&str] = &["timestamptz", "timestamp"];

impl Described {
    /// Asks the catalog, and holds the description against what it says.
    pub(super) async fn of(
        store: &Postgres,
        table: &TableSource,
    ) -> Result<Self, TableSourceError> {
        table.check()?;
        let failed = |source| TableSourceError::Store {
            source_name: table.name.clone(),
            source,
        };
        let names: [&dyn Param; 2] = [&table.schema, &table.table];
        let found = store.ask(query!("table_source/table"), &names).await;
        let found = found.map_err(failed)?;
        let no_table = || TableSourceError::NoTable {
            source_name: table.name.clone(),
            table: spelled(table.schema.as_deref(), &table.table),
        };
        let row = found.first().ok_or_else(no_table)?;
        if !row.get::<_, bool>("is_table") {
            return Err(no_table());
        }
        let (number, schema): (i32, String) = (row.get("number"), row.get("schema"));
        if !row.get::<_, bool>("may_use") {
            let grant = format!("GRANT USAGE ON SCHEMA {}", quoted(&schema));
            return Err(table.lacks(grant));
        }
        let (may_delete, hides_some) = (row.get("may_delete"), row.get("hides_some"));
        let shows_some: bool = row.get(if table.delete { "may_take" } else { "may_mark" });
        if hides_some && !shows_some {
            return Err(TableSourceError::RowSecurity {
                source_name: table.name.clone(),
                table: spelled(Some(&schema), &table.table),
            });
        }
        let columns = store.ask(query!("table_source/columns"), &[&number]).await;
        let columns: Vec<_> = columns.map_err(failed)?.iter().map(Column::of).collect();
        let indexes = store.ask(query!("table_source/indexes"), &[&number]).await;
        let indexes: Vec<_> = indexes.map_err(failed)?.iter().map(Index::of).collect();
        let mut it = Self {
            number,
            of_table: format!("{schema}.{}", table.table),
            table: spelled(Some(&schema), &table.table),
            is_served: false,
            hides_some,
            columns,
        };
        let status = it.status(table).map(|column| &*column.name);
        it.is_served = indexes.iter().any(|index| index.serves(table, status));
        it.check_columns(table)?;
        it.check_statuses(table)?;
        it.check_rights(table, may_delete)?;
        it.check_key(table, &indexes)?;
        Ok(it)
    }

    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column whose words say which rows are published, where it is one of words.
    pub(super) fn status(&self, table: &TableSource) -> Option<&Column> {
        let column = self.column(table.published.as_deref()?)?;
        column.is_status().then_some(column)
    }

    /// A status that an enum lacks would fail every batch.
    fn check_statuses(&self, table: &TableSource) -> Result<(), TableSourceError> {
        let Some(name) = table.published.as_deref() else {
            return Ok(());
        };
        let status = self.status(table);
        let problem = match status {
            Some(column) if column.is_enum() => {
                let words = [Some(table.pending()), Some(table.processed())];
                let mut words = words.into_iter().chain([table.failed.as_deref()]).flatten();
                words
                    .find(|word| column.labels.iter().all(|label| label != word))
                    .map(|word| format!("its type has no value {word:?}"))
            }
            None if table.statuses().any(|_| true) => {
                Some("pending, processed and failed are for a text or an enum".to_owned())
            }
            _ => None,
        };
        problem.map_or(Ok(()), |problem| {
            Err(self.unfit(table, name, "published", problem))
        })
    }

    fn check_columns(&self, table: &TableSource) -> Result<(), TableSourceError> {
        for (role, name) in table.columns() {
            let column = self
                .column(name)
                .ok_or_else(|| TableSourceError::NoColumn {
                    source_name: table.name.clone(),
                    table: self.table.clone(),
                    column: quoted(name),
                    role,
                })?;
            let problem = match role {
                "key" | "order" if !column.is_required => Some("it may be null".to_owned()),
                "published" if column.is_enum() => None,
                _ => wanted(role)
                    .filter(|wanted| !wanted.contains(&&*column.of_type))
                    .map(|wanted| {
                        let of_type = &column.of_type;
                        format!("it is of type {of_type}, not {}", wanted.join(" or "))
                    }),
            };
            if let Some(problem) = problem {
                return Err(self.unfit(table, name, role, problem));
            }
        }
        Ok(())
    }

    fn check_rights(&self, table: &TableSource, may_delete: bool) -> Result<(), TableSourceError> {
        let lacks = |right: &str, column: &str| {
            table.lacks(format!(
                "GRANT {right} ({}) ON {}",
                quoted(column),
                self.table
            ))
        };
        for (_, name) in table.columns() {
            if self.column(name).is_some_and(|column| !column.may_select) {
                return Err(lacks("SELECT", name));
            }
        }
        // Locking a row requires the privilege to update one of its columns.
        let marked = table.published.as_ref().unwrap_or(&table.key[0]);
        if self.columns.iter().all(|column| !column.may_update) {
            return Err(lacks("UPDATE", marked));
        }
        for name in [&table.published, &table.published_at]
            .into_iter()
            .flatten()
        {
            if self.column(name).is_some_and(|it| !it.may_update) {
                return Err(lacks("UPDATE", name));
            }
        }
        if table.delete && !may_delete {
            return Err(table.lacks(format!("GRANT DELETE ON {}", self.table)));
        }
        Ok(())
    }

    /// Rows are marked by their key: one that two rows share would mark both and move one.
    fn check_key(&self, table: &TableSource, indexes: &[Index]) -> Result<(), TableSourceError> {
        if indexes.iter().any(|index| index.is_unique_in(&table.key)) {
            return Ok(());
        }
        let problem = "no unique index keeps its values apart".to_owned();
        let column = table.key.join(", ");
        Err(self.unfit(table, &column, "key", problem))
    }

    fn unfit(
        &self,
        table: &TableSource,
        column: &str,
        role: &'static str,
        problem: String,
    ) -> TableSourceError {
        TableSourceError::Column {
            source_name: table.name.clone(),
            table: self.table.clone(),
            column: quoted(column),
            role,
            problem,
        }
    }
}

impl Column {
    fn of(row: &Row) -> Self {
        Self {
            name: row.get("name"),
            of_type: row.get("of_type"),
            is_required: row.get("is_required"),
            labels: row.get("labels"),
            may_select: row.get("may_select"),
            may_update: row.get("may_update"),
        }
    }

    pub(super) fn is_json(&self) -> bool {
        matches!(&*self.of_type, "json" | "jsonb")
    }

    pub(super) fn is_bytes(&self) -> bool {
        self.of_type == "bytea"
    }

    /// Whether its values are words, so that one of them says that a row is published.
    pub(super) fn is_status(&self) -> bool {
        self.is_enum() || TEXTS.contains(&&*self.of_type)
    }

    fn is_enum(&self) -> bool {
        !self.labels.is_empty()
    }
}

/// An index of the table: its columns in order, null for an expression.
struct Index {
    columns: Vec<Option<String>>,
    is_unique: bool,
    is_partial: bool,
}

impl Index {
    fn of(row: &Row) -> Self {
        Self {
            columns: row.get("columns"),
            is_unique: row.get("is_unique"),
            is_partial: row.get("is_partial"),
        }
    }

    fn is_unique_in(&self, key: &[String]) -> bool {
        let named = |column: &Option<String>| column.as_ref().is_some_and(|it| key.contains(it));
        self.is_unique && self.columns.iter().all(named)
    }

    /// Whether it leads to the next rows: by their order, and past those that are published. An
    /// index that begins with the status does so too.
    fn serves(&self, table: &TableSource, status: Option<&str>) -> bool {
        let order = || table.order().iter().map(|name| Some(name.as_str()));
        let columns = || self.columns.iter().map(Option::as_deref);
        let leads = columns().eq(order()) && (self.is_partial || table.delete);
        leads || (status.is_some() && columns().eq([status].into_iter().chain(order())))
    }
}

impl TableSource {
    /// Checks what every description must contain, for any table.
    fn check(&self) -> Result<(), TableSourceError> {
        let both = |one: &Option<String>, other: &Option<String>| one.is_some() && other.is_some();
        let problem = if self.name.is_empty() {
            "it has no name"
        } else if self.key.is_empty() {
            "key names no column"
        } else if self.delete == self.published.is_some() {
            "say either which column marks a row as published, or that rows are deleted"
        } else if self.published_at.is_some()
            && (self.delete || self.published_at == self.published)
        {
            "published_at is a column beside the one that marks a row as published"
        } else if self.delete && self.statuses().any(|_| true) {
            "pending, processed and failed are for a column that marks a row as published"
        } else if self.confuses_statuses() {
            "pending, processed and failed are the same status"
        } else if self.kind.is_some() == self.kind_constant.is_some() {
            "say the event's type either by a column or as a constant"
        } else if both(&self.aggregate_type, &self.aggregate_type_constant) {
            "the aggregate's type is a column or a constant, not both"
        } else if both(&self.tenant, &self.tenant_constant) {
            "the tenant is a column or a constant, not both"
        } else if self.aggregate_id.is_some()
            != (self.aggregate_type.is_some() || self.aggregate_type_constant.is_some())
        {
            "an aggregate has a type and an id"
        } else if !(1..=10_000).contains(&self.batch) {
            "batch is not 1 to 10000"
        } else if self.texts().any(|text| text.contains('\0')) {
            "a name or a constant holds a zero byte"
        } else {
            return Ok(());
        };
        Err(TableSourceError::Description {
            source_name: self.name.clone(),
            problem: problem.to_owned(),
        })
    }

    /// The statuses that are named.
    fn statuses(&self) -> impl Iterator<Item = &str> {
        let statuses = [&self.pending, &self.processed, &self.failed];
        statuses.into_iter().flatten().map(String::as_str)
    }

    /// Whether two statuses are the same to some type of text: rows would be moved without end.
    fn confuses_statuses(&self) -> bool {
        let same = |one: &str, other: &str| one.trim_end().eq_ignore_ascii_case(other.trim_end());
        let (pending, processed) = (self.pending(), self.processed());
        let failed = self.failed.as_deref();
        same(pending, processed)
            || failed.is_some_and(|failed| same(failed, pending) || same(failed, processed))
    }

    /// Every column that is named, with what it is said to be.
    fn columns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let keys = self.key.iter().map(|name| ("key", name.as_str()));
        let order = self.order().iter().map(|name| ("order", name.as_str()));
        let others = [
            ("published", &self.published),
            ("published_at", &self.published_at),
            ("event_id", &self.event_id),
            ("type", &self.kind),
            ("headers", &self.headers),
            ("aggregate_type", &self.aggregate_type),
            ("aggregate_id", &self.aggregate_id),
            ("sequence", &self.sequence),
            ("tenant", &self.tenant),
            ("available_at", &self.available_at),
            ("created_at", &self.created_at),
        ];
        let others = others
            .into_iter()
            .filter_map(|(role, name)| Some((role, name.as_deref()?)));
        let payload = [("payload", self.payload.as_str())];
        keys.chain(order).chain(payload).chain(others)
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let others = [
            self.schema.as_deref(),
            Some(&*self.name),
            Some(&*self.table),
            self.kind_constant.as_deref(),
            self.content_type.as_deref(),
            self.aggregate_type_constant.as_deref(),
            self.tenant_constant.as_deref(),
        ];
        let columns = self.columns().map(|(_, name)| name);
        columns
            .chain(others.into_iter().flatten())
            .chain(self.statuses())
    }

    fn lacks(&self, grant: String) -> TableSourceError {
        TableSourceError::Grant {
            source_name: self.name.clone(),
            grant,
        }
    }
}

/// The types that a column may be of, where not every type will do.
fn wanted(role: &str) -> Option<Vec<&'static str>> {
    let of = |types: &[&[&'static str]]| Some(types.concat());
    match role {
        "published" => of(&[MOMENTS, &["bool"], TEXTS]),
        "event_id" => of(&[&["uuid"], TEXTS]),
        "payload" => of(&[&["json", "jsonb", "bytea"], TEXTS]),
        "headers" => of(&[&["json", "jsonb"], TEXTS]),
        "sequence" => of(&[&["int2", "int4", "int8"]]),
        "available_at" | "created_at" | "published_at" => of(&[MOMENTS]),
        _ => None,
    }
}

fn spelled(schema: Option<&str>, table: &str) -> String {
    let schema = schema.map(|schema| format!("{}.", quoted(schema)));
    format!("{}{}", schema.unwrap_or_default(), quoted(table))
}
