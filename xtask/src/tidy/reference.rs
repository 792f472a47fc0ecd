//! Rules for reference pages: they explain every code, metric and flag of the code, and no others.

use std::collections::BTreeSet;

use super::{Tree, source};

/// Whether a literal of a file is a name.
type IsName = fn(&str) -> bool;

/// The files that define names, how to recognize a name, and the page that must explain it.
const NAMES: [(&str, IsName, &str); 5] = [
    (
        "crates/hapax-http/src/problem/code.rs",
        is_code,
        "docs/reference/errors.md",
    ),
    (
        "examples/shop/src/problem.rs",
        is_code,
        "docs/reference/errors.md",
    ),
    (METRICS, is_metric, "docs/reference/metrics.md"),
    (
        "examples/shop/src/config/flags.rs",
        is_flag,
        "docs/reference/configuration.md",
    ),
    (
        "crates/hapax-postgres/src/table_source/moving.rs",
        is_metric,
        "docs/reference/metrics.md",
    ),
];
/// The file that defines the names of metrics.
const METRICS: &str = "crates/hapax/src/telemetry.rs";

/// Every code, metric and flag is explained in its reference.
pub(super) fn complete(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (file, is_name, page) in NAMES {
        let (Some(code), Some(text)) = (tree.text(file), tree.text(page)) else {
            continue;
        };
        let names = literals(source::without_tests(code)).filter(|name| is_name(name));
        for name in names.filter(|name| !text.contains(name)) {
            findings.push(format!("{page}: does not explain `{name}` of {file}"));
        }
    }
    findings
}

/// No reference explains a name that the code does not have. Only the first column of tables is
/// checked.
pub(super) fn no_more(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    let pages: BTreeSet<&str> = NAMES.iter().map(|(_, _, page)| *page).collect();
    for page in pages {
        let sources: Vec<_> = NAMES.iter().filter(|(.., it)| *it == page).collect();
        let known: BTreeSet<&str> = sources
            .iter()
            .filter_map(|(file, is_name, _)| Some((tree.text(file)?, is_name)))
            .flat_map(|(code, is_name)| literals(code).filter(|name| is_name(name)))
            .collect();
        let is_name = |name: &str| sources.iter().any(|(_, is_name, _)| is_name(name));
        for (line, number) in tree.text(page).unwrap_or_default().lines().zip(1..) {
            let first = line
                .strip_prefix("| ")
                .and_then(|rest| rest.split(" | ").next());
            let spans = first.unwrap_or_default().split('`').skip(1).step_by(2);
            for span in spans.filter(|span| is_name(span)) {
                let name = span.split(' ').next().unwrap_or_default();
                if !known.contains(name) && !OTHERS.contains(&name) {
                    findings.push(format!("{page}:{number}: `{name}` is not in the code"));
                }
            }
        }
    }
    findings
}

/// Names that are defined elsewhere: a flag that is not a setting.
const OTHERS: [&str; 1] = ["--config"];

/// The quoted strings of each line that is not a comment.
fn literals(code: &str) -> impl Iterator<Item = &str> {
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
}

fn is_code(text: &str) -> bool {
    let class = text.split('.').next().unwrap_or_default();
    let upper = |letter: char| letter.is_ascii_uppercase() || letter == '_';
    class.len() > 3 && class.chars().all(upper) && !text.contains(' ')
}

fn is_metric(text: &str) -> bool {
    text.starts_with("hapax_")
}

fn is_flag(text: &str) -> bool {
    text.starts_with("--") && text.len() > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_code_says_no_more_is_found() {
        let tree = Tree::of(&[
            (NAMES[2].0, "a = \"hapax_a_total\";\n"),
            (
                NAMES[2].2,
                "| `hapax_a_total` | counter |\n| `hapax_b_total` | counter |\n| `hapax_b_total > 1` | x |\n",
            ),
            (NAMES[3].0, "(\"listen\", \"--listen\", x),\n"),
            (
                NAMES[3].2,
                "| `--listen ADDR` | x |\n| `--liston ADDR` | `--else` |\n",
            ),
        ]);
        assert_eq!(
            no_more(&tree),
            [
                "docs/reference/configuration.md:2: `--liston` is not in the code",
                "docs/reference/metrics.md:2: `hapax_b_total` is not in the code",
                "docs/reference/metrics.md:3: `hapax_b_total` is not in the code",
            ]
        );
    }

    #[test]
    fn a_code_a_metric_and_a_flag_that_no_page_explains_are_found() {
        let codes = "// \"AUTH.old\"\nnew(\"AUTH.missing\", 401, \"Sign in\");\nnew(\"AUTH.new\");\n\
            #[cfg(test)]\nmod tests {\n\"AUTH.test\"\n}\n";
        let tree = Tree::of(&[
            (NAMES[0].0, codes),
            (NAMES[0].2, "| `AUTH.missing` |\n"),
            (
                NAMES[2].0,
                "a = \"hapax_a_total\";\nb = \"hapax_b_total\";\n",
            ),
            (NAMES[2].2, "hapax_b_total\n"),
            (NAMES[3].0, "(\"listen\", \"--listen\", x),\n"),
            (NAMES[3].2, "none\n"),
        ]);
        assert_eq!(
            complete(&tree),
            [
                "docs/reference/errors.md: does not explain `AUTH.new` of crates/hapax-http/src/problem/code.rs",
                "docs/reference/metrics.md: does not explain `hapax_a_total` of crates/hapax/src/telemetry.rs",
                "docs/reference/configuration.md: does not explain `--listen` of examples/shop/src/config/flags.rs",
            ]
        );
    }
}
