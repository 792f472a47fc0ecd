//! Rule for modules: no new circles of imports between the top-level modules of a crate.
//!
//! Module A imports module B if a file of A mentions `crate::B`. Modules that import each other,
//! directly or through others, cannot be read or changed one at a time. `KNOWN` lists the circles
//! that remain; the rule rejects every other one, and entries that are no longer needed.

use std::collections::{BTreeMap, BTreeSet};

use super::{Tree, source};

/// The imports of each top-level module of a crate.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The circles that remain: the folder of a crate, and the modules of one circle, sorted.
const KNOWN: &[(&str, &[&str])] = &[
    ("bench/src", &["publish", "relay"]),
    (
        "crates/hapax-console/src",
        &["act", "guard", "layout", "pages"],
    ),
    (
        "crates/hapax-http/src",
        &["idempotency", "operation", "phased", "request"],
    ),
    ("crates/hapax-http/src", &["problem", "request_id"]),
    (
        "crates/hapax-server/src",
        &["admin", "command", "destination_set", "gateway", "wiring"],
    ),
    ("crates/hapax-server/src", &["config", "destination"]),
    ("crates/hapax/src", &["phases", "saga", "store"]),
    ("proof/torture/src", &["deployment", "stored_rows"]),
];

/// Each circle of imports is listed in `KNOWN`, and each entry of `KNOWN` is a circle.
pub(super) fn circles(tree: &Tree) -> Vec<String> {
    let roots = tree
        .iter()
        .filter_map(|(path, _)| {
            path.strip_suffix("/lib.rs")
                .or(path.strip_suffix("/main.rs"))
        })
        .filter(|folder| folder.ends_with("/src"));
    let roots: BTreeSet<&str> = roots.collect();
    let mut findings = Vec::new();
    let mut found = Vec::new();
    for root in roots {
        for circle in circles_of(&imports(tree, root)) {
            let known = KNOWN.iter().position(|entry| *entry == (root, &circle[..]));
            match known {
                Some(at) => found.push(at),
                None => findings.push(format!(
                    "{root}: these modules import each other: {}",
                    circle.join(", ")
                )),
            }
        }
    }
    for (at, (root, circle)) in KNOWN.iter().enumerate() {
        if !found.contains(&at) && tree.holds(root) {
            let circle = circle.join(", ");
            findings.push(format!("{root}: the circle of {circle} no longer exists"));
        }
    }
    findings
}

/// What each top-level module of the crate at `root` imports from the others, except in tests.
fn imports<'a>(tree: &'a Tree, root: &'a str) -> Imports<'a> {
    let files = |path: &'a str| path.strip_prefix(root)?.strip_prefix('/');
    let files: Vec<_> = tree
        .ending(".rs")
        .filter_map(|(path, text)| Some((files(path)?, text)))
        .filter(|(path, _)| !path.ends_with("tests.rs"))
        .collect();
    let top = |path: &'a str| path.split('/').next().unwrap_or(path);
    let name = |path: &'a str| top(path).trim_end_matches(".rs");
    let mut imports: Imports<'_> = files
        .iter()
        .map(|(path, _)| name(path))
        .filter(|name| !["lib", "main"].contains(name))
        .map(|name| (name, BTreeSet::new()))
        .collect();
    let modules: BTreeSet<&str> = imports.keys().copied().collect();
    for (path, text) in files {
        let Some(own) = imports.get_mut(name(path)) else {
            continue;
        };
        let mentioned = mentioned(source::without_tests(text));
        own.extend(
            mentioned
                .into_iter()
                .filter(|it| *it != name(path) && modules.contains(it)),
        );
    }
    imports
}

/// The names that follow `crate::` in code, also within braces.
fn mentioned(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, prefix) in text.match_indices("crate::") {
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        if line.trim_start().starts_with("//") {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(heads(group)),
            None => names.extend(word(rest)),
        }
    }
    names
}

/// The first word of each item of a group `{a::b, c::{d, e}}`, which has been opened.
fn heads(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (1, 0, Vec::new());
    for (at, found) in group.char_indices() {
        match found {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && found == ',' {
            items.extend(word(group[start..at].trim_start()));
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    items
}

/// The lower-case identifier that a text starts with.
fn word(text: &str) -> Option<&str> {
    let is_part = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_';
    let end = text.find(|it| !is_part(it)).unwrap_or(text.len());
    Some(&text[..end]).filter(|it| !it.is_empty())
}

/// The groups of modules that reach each other, each sorted.
fn circles_of<'a>(imports: &Imports<'a>) -> Vec<Vec<&'a str>> {
    let reached: Imports<'_> = imports
        .keys()
        .map(|&module| (module, reach(imports, module)))
        .collect();
    let mut circles: Vec<Vec<&str>> = Vec::new();
    for (&module, found) in &reached {
        let mates = found
            .iter()
            .copied()
            .filter(|it| *it != module && reached[it].contains(module));
        let mut circle: Vec<&str> = mates.chain([module]).collect();
        circle.sort_unstable();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// The modules that a module imports, directly or through others.
fn reach<'a>(imports: &Imports<'a>, module: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = imports[module].iter().copied().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(&imports[next]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_that_import_each_other_are_found_and_a_chain_is_not() {
        let tree = Tree::of(&[
            (
                "a/src/lib.rs",
                "mod one;\nmod two;\nmod three;\nmod four;\n",
            ),
            (
                "a/src/one.rs",
                "use crate::{\n    four,\n    two::{self, Two},\n};\n",
            ),
            ("a/src/two/mod.rs", "// crate::four\nmod deep;\n"),
            (
                "a/src/two/deep.rs",
                "fn deep() {\n    crate::three::run();\n}\n",
            ),
            ("a/src/three.rs", "use crate::one;\n"),
            (
                "a/src/four.rs",
                "#[cfg(test)]\nmod tests {\n    use crate::one;\n}\n",
            ),
        ]);
        let expected = "a/src: these modules import each other: one, three, two";
        assert_eq!(circles(&tree), [expected]);
    }
}
