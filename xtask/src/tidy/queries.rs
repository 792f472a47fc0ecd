//! Rules for SQL files: one statement, a comment at the top, named columns, a known folder. Rows are
//! read by column name.

use std::collections::BTreeSet;

use super::{
    Tree,
    source::{is_test, without_tests},
};

/// Columns of a row that may be read by position.
const POSITIONS_MAX: usize = 2;

/// Every SQL file starts with a comment that gives the reason. A query is one statement; a
/// migration may have several, and so may the rows that a test or a benchmark inserts.
pub(super) fn one_statement(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".sql") {
        if !text.starts_with("-- ") {
            findings.push(format!("{path}:1: must start with `-- ` and a reason"));
        }
        let count = statements(text);
        let may_be_many = ["/migrations/", "/tests/", "/plant/"]
            .iter()
            .any(|folder| path.contains(folder));
        if !may_be_many && count != 1 {
            findings.push(format!("{path}: {count} statements, one is allowed"));
        }
        for (line, number) in bare(text).lines().zip(1..) {
            let line = line.to_uppercase();
            if ["SELECT *", "RETURNING *", ".*"]
                .iter()
                .any(|all| line.contains(all))
            {
                findings.push(format!("{path}:{number}: columns must be listed by name"));
            }
        }
    }
    findings
}

/// The number of statements in the text.
fn statements(text: &str) -> usize {
    // An anonymous block is one statement, even if its body contains several.
    let bare = bare(text);
    let outside: String = bare.split("$$").step_by(2).collect();
    outside
        .split(';')
        .filter(|part| !part.trim().is_empty())
        .count()
}

/// The text without comments and quoted strings, with its line breaks.
fn bare(text: &str) -> String {
    let mut bare = String::with_capacity(text.len());
    for line in text.lines() {
        let mut quoted = false;
        for (at, letter) in line.char_indices() {
            if !quoted && line[at..].starts_with("--") {
                break;
            }
            quoted ^= letter == '\'';
            if !quoted {
                bare.push(letter);
            }
        }
        bare.push('\n');
    }
    bare
}

/// A folder of queries has the name of a module of the library, except for queries that only one
/// store needs.
pub(super) fn columns(tree: &Tree) -> Vec<String> {
    let mut findings = BTreeSet::new();
    for (path, text) in tree.within("crates/", ".sql") {
        let Some((_, query)) = path.split_once("/queries/") else {
            continue;
        };
        if is_alone(text) {
            continue;
        }
        let noun = query.split('/').next().unwrap_or_default();
        let file = format!("crates/hapax/src/{noun}.rs");
        if !tree.holds(&file) && !tree.holds(&format!("crates/hapax/src/{noun}/mod.rs")) {
            findings.insert(format!("{path}: the library has no module `{noun}`"));
        }
    }
    findings.into_iter().collect()
}

/// Two stores have the same queries, and so has a service that runs on both. A query that only one
/// of them needs contains `Only here:` and the reason in the comment at its top.
pub(super) fn twins(tree: &Tree) -> Vec<String> {
    let pairs = [
        (
            "crates/hapax-sqlite/queries/",
            "crates/hapax-postgres/queries/",
        ),
        (
            "examples/shop/queries/sqlite/",
            "examples/shop/queries/postgres/",
        ),
    ];
    let mut findings = Vec::new();
    for (one, other) in pairs {
        let (ones, others) = (names(tree, one), names(tree, other));
        if ones.is_empty() || others.is_empty() {
            continue;
        }
        let lacks = |folder: &str, name: &&str| {
            format!("{folder}: lacks {name}, which the other store has")
        };
        findings.extend(ones.difference(&others).map(|name| lacks(other, name)));
        findings.extend(others.difference(&ones).map(|name| lacks(one, name)));
    }
    findings
}

fn names<'a>(tree: &'a Tree, folder: &'a str) -> BTreeSet<&'a str> {
    tree.under(folder)
        .filter(|(_, text)| !is_alone(text))
        .map(|(path, _)| &path[folder.len()..])
        .collect()
}

/// Whether the comment at the top says that only one store needs the query.
fn is_alone(text: &str) -> bool {
    let mut reason = text.lines().take_while(|line| line.starts_with("--"));
    reason.any(|line| line.contains("Only here: "))
}

/// A crate with queries reads rows by column name, except for the first two columns.
pub(super) fn read_by_name(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.within("crates/", ".rs") {
        let Some((folder, _)) = path.split_once("/src/") else {
            continue;
        };
        if is_test(path) || !tree.holds(&format!("{folder}/queries")) {
            continue;
        }
        for (line, number) in without_tests(text).lines().zip(1..) {
            for place in positions(line).filter(|place| *place >= POSITIONS_MAX) {
                findings.push(format!(
                    "{path}:{number}: column {place} of a row must be read by its name"
                ));
            }
        }
    }
    findings
}

