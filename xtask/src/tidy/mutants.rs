//! Rules for seeded bugs: the patches in `proof/mutants` apply, and the docs list all of them.
//!
//! Otherwise `cargo x torture bugs`, which is not part of the gate, would be the first to notice.

use std::{collections::BTreeMap, fs};

use super::Tree;
use crate::mutants::{FOLDER, apply};

/// The page that lists the bugs.
const PAGE: &str = "docs/explanation/seeded-bugs.md";
/// The heading of the list.
const HEADING: &str = "## The bugs";
/// The line of a patch that names the invariants which its bug breaks.
const BREAKS: &str = "Breaks: ";
/// The patch that contains the switch instead of a bug.
const SWITCH: &str = "switch";

/// All patches apply to the project, one after the other.
pub(super) fn applied(tree: &Tree) -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("tidy-mutants-{}", std::process::id()));
    let outcome = apply(tree, &folder);
    drop(fs::remove_dir_all(&folder));
    outcome.unwrap_or_else(|error| vec![format!("{FOLDER}: cannot be applied: {error:#}")])
}

/// Each bug of the page has a patch and each patch is on the page, with the same invariants. A
/// patch asks the switch for its own name.
pub(super) fn listed(tree: &Tree) -> Vec<String> {
    let rows = rows(tree.text(PAGE).unwrap_or_default());
    let mut findings = Vec::new();
    let mut patched = Vec::new();
    for (path, patch) in tree.within(FOLDER, ".patch") {
        let name = path[FOLDER.len()..].trim_end_matches(".patch");
        if name == SWITCH {
            continue;
        }
        patched.push(name);
        if !patch.contains(&format!("seeded::has(\"{name}\")")) {
            findings.push(format!("{path}: does not contain seeded::has(\"{name}\")"));
        }
        let breaks = patch.lines().find_map(|line| line.strip_prefix(BREAKS));
        match (rows.get(name), breaks) {
            (None, _) => findings.push(format!("{path}: the bug is not in {PAGE}")),
            (Some(listed), breaks) if breaks != Some(*listed) => findings.push(format!(
                "{path}: expected the line `{BREAKS}{listed}`, as in {PAGE}"
            )),
            _ => {}
        }
    }
    let lost = rows.keys().filter(|name| !patched.contains(*name));
    findings.extend(lost.map(|name| format!("{PAGE}: `{name}` has no patch in {FOLDER}")));
    findings
}

/// The names of the bugs in the list of the page, each with the invariants that it breaks.
fn rows(page: &str) -> BTreeMap<&str, &str> {
    let list = page.split(HEADING).nth(1).unwrap_or_default();
    let list = list.split("\n## ").next().unwrap_or_default();
    list.lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("| `")?.split_once('`')?;
            let breaks = rest.trim_end_matches([' ', '|']).rsplit('|').next()?;
            Some((name, breaks.trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "A bug.\n\nBreaks: 1, 2\n\n--- a/a.rs\n+++ b/a.rs\n@@ -1,1 +1,1 @@\n\
        -sound\n+crate::seeded::has(\"a\")\n";

    #[test]
    fn a_patch_that_does_not_apply_is_found() {
        let tree = |text: &str| Tree::of(&[("a.rs", text), ("proof/mutants/a.patch", PATCH)]);
        assert!(applied(&tree("sound\n")).is_empty());
        let findings = applied(&tree("moved\n"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("proof/mutants/a.patch: does not apply: "));
    }

    #[test]
    fn a_bug_without_a_patch_and_a_patch_without_a_bug_are_found() {
        let page = |rows: &str| format!("# Bugs\n\n## The bugs\n\n| bug | |\n{rows}\n## Results\n");
        let check = |rows: &str, patch: (&str, &str), expected: &[&str]| {
            let tree = Tree::of(&[
                (PAGE, &page(rows)),
                (patch.0, patch.1),
                ("proof/mutants/switch.patch", ""),
            ]);
            assert_eq!(listed(&tree), expected);
        };
        let (a, b) = ("proof/mutants/a.patch", "proof/mutants/b.patch");
        check("| `a` | what | 1, 2 |\n", (a, PATCH), &[]);
        let other = "proof/mutants/a.patch: expected the line `Breaks: 3`, as in \
            docs/explanation/seeded-bugs.md";
        check("| `a` | what | 3 |\n", (a, PATCH), &[other]);
        check(
            "| `a` | what | 1, 2 |\n",
            (b, PATCH),
            &[
                "proof/mutants/b.patch: does not contain seeded::has(\"b\")",
                "proof/mutants/b.patch: the bug is not in docs/explanation/seeded-bugs.md",
                "docs/explanation/seeded-bugs.md: `a` has no patch in proof/mutants/",
            ],
        );
    }
}
