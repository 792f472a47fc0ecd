//! The references are complete: what the code can say, the pages explain.

use super::{Tree, source};

/// What marks a name among the literals of a file.
type IsName = fn(&str) -> bool;

/// Where names are given, what marks one, and the page that must explain it.
const NAMES: [(&str, IsName, &str); 4] = [
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
    (
        "crates/hapax/src/telemetry.rs",
        is_metric,
        "docs/reference/metrics.md",
    ),
    (
        "examples/shop/src/config/flags.rs",
        is_flag,
        "docs/reference/configuration.md",
    ),
];

/// Every code, metric and flag stands in its reference.
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

/// What stands in quotes, line by line, comments apart.
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
