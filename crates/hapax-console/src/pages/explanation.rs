//! Settings and their meanings, read from the tables of a reference page.
//!
//! The file of defaults of `hapax` explains each setting in the comment above it. [`table`] makes a
//! Markdown table of it, so that both programs have pages with the same kind of tables.
//! [`constants`] does the same for the limits, which are a Rust file.

use std::fmt::Write as _;

/// Tables of settings whose last name is chosen by the operator.
const NAMED: [&str; 3] = ["admin.tokens.", "destinations.", "sources."];

/// A Markdown table of the settings of a file of defaults. A setting that is commented out has no
/// default; its value is an example.
pub(super) fn table(file: &str) -> String {
    let mut table = "| setting | meaning | default, or an example |\n|---|---|---|\n".to_owned();
    let (mut section, mut meaning) = (String::new(), String::new());
    for line in file.lines() {
        let comment = line.strip_prefix('#').map(str::trim);
        let text = comment.unwrap_or(line);
        if text.is_empty() {
            meaning.clear();
        } else if let Some(name) = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            section = general(name);
        } else if let Some((name, value)) = assigned(text) {
            let (value, remark) = value.split_once("  #").unwrap_or((value, meaning.as_str()));
            let (value, remark) = (cell(value), cell(remark));
            let such_as = comment.map_or("", |_| "such as ");
            let _ = writeln!(
                table,
                "| `{section}.{name}` | {remark} | {such_as}`{value}` |"
            );
        } else {
            append(&mut meaning, text);
        }
    }
    table
}

/// A Markdown table of the public constants of a Rust file, each with the comment above it. A
/// constant is one line.
pub(super) fn constants(file: &str) -> String {
    let mut table = "| limit | meaning | value |\n|---|---|---|\n".to_owned();
    let mut meaning = String::new();
    for line in file.lines() {
        if let Some(comment) = line.strip_prefix("///") {
            // The links between the constants have no target here.
            let text = comment.trim().replace("[`", "`").replace("`]", "`");
            append(&mut meaning, &text);
        } else if let Some((name, value)) = constant(line) {
            let (meaning_cell, value) = (cell(&meaning), cell(value));
            let _ = writeln!(table, "| `{name}` | {meaning_cell} | `{value}` |");
            meaning.clear();
        }
    }
    table
}

/// The name of a setting as the tables of a page have it, and its meaning in Markdown.
pub(super) fn find(page: &str, setting: &str) -> Option<(String, String)> {
    let mut column = None;
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let line = line.replace("\\|", "\u{1}");
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let Some(head) = cells.iter().position(|cell| *cell == "meaning") {
            column = Some(head);
            continue;
        }
        let Some((names, meaning)) = column.and_then(|at| cells.split_at_checked(at)) else {
            continue;
        };
        let mut found = names.iter().map(|cell| name_in(cell));
        let found = found.find(|name| fits(name, setting));
        if let (Some(name), Some(meaning)) = (found, meaning.first()) {
            return Some((name.to_owned(), meaning.replace('\u{1}', "|")));
        }
    }
    None
}

/// The name in a cell such as `` `relay = false` `` or `` `[tokens]` ``.
fn name_in(cell: &str) -> &str {
    let name = cell.trim_matches('`').split(" = ").next();
    name.unwrap_or_default().trim_matches(['[', ']'])
}

/// Whether a setting is the one with this name, or below it: `destinations.NAME.sink` is that of any
/// destination.
fn fits(name: &str, setting: &str) -> bool {
    let mut steps = setting.split('.');
    !name.is_empty()
        && name.split('.').all(|step| {
            let other = steps.next();
            other.is_some_and(|other| step == other || step == "NAME")
        })
}

/// A line such as `name = value`.
fn assigned(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(" = ")?;
    let is_name = |letter: char| letter.is_ascii_lowercase() || matches!(letter, '_' | '.');
    name.chars().all(is_name).then_some((name, value))
}

/// A line such as `pub const NAME: TYPE = VALUE;`.
fn constant(line: &str) -> Option<(&str, &str)> {
    let (name, declared) = line.strip_prefix("pub const ")?.split_once(": ")?;
    let (_, value) = declared.split_once(" = ")?;
    Some((name, value.trim_end_matches(';')))
}

