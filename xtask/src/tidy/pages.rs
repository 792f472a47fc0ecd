//! Rules for pages: a changelog for the next release, numbered decisions, and a complete summary.

use super::Tree;

const SUMMARY: &str = "docs/SUMMARY.md";

/// The changelog has a section for the next release.
pub(super) fn changelog(tree: &Tree) -> Vec<String> {
    match tree.text("CHANGELOG.md") {
        None => vec!["CHANGELOG.md: is missing".to_owned()],
        Some(text) if !text.lines().any(|line| line == "## [Unreleased]") => {
            vec!["CHANGELOG.md: has no section `## [Unreleased]`".to_owned()]
        }
        Some(_) => Vec::new(),
    }
}

/// Decisions are numbered without gaps, in file names and titles.
pub(super) fn decisions(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for ((path, text), number) in tree.within("docs/decisions/", ".md").zip(1..) {
        let number = format!("{number:04}");
        if !path.starts_with(&format!("docs/decisions/{number}-")) {
            findings.push(format!("{path}: the number must be {number}"));
        }
        if !text.starts_with(&format!("# {number}: ")) {
            findings.push(format!("{path}:1: must start with `# {number}: `"));
        }
    }
    findings
}

/// Every page of the book is in its summary.
pub(super) fn summary(tree: &Tree) -> Vec<String> {
    let Some(summary) = tree.text(SUMMARY) else {
        return vec![format!("{SUMMARY}: is missing")];
    };
    tree.within("docs/", ".md")
        .map(|(path, _)| path)
        .filter(|path| *path != SUMMARY)
        .filter(|path| !summary.contains(&format!("]({})", &path["docs/".len()..])))
        .map(|path| format!("{path}: is not in {SUMMARY}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changelog_has_a_section_for_the_next_release() {
        let has = Tree::of(&[("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")]);
        let lacks = Tree::of(&[("CHANGELOG.md", "# Changelog\n\n## [0.1.0]\n")]);
        assert!(changelog(&has).is_empty());
        assert_eq!(
            changelog(&lacks),
            ["CHANGELOG.md: has no section `## [Unreleased]`"]
        );
        assert_eq!(changelog(&Tree::of(&[])), ["CHANGELOG.md: is missing"]);
    }

    #[test]
    fn decisions_are_numbered_without_a_gap() {
        let tree = Tree::of(&[
            ("docs/decisions/0001-a.md", "# 0001: A\n"),
            ("docs/decisions/0003-b.md", "# 0002: B\n"),
            ("docs/decisions/0003-c.md", "# C\n"),
        ]);
        assert_eq!(
            decisions(&tree),
            [
                "docs/decisions/0003-b.md: the number must be 0002",
                "docs/decisions/0003-c.md:1: must start with `# 0003: `",
            ]
        );
    }

    #[test]
    fn a_page_that_the_summary_forgets_is_found() {
        let tree = Tree::of(&[
            (SUMMARY, "- [A](guides/a.md)\n"),
            ("docs/guides/a.md", ""),
            ("docs/guides/b.md", ""),
            ("docs/book.toml", ""),
        ]);
        assert_eq!(
            summary(&tree),
            ["docs/guides/b.md: is not in docs/SUMMARY.md"]
        );
    }
}
