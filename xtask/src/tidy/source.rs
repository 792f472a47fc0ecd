//! Rules for Rust files: length, module docs, names, and tests that wait for conditions.

use super::Tree;

const LINES_MAX: usize = 600;
const METHODS_MAX: usize = 8;
const NO_NAMES: &[&str] = &[
    "util", "utils", "common", "manager", "helper", "helpers", "misc", "data", "info", "process",
];

/// Whether the file contains only tests.
pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The file without its test module, which is at the end.
pub(super) fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {")
        .map_or(text, |at| &text[..at])
}

/// No file is longer than `LINES_MAX`, not counting tests.
pub(super) fn short(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| !is_test(path)) {
        let lines = without_tests(text).lines().count();
        if lines > LINES_MAX {
            findings.push(format!(
                "{path}: {lines} lines, at most {LINES_MAX} are allowed"
            ));
        }
    }
    findings
}

/// No trait has more than `METHODS_MAX` methods.
pub(super) fn narrow(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| !is_test(path)) {
        let mut open: Option<(&str, usize)> = None;
        for line in without_tests(text).lines() {
            match &mut open {
                Some((name, methods)) if line == "}" => {
                    if *methods > METHODS_MAX {
                        findings.push(format!(
                            "{path}: trait {name} has {methods} methods, at most {METHODS_MAX} are \
                             allowed"
                        ));
                    }
                    open = None;
                }
                Some((_, methods)) => *methods += usize::from(is_method(line)),
                None => open = trait_name(line).map(|name| (name, 0)),
            }
        }
    }
    findings
}

fn is_method(line: &str) -> bool {
    let line = line.strip_prefix("    ").unwrap_or_default();
    line.starts_with("fn ") || line.starts_with("async fn ") || line.starts_with("const fn ")
}

/// The name of the trait whose body begins after `line`, or on a later line.
fn trait_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
    let line = line.strip_prefix("pub(super) ").unwrap_or(line);
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let name = line
        .strip_prefix("trait ")
        .filter(|it| !it.ends_with("{}"))?;
    name.split(|it: char| !it.is_alphanumeric()).next()
}

/// Every file starts with a module doc. A link to a file has no text here.
pub(super) fn documented(tree: &Tree) -> Vec<String> {
    tree.ending(".rs")
        .filter(|(_, text)| !text.is_empty() && !text.starts_with("//! "))
        .map(|(path, _)| format!("{path}:1: must start with a module doc, `//! `"))
        .collect()
}

/// No file or module has a name that says nothing about its content.
pub(super) fn named(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for part in path.trim_end_matches(".rs").split('/') {
            if NO_NAMES.contains(&part) {
                findings.push(format!("{path}: `{part}` is too general: name the content"));
            }
        }
        for (line, number) in text.lines().zip(1..) {
            if let Some(name) = declared(line).filter(|name| NO_NAMES.contains(name)) {
                findings.push(format!("{path}:{number}: `mod {name}` is too general"));
            }
        }
    }
    findings
}

/// The name of the module that a line declares with its body.
fn declared(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("mod ")?;
    let declares = before.trim().is_empty() || before.trim_start().starts_with("pub");
    declares.then(|| after.trim_end_matches([' ', '{', '}']))
}

/// Tests wait for conditions, and no test is ignored.
pub(super) fn tests_do_not_wait(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let tests = if is_test(path) {
            text
        } else {
            &text[without_tests(text).len()..]
        };
        let above = text[..text.len() - tests.len()].lines().count();
        for (line, number) in tests.lines().zip(above + 1..) {
            if line.trim_start().starts_with("#[ignore") {
                findings.push(format!("{path}:{number}: a test must not be ignored"));
            }
            if sleeps(line) {
                findings.push(format!(
                    "{path}:{number}: a test must wait for a condition, not for a time"
                ));
            }
        }
    }
    findings
}