/// The numbers that a line passes to `get`, `try_get` or `get_ref`, with or without a type.
fn positions(line: &str) -> impl Iterator<Item = usize> {
    [".get", ".try_get", ".get_ref"]
        .iter()
        .flat_map(|call| line.match_indices(call))
        .filter_map(|(at, call)| {
            let after = &line[at + call.len()..];
            let after = after.strip_prefix("::<").map_or(Some(after), after_types);
            let (argument, _) = after?.strip_prefix('(')?.split_once(')')?;
            argument.trim().parse().ok()
        })
}

/// What follows a list of types, after its opening `<`.
fn after_types(text: &str) -> Option<&str> {
    let mut open = 1;
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => open += 1,
            '>' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(&text[at + 1..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_one_statement_with_its_reason_and_its_columns() {
        let tree = Tree::of(&[
            (
                "s/queries/outbox/a.sql",
                "-- Why; this.\nSELECT id -- not two; really\nFROM t WHERE x = ';';\n",
            ),
            (
                "s/queries/outbox/b.sql",
                "SELECT * FROM t;\nDELETE FROM t;\n",
            ),
            (
                "s/migrations/0001_a.sql",
                "-- Lays the tables.\nCREATE a;\nCREATE b;\n",
            ),
            ("s/queries/outbox/none.sql", "-- Nothing.\n"),
            (
                "s/queries/outbox/n.sql",
                "-- How many.\nSELECT count(*) FROM t\n",
            ),
        ]);
        assert_eq!(
            one_statement(&tree),
            [
                "s/queries/outbox/b.sql:1: must start with `-- ` and a reason",
                "s/queries/outbox/b.sql: 2 statements, one is allowed",
                "s/queries/outbox/b.sql:1: columns must be listed by name",
                "s/queries/outbox/none.sql: 0 statements, one is allowed",
            ]
        );
    }

    #[test]
    fn a_folder_of_queries_is_a_noun_of_the_library() {
        let tree = Tree::of(&[
            ("crates/hapax/src/outbox.rs", ""),
            ("crates/hapax/src/saga/mod.rs", ""),
            ("crates/hapax-sqlite/queries/outbox/read.sql", ""),
            ("crates/hapax-sqlite/queries/saga/step.sql", ""),
            ("crates/hapax-sqlite/queries/jobs/read.sql", ""),
            (
                "crates/hapax-sqlite/queries/session/reset.sql",
                "-- Resets.\n-- Only here: the other keeps nothing.\nRESET ALL\n",
            ),
        ]);
        assert_eq!(
            columns(&tree),
            ["crates/hapax-sqlite/queries/jobs/read.sql: the library has no module `jobs`"]
        );
    }

    #[test]
    fn a_column_is_read_by_its_name_from_the_third_on() {
        let reads = "//! a\nrow.get(0)?;\nrow.try_get::<_, Option<Vec<i64>>>(1);\n\
                     (row.get(2)?, row.get(\"id\")?);\nrow.try_get::<_, Option<Vec<i64>>>(13);\n\
                     row.get_ref(4)?;\n.get::<_, (i64, i64)>(5)\nrow.get(first + 2);\n\
                     #[cfg(test)]\nmod tests {\n    row.get(3);\n}\n";
        let tree = Tree::of(&[
            ("crates/hapax-sqlite/queries/outbox/read.sql", ""),
            ("crates/hapax-sqlite/src/outbox.rs", reads),
            ("crates/hapax-sqlite/src/outbox/tests.rs", reads),
            ("crates/hapax-sqlite/tests/it/outbox.rs", reads),
            ("crates/hapax-sinks/src/smtp.rs", reads),
        ]);
        let expected = [(4, 2), (5, 13), (6, 4), (7, 5)].map(|(line, place)| {
            format!(
                "crates/hapax-sqlite/src/outbox.rs:{line}: column {place} of a row must be read by \
                 its name"
            )
        });
        assert_eq!(read_by_name(&tree), expected);
    }

    #[test]
    fn two_stores_have_the_same_queries() {
        let tree = Tree::of(&[
            ("crates/hapax-sqlite/queries/outbox/read.sql", ""),
            ("crates/hapax-sqlite/queries/outbox/emit.sql", ""),
            ("crates/hapax-postgres/queries/outbox/read.sql", ""),
            (
                "crates/hapax-postgres/queries/outbox/cluster.sql",
                "-- Says which cluster this is.\n-- Only here: the other has none.\nSELECT 1\n",
            ),
            (
                "crates/hapax-postgres/queries/outbox/look.sql",
                "-- Looks.\nSELECT 1 -- Only here: too late\n",
            ),
            ("examples/shop/queries/sqlite/find.sql", ""),
        ]);
        assert_eq!(
            twins(&tree),
            [
                "crates/hapax-postgres/queries/: lacks outbox/emit.sql, which the other store has",
                "crates/hapax-sqlite/queries/: lacks outbox/look.sql, which the other store has",
            ]
        );
    }
}
