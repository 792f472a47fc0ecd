//! Rule for the traceability page: no requirement is missing, and each has a test or a page.

use std::collections::BTreeSet;

use super::Tree;

const PAGE: &str = "docs/explanation/origins.md";
/// The number of requirements of each document.
const REQUIREMENTS: [usize; 5] = [46, 62, 53, 82, 28];

/// The requirements of each document are numbered without gaps, and the last column of each row has
/// the name of a test that exists or a link. The rules for links check that its page exists.
pub(super) fn shown(tree: &Tree) -> Vec<String> {
    check(tree, &REQUIREMENTS)
}

fn check(tree: &Tree, requirements: &[usize]) -> Vec<String> {
    let Some(page) = tree.text(PAGE) else {
        return vec![format!("{PAGE}: is missing")];
    };
    let rows: Vec<_> = page.lines().zip(1..).filter_map(row).collect();
    let mut findings: Vec<String> = misnumbered(&rows, requirements).into_iter().collect();
    let functions: BTreeSet<&str> = tree
        .ending(".rs")
        .flat_map(|(_, text)| text.lines().filter_map(function))
        .collect();
    for (line, number, evidence) in rows {
        let names: Vec<&str> = evidence.split('`').skip(1).step_by(2).collect();
        if names.is_empty() && !evidence.contains("](") {
            findings.push(format!(
                "{PAGE}:{line}: {number} has neither a test nor a page"
            ));
        }
        for name in names.iter().filter(|name| !functions.contains(*name)) {
            findings.push(format!("{PAGE}:{line}: there is no test `{name}`"));
        }
    }
    findings
}

/// The line, the number and the last column of a row with a requirement.
fn row((text, line): (&str, usize)) -> Option<(usize, &str, &str)> {
    let cells = text.strip_prefix("| ")?.strip_suffix(" |")?;
    let (number, _) = cells.split_once(" | ")?;
    let (_, evidence) = cells.rsplit_once(" | ")?;
    let is_number =
        number.contains('.') && number.starts_with(|first: char| first.is_ascii_digit());
    is_number.then_some((line, number, evidence))
}

/// The first row that has not the number that follows the one before.
fn misnumbered(rows: &[(usize, &str, &str)], requirements: &[usize]) -> Option<String> {
    let mut rows = rows.iter();
    for (document, count) in (1..).zip(requirements) {
        for requirement in 1..=*count {
            let expected = format!("{document}.{requirement}");
            match rows.next() {
                Some((_, number, _)) if *number == expected => {}
                Some((line, number, _)) => {
                    return Some(format!("{PAGE}:{line}: {number} must be {expected}"));
                }
                None => return Some(format!("{PAGE}: {expected} is missing")),
            }
        }
    }
    let (line, number, _) = rows.next()?;
    Some(format!("{PAGE}:{line}: there is no requirement {number}"))
}

/// The name of the function that a line declares.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_declaration = before
        .split_whitespace()
        .all(|word| word == "async" || word.starts_with("pub"));
    let name = after.split(['(', '<']).next();
    name.filter(|_| is_declaration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_a_test_or_a_page_is_found() {
        let page = "| number | requirement | where | shown by |\n|---|---|---|---|\n\
            | 1.1 | a | b | `a_test`, `a_law` |\n| 1.2 | a | `c` | [page](page.md) |\n\
            | 1.3 | a | b | a test |\n| 1.4 | a | b | `not_a_test` and [page](page.md) |\n";
        let tests = "async fn a_test(on: Store) {}\n    pub(crate) async fn a_law<S>() {}\n\
            // fn not_a_test()\n";
        let tree = Tree::of(&[(PAGE, page), ("crates/x/tests/it/main.rs", tests)]);
        assert_eq!(
            check(&tree, &[4]),
            [
                format!("{PAGE}:5: 1.3 has neither a test nor a page"),
                format!("{PAGE}:6: there is no test `not_a_test`"),
            ]
        );
    }

    #[test]
    fn a_number_that_is_missing_or_there_twice_is_found() {
        let found = |numbers: &[&str]| {
            let row = |number: &&str| format!("| {number} | a | b | [c](c.md) |\n");
            let page: String = numbers.iter().map(row).collect();
            check(&Tree::of(&[(PAGE, &page)]), &[2, 1])
        };
        assert!(found(&["1.1", "1.2", "2.1"]).is_empty());
        assert_eq!(
            found(&["1.1", "2.1"]),
            [format!("{PAGE}:2: 2.1 must be 1.2")]
        );
        assert_eq!(
            found(&["1.1", "1.1", "1.2", "2.1"]),
            [format!("{PAGE}:2: 1.1 must be 1.2")]
        );
        assert_eq!(found(&["1.1", "1.2"]), [format!("{PAGE}: 2.1 is missing")]);
        assert_eq!(
            found(&["1.1", "1.2", "2.1", "2.2"]),
            [format!("{PAGE}:4: there is no requirement 2.2")]
        );
        assert_eq!(shown(&Tree::of(&[])), [format!("{PAGE}: is missing")]);
    }
}
