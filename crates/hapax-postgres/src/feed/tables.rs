//! Tables of the publication, as the server has described them on this connection.
//!
//! A publication may send the changes of partitions under the name of their root. Each leaf keeps its
//! own replica identity, while the marks of a change (which columns are the key, whether the old row
//! is whole) are those of the root. So an old row that is called whole may have nulls in place of
//! values that were not sent. The server describes the root and then the leaf, before the
//! first change of that leaf and after each change of its definition. Later changes do not say of
//! which leaf they are, but the nulls of their old rows do.
//!
//! A description names a table. A table that is renamed, or whose publication sends the changes of its
//! partitions under other names from now on, is recognized by its object id; see `aliases`.

use std::{collections::HashMap, mem::take};

use super::{
    FeedTable,
    pgoutput::{Datum, Message, Relation},
};

/// The tables that the server has described.
#[derive(Debug, Default)]
pub(super) struct Tables<'a> {
    known: HashMap<u32, Table<'a>>,
    /// The table that was described last, and the one just before it, if no message of another kind
    /// came since.
    latest: Option<u32>,
    previous: Option<u32>,
}

/// A table of the publication.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) relation: Relation,
    /// The table's description in the feed; none if its changes are ignored.
    pub(super) described: Option<&'a FeedTable>,
    pub(super) leaves: Leaves,
    /// Tables that the feed describes and whose changes may have the name of this table, if the feed
    /// does not describe this name.
    pub(super) aliases: Vec<&'a FeedTable>,
    /// The object ids of the table and its partitions of which the catalog was not asked.
    unknown: Vec<u32>,
    /// Whether it was reported that its changes are ignored.
    is_reported: bool,
}

/// The partitions whose changes are sent under the name of this table, by their object ids.
#[derive(Debug, Default)]
pub(super) struct Leaves(HashMap<u32, Leaf>);

/// A partition whose changes are sent under the name of its root.
#[derive(Debug)]
struct Leaf {
    /// Its schema and name.
    name: String,
    /// The content of its old rows in each column of the root.
    columns: Vec<Sent>,
}

/// Whether an old row has a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It is part of the replica identity, of which no column may be null unless the identity is full.
    Always,
    /// It is not part of the replica identity: it is sent as null.
    Never,
    /// The server has not described it.
    Unknown,
}

impl<'a> Tables<'a> {
    /// Adds or replaces the definition of a table.
    pub(super) fn learn(&mut self, relation: Relation, described: Option<&'a FeedTable>) {
        let id = relation.id;
        (self.previous, self.latest) = (self.latest, Some(id));
        let mut table = Table {
            relation,
            described,
            leaves: Leaves::default(),
            aliases: Vec::new(),
            unknown: vec![id],
            is_reported: false,
        };
        if let Some(before) = self.known.remove(&id) {
            table.keep(before);
        }
        self.known.insert(id, table);
    }

    /// Notes of which table a message is: a change right after the definitions of its table and of
    /// another one is a change of that other table, which is a leaf.
    pub(super) fn follow(&mut self, message: &Message) {
        match message {
            // A type is described before the table that has a column of it.
            Message::Relation(_) | Message::Other => {}
            Message::Insert { relation, .. }
            | Message::Update { relation, .. }
            | Message::Delete { relation, .. } => self.changed(*relation),
            _ => (self.previous, self.latest) = (None, None),
        }
    }

    /// The same for a change that is not decoded.
    pub(super) fn changed(&mut self, root: u32) {
        let (previous, latest) = (self.previous.take(), self.latest.take());
        let Some(id) = latest.filter(|leaf| previous == Some(root) && *leaf != root) else {
            return;
        };
        let leaf = self.known.get(&id);
        let leaf = leaf.map(|leaf| (leaf.relation.clone(), leaf.described));
        let (Some((leaf, of_leaf)), Some(root)) = (leaf, self.known.get_mut(&root)) else {
            return;
        };
        let new = Leaf::of(&root.relation, &leaf);
        if root.leaves.0.insert(id, new).is_none() {
            root.unknown.push(id);
        }
        root.add_aliases(of_leaf);
        // The publication may send the next changes of the leaf under its own name.
        let of_root = root.described;
        if let Some(leaf) = self.known.get_mut(&id) {
            leaf.add_aliases(of_root);
        }
    }

    /// The table of this object id.
    pub(super) fn find(&mut self, id: u32) -> Option<&mut Table<'a>> {
        self.known.get_mut(&id)
    }
}

impl<'a> Table<'a> {
    /// Keeps what is known of the table since its last definition.
    fn keep(&mut self, before: Self) {
        // The root is described again with each leaf. If its columns have changed, so have those of
        // all leaves, and each is described again before its next change.
        if has_same_columns(&before.relation, &self.relation) {
            (self.leaves, self.is_reported) = (before.leaves, before.is_reported);
        }
        self.aliases = before.aliases;
        if has_same_name(&before.relation, &self.relation) {
            self.unknown = before.unknown;
        } else {
            self.is_reported = false;
            self.add_aliases(before.described);
        }
    }