/// Appends a line of a comment.
fn append(meaning: &mut String, line: &str) {
    let gap = if meaning.is_empty() { "" } else { " " };
    let _ = write!(meaning, "{gap}{line}");
}

/// The name of a section, with `NAME` in the place of a name that the operator chooses.
fn general(section: &str) -> String {
    let named = NAMED.iter().find(|it| section.starts_with(*it));
    named.map_or_else(|| section.to_owned(), |it| format!("{it}NAME"))
}

fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# The settings of a program.\n\n[relay]\n# Name of this relay,\n# or none.\n\
        # node = \"relay-1\"\n\n# How long: a|b.\nlease = \"5s\"\n\n# Each [destinations.NAME] is one.\n\
        # [destinations.billing]\n# concurrency = 32  # how many at once\n#\n# Exactly one:\n\
        # sink.file = { path = \"/a\" }\n";

    #[test]
    fn every_setting_of_a_file_is_a_row_with_its_comment() {
        let expected = "| setting | meaning | default, or an example |\n|---|---|---|\n\
            | `relay.node` | Name of this relay, or none. | such as `\"relay-1\"` |\n\
            | `relay.lease` | How long: a\\|b. | `\"5s\"` |\n\
            | `destinations.NAME.concurrency` | how many at once | such as `32` |\n\
            | `destinations.NAME.sink.file` | Exactly one: | such as `{ path = \"/a\" }` |\n";
        assert_eq!(table(FILE), expected);
    }

    #[test]
    fn every_constant_of_a_file_is_a_row_with_its_comment() {
        let file = "//! Limits.\n\nuse std::time::Duration;\n\n/// Bytes of a\n/// key, see [`B`].\n\
            pub const A_MAX: usize = 4 * 1024;\n/// How long: a|b.\n\
            pub const B: (Duration, u8) = (Duration::from_secs(1), 7);\n";
        let expected = "| limit | meaning | value |\n|---|---|---|\n\
            | `A_MAX` | Bytes of a key, see `B`. | `4 * 1024` |\n\
            | `B` | How long: a\\|b. | `(Duration::from_secs(1), 7)` |\n";
        assert_eq!(constants(file), expected);
        let limits = include_str!("../../reference/limits.rs");
        let rows = constants(limits).lines().count() - 2;
        assert_eq!(rows, limits.matches("pub const ").count());
        assert!(
            !constants(limits).contains("|  |"),
            "a limit has no meaning"
        );
    }

    #[test]
    fn a_setting_is_found_by_its_name_and_by_that_of_its_table() {
        let table = table(FILE);
        check(&table, "relay.lease", Some("How long: a|b."));
        check(
            &table,
            "destinations.mail.concurrency",
            Some("how many at once"),
        );
        check(
            &table,
            "destinations.mail.sink.file.path",
            Some("Exactly one:"),
        );
        check(&table, "relay", None);
        check(&table, "relay.leases", None);
        let page = "| flag | file | meaning | default |\n|---|---|---|---|\n\
            | `--config FILE` | | reads a file | |\n| `--token T` | `[tokens]` | the tokens | |\n\
            | `--no-relay` | `relay = false` | no relay | runs |\n\n\
            | route | key |\n|---|---|\n| `tokens` | required |\n";
        check(page, "tokens", Some("the tokens"));
        check(page, "relay", Some("no relay"));
        check(page, "config", None);
    }

    #[test]
    fn every_setting_of_both_programs_is_explained() {
        let defaults = include_str!("../../reference/hapax.default.toml");
        let table = table(defaults);
        assert!(
            !table.contains("|  |"),
            "a setting has no meaning:\n{table}"
        );
        for setting in [
            "relay.lease",
            "admin.console",
            "destinations.a.order",
            "sources.a.batch",
        ] {
            assert!(find(&table, setting).is_some(), "{setting}\n{table}");
        }
        let shop = include_str!("../../reference/configuration.md");
        for setting in [
            "listen",
            "tokens",
            "relay",
            "idempotency.on_expired",
            "store.group_max",
        ] {
            assert!(find(shop, setting).is_some(), "{setting}");
        }
    }

    #[track_caller]
    fn check(page: &str, setting: &str, meaning: Option<&str>) {
        let found = find(page, setting).map(|(_, meaning)| meaning);
        assert_eq!(found.as_deref(), meaning, "{setting}");
    }
}