/// Whether a line calls one of the functions that sleep, with or without a path.
fn sleeps(line: &str) -> bool {
    ["sleep(", "sleep_until(", "park_timeout("]
        .iter()
        .flat_map(|call| line.match_indices(call))
        .any(|(at, _)| {
            !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_be_600_lines_long_and_its_tests_do_not_count() {
        let fits = "x\n".repeat(600) + "#[cfg(test)]\nmod tests {\n" + &"t\n".repeat(500);
        let long = "x\n".repeat(601);
        let tree = Tree::of(&[
            ("src/fits.rs", &fits),
            ("src/long.rs", &long),
            ("a/tests/it/long.rs", &long),
        ]);
        assert_eq!(
            short(&tree),
            ["src/long.rs: 601 lines, at most 600 are allowed"]
        );
    }

    #[test]
    fn what_follows_a_mere_declaration_of_tests_counts() {
        let long = "#[cfg(test)]\nmod tests;\n".to_owned() + &"x\n".repeat(599);
        let found = short(&Tree::of(&[("src/long.rs", &long)]));
        assert_eq!(found, ["src/long.rs: 601 lines, at most 600 are allowed"]);
    }

    #[test]
    fn a_trait_has_eight_methods_at_most() {
        let methods = |count: usize| "    /// It.\n    fn it(&self);\n".repeat(count) + "}\n";
        let fits = "pub trait Fits: Send {\n".to_owned() + &methods(8);
        let wide = fits.clone() + "trait Wide<T>\nwhere\n    T: Send,\n{\n" + &methods(9);
        let tree = Tree::of(&[("src/fits.rs", &fits), ("src/wide.rs", &wide)]);
        let expected = "src/wide.rs: trait Wide has 9 methods, at most 8 are allowed";
        assert_eq!(narrow(&tree), [expected]);
    }

    #[test]
    fn a_file_begins_with_what_it_is_for() {
        let tree = Tree::of(&[("a.rs", "//! The key.\n"), ("b.rs", "use std::fmt;\n")]);
        assert_eq!(
            documented(&tree),
            ["b.rs:1: must start with a module doc, `//! `"]
        );
    }

    #[test]
    fn a_name_that_says_nothing_is_found_as_file_folder_and_module() {
        let tree = Tree::of(&[
            ("src/util.rs", "//! a\n"),
            ("src/common/mod.rs", "//! a\n"),
            (
                "src/lib.rs",
                "//! a\npub mod helper {\n}\nmod key;\n// a mod of data\n",
            ),
            ("src/inform.rs", "//! a\n"),
        ]);
        assert_eq!(
            named(&tree),
            [
                "src/common/mod.rs: `common` is too general: name the content",
                "src/lib.rs:2: `mod helper` is too general",
                "src/util.rs: `util` is too general: name the content",
            ]
        );
    }

    #[test]
    fn a_sleep_is_found_by_every_name_it_has() {
        for call in ["sleep", "sleep_until", "park_timeout"] {
            for line in [format!("  {call}(x).await;"), format!("time::{call}(x);")] {
                assert!(sleeps(&line), "{line}");
            }
        }
        for line in ["nobody_may_sleep();", "pg_sleep(2)", "let sleeper = 1;"] {
            assert!(!sleeps(line), "{line}");
        }
    }

    #[test]
    fn a_test_that_sleeps_or_is_ignored_is_found() {
        let ignored = format!("#[{}]\n", "ignore");
        let sleeps = format!(
            "//! a\nfn f() {{}}\n#[cfg(test)]\nmod tests {{\n thread::{}(x);\n",
            "sleep"
        );
        let tree = Tree::of(&[("a/tests/it/main.rs", &ignored), ("a/src/lib.rs", &sleeps)]);
        assert_eq!(
            tests_do_not_wait(&tree),
            [
                "a/src/lib.rs:5: a test must wait for a condition, not for a time",
                "a/tests/it/main.rs:1: a test must not be ignored",
            ]
        );
    }
}