    /// Adds described tables whose changes may have the name of this table.
    pub(super) fn add_aliases(&mut self, described: impl IntoIterator<Item = &'a FeedTable>) {
        for table in described {
            if !self.aliases.contains(&table) {
                self.aliases.push(table);
            }
        }
    }

    /// The object ids of the table and its partitions of which the catalog was not asked so far.
    pub(super) fn take_unknown(&mut self) -> Vec<u32> {
        take(&mut self.unknown)
    }

    /// Logs, once, that the changes of the table are ignored.
    pub(super) fn report_ignored(&mut self, feed: &str) {
        if self.is_reported {
            return;
        }
        self.is_reported = true;
        let Relation { schema, table, .. } = &self.relation;
        tracing::warn!(
            feed,
            schema,
            table,
            "the publication has a table that the feed does not describe: it is ignored"
        );
    }
}

impl Leaves {
    /// Whether the server has described no leaf: the table is not partitioned, or each leaf has its own
    /// name in the changes.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an old row that is called whole may be the key of a leaf, so that its nulls are no
    /// values. A whole row is taken for a key only if it has exactly the nulls of one: then the two
    /// look the same.
    pub(super) fn may_be_key(&self, row: &[Datum]) -> bool {
        self.0.values().any(|leaf| leaf.may_have(row))
    }

    /// The name of the leaf that a row must be of, if it can be of one leaf only.
    pub(super) fn only(&self, row: &[Datum]) -> Option<&str> {
        let mut leaves = self.0.values().filter(|leaf| leaf.may_have(row));
        let only = leaves.next()?;
        leaves.next().is_none().then_some(only.name.as_str())
    }
}

impl Leaf {
    fn of(root: &Relation, leaf: &Relation) -> Self {
        let sent = |name: &str| match leaf.columns.iter().find(|it| it.name == name) {
            Some(column) if column.is_key => Sent::Always,
            Some(_) => Sent::Never,
            // A column list of the publication may hide it.
            None => Sent::Unknown,
        };
        Self {
            name: format!("{}.{}", leaf.schema, leaf.table),
            columns: root.columns.iter().map(|it| sent(&it.name)).collect(),
        }
    }

    /// Whether an old row can be of this leaf with only the columns of its identity.
    fn may_have(&self, row: &[Datum]) -> bool {
        let mut columns = self.columns.iter().zip(row);
        columns.all(|(sent, datum)| match sent {
            Sent::Always => *datum != Datum::Null,
            Sent::Never => *datum == Datum::Null,
            Sent::Unknown => true,
        })
    }
}

fn has_same_name(one: &Relation, other: &Relation) -> bool {
    one.schema == other.schema && one.table == other.table
}

fn has_same_columns(one: &Relation, other: &Relation) -> bool {
    let others = other.columns.iter().map(|column| &column.name);
    one.columns.iter().map(|column| &column.name).eq(others)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::feed::pgoutput::Column;

    const ROOT: u32 = 1;
    const LEAF: u32 = 2;

    /// A table with these columns, of which those with a star are the key.
    fn relation(id: u32, columns: &[&str]) -> Relation {
        let column = |name: &&str| Column {
            name: name.trim_end_matches('*').to_owned(),
            is_key: name.ends_with('*'),
            of_type: 25,
        };
        Relation {
            id,
            schema: "public".to_owned(),
            table: format!("t{id}"),
            columns: columns.iter().map(column).collect(),
        }
    }

    fn insert(relation: u32) -> Message {
        let new = Vec::new();
        Message::Insert { relation, new }
    }

    fn row(values: [bool; 3]) -> Vec<Datum> {
        let datum = |has: bool| {
            if has {
                Datum::Text(Bytes::from_static(b"x"))
            } else {
                Datum::Null
            }
        };
        values.map(datum).to_vec()
    }

    /// The root, and a leaf with these columns.
    fn partitioned(leaf: &[&str]) -> Tables<'static> {
        let mut tables = Tables::default();
        tables.learn(relation(ROOT, &["id*", "status*", "note*"]), None);
        tables.follow(&Message::Other);
        tables.learn(relation(LEAF, leaf), None);
        tables.follow(&insert(ROOT));
        tables
    }

    #[track_caller]
    fn check(tables: &mut Tables<'_>, values: [bool; 3], expected: bool) {
        let root = tables.find(ROOT).unwrap();
        assert_eq!(root.leaves.may_be_key(&row(values)), expected);
    }

    #[test]
    fn a_row_with_the_nulls_of_a_key_of_a_leaf_is_taken_for_one() {
        let mut tables = partitioned(&["note", "status", "id*"]);
        check(&mut tables, [true, false, false], true);
        check(&mut tables, [true, true, false], false);
        check(&mut tables, [false, false, false], false);
        let leaves = &tables.find(ROOT).unwrap().leaves;
        assert_eq!(leaves.only(&row([true, false, false])), Some("public.t2"));
        // The leaf gets a full identity.
        tables.learn(relation(ROOT, &["id*", "status*", "note*"]), None);
        tables.learn(relation(LEAF, &["note*", "status*", "id*"]), None);
        tables.follow(&insert(ROOT));
        check(&mut tables, [true, false, false], false);
    }

    #[test]
    fn a_column_that_the_leaf_does_not_describe_may_be_missing() {
        let mut tables = partitioned(&["id*", "note"]);
        check(&mut tables, [true, false, false], true);
        check(&mut tables, [true, true, false], true);
        check(&mut tables, [true, false, true], false);
    }

    #[test]
    fn a_leaf_is_named_only_if_the_row_can_be_of_no_other() {
        let mut tables = partitioned(&["id*", "status", "note"]);
        tables.learn(relation(ROOT, &["id*", "status*", "note*"]), None);
        tables.learn(relation(3, &["id*", "status", "note"]), None);
        tables.follow(&insert(ROOT));
        let leaves = &tables.find(ROOT).unwrap().leaves;
        assert_eq!(leaves.only(&row([true, false, false])), None);
    }

    #[test]
    fn tables_that_are_described_for_another_reason_are_no_leaves() {
        let mut tables = Tables::default();
        // Two tables are truncated, and then the first one is changed.
        tables.learn(relation(ROOT, &["id*", "status*", "note*"]), None);
        tables.learn(relation(LEAF, &["id*", "status", "note"]), None);
        let relations = vec![ROOT, LEAF];
        tables.follow(&Message::Truncate { relations });
        tables.follow(&insert(ROOT));
        assert!(tables.find(ROOT).unwrap().leaves.is_empty());
        // A change of the table that was described last.
        tables.learn(relation(ROOT, &["id*", "status*", "note*"]), None);
        tables.learn(relation(LEAF, &["id*", "status", "note"]), None);
        tables.follow(&insert(LEAF));
        assert!(tables.find(LEAF).unwrap().leaves.is_empty());
        assert!(tables.find(ROOT).unwrap().leaves.is_empty());
    }

    /// The names of the described tables whose changes may have the name of a table.
    #[track_caller]
    fn check_aliases(tables: &mut Tables<'_>, id: u32, expected: &[&str]) {
        let table = tables.find(id).unwrap();
        let aliases: Vec<_> = table.aliases.iter().map(|it| it.table.as_str()).collect();
        assert_eq!(aliases, expected);
    }

    fn described(table: &str) -> FeedTable {
        FeedTable {
            schema: "public".to_owned(),
            table: table.to_owned(),
            ..FeedTable::default()
        }
    }

    #[test]
    fn a_table_that_is_renamed_is_known_by_its_object_id() {
        let described = described("t1");
        let mut tables = Tables::default();
        tables.learn(relation(ROOT, &["id*"]), Some(&described));
        check_aliases(&mut tables, ROOT, &[]);
        let mut renamed = relation(ROOT, &["id*", "note"]);
        renamed.table = "t3".to_owned();
        tables.learn(renamed.clone(), None);
        tables.learn(renamed, None);
        check_aliases(&mut tables, ROOT, &["t1"]);
        assert_eq!(tables.find(ROOT).unwrap().take_unknown(), [ROOT]);
        assert!(tables.find(ROOT).unwrap().take_unknown().is_empty());
    }

    #[test]
    fn a_root_and_its_leaves_are_known_by_each_other() {
        let (root, leaf) = (described("t1"), described("t2"));
        let mut tables = Tables::default();
        tables.learn(relation(ROOT, &["id*"]), Some(&root));
        tables.learn(relation(LEAF, &["id*"]), None);
        tables.follow(&insert(ROOT));
        check_aliases(&mut tables, LEAF, &["t1"]);
        let mut tables = Tables::default();
        tables.learn(relation(ROOT, &["id*"]), None);
        tables.learn(relation(LEAF, &["id*"]), Some(&leaf));
        tables.follow(&insert(ROOT));
        check_aliases(&mut tables, ROOT, &["t2"]);
        assert_eq!(tables.find(ROOT).unwrap().take_unknown(), [ROOT, LEAF]);
    }

    #[test]
    fn leaves_are_forgotten_with_the_columns_of_the_root() {
        let mut tables = partitioned(&["id*", "status", "note"]);
        tables.learn(relation(ROOT, &["id*", "status", "note"]), None);
        assert!(!tables.find(ROOT).unwrap().leaves.is_empty());
        tables.learn(relation(ROOT, &["id*", "state", "note"]), None);
        assert!(tables.find(ROOT).unwrap().leaves.is_empty());
    }
}
