//! Rules for the code blocks of pages: each block is checked somewhere or is marked as text.
//!
//! `docs/pages.rs` compiles Rust. The tests of the binary parse TOML and commands. The walkthrough
//! runs or parses shell commands. JSON is parsed here. Blocks in other languages are short excerpts
//! of code that the tests run.

use super::Tree;

/// The allowed languages of blocks.
const LANGUAGES: [&str; 13] = [
    "rust",
    "rust,no_run",
    "toml",
    "json",
    "sql",
    "sh",
    "console",
    "text",
    "ini",
    "js",
    "ts",
    "python",
    "yaml",
];
/// Pages with Rust that is not compiled, with the reason.
const SHOWN: [(&str, &str); 4] = [
    ("docs/reference/limits.md", "the file itself is included"),
    (
        "docs/guides/write-a-store.md",
        "examples/custom-store compares it with its sources",
    ),
    (
        "crates/hapax-postgres/README.md",
        "its migration does not exist; docs/guides/postgres-roles.md compiles the rest",
    ),
    (
        "crates/hapax-sqlite/README.md",
        "its migration does not exist; README.md compiles the rest",
    ),
];
const COMPILED: &str = "docs/pages.rs";

/// Every block of a page has an allowed language, and every page of the book with Rust is compiled.
pub(super) fn checked(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    let compiled = tree.text(COMPILED).unwrap_or_default();
    for (path, text) in tree.ending(".md") {
        let mut has_rust = false;
        for (language, body, number) in blocks(text) {
            has_rust |= language.starts_with("rust") && language != "rust,ignore";
            if language == "rust,ignore" {
                if !SHOWN.iter().any(|(page, _)| *page == path) {
                    findings.push(format!("{path}:{number}: Rust that is not compiled"));
                }
            } else if !LANGUAGES.contains(&language) {
                findings.push(format!("{path}:{number}: unknown language `{language}`"));
            }
            let is_json =
                language != "json" || serde_json::from_str::<serde_json::Value>(&body).is_ok();
            if !is_json {
                findings.push(format!("{path}:{number}: is not valid JSON"));
            }
        }
        let page = path.strip_prefix("docs/");
        if let Some(page) = page.filter(|_| has_rust)
            && !compiled.contains(&format!("include_str!(\"{page}\")"))
        {
            findings.push(format!(
                "{path}: its Rust is not compiled: name it in {COMPILED}"
            ));
        }
    }
    findings
}

/// The blocks of a page: language, body and line.
fn blocks(text: &str) -> Vec<(&str, String, usize)> {
    let mut blocks: Vec<(&str, String, usize)> = Vec::new();
    let mut open = false;
    for (line, number) in text.lines().zip(1..) {
        match line.trim_start().strip_prefix("```") {
            Some(_) if open => open = false,
            Some(language) => {
                open = true;
                blocks.push((language, String::new(), number));
            }
            None if open => {
                let body = &mut blocks.last_mut().expect("an open block exists").1;
                body.push_str(line);
                body.push('\n');
            }
            None => {}
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchecked_code_block_is_found() {
        let page = "```rust\nfn a() {}\n```\n```\nplain\n```\n```json\n{\"a\": 1}\n```\n\
            ```json\n{a}\n```\n```rust,ignore\nfn b() {}\n```\n```cobol\n```\n";
        let compiled = "#[doc = include_str!(\"guides/a.md\")]\n";
        let tree = Tree::of(&[
            (COMPILED, compiled),
            ("docs/guides/a.md", page),
            ("docs/guides/b.md", "```rust,no_run\n```\n"),
            ("docs/reference/limits.md", "```rust,ignore\n```\n"),
        ]);
        assert_eq!(
            checked(&tree),
            [
                "docs/guides/a.md:4: unknown language ``",
                "docs/guides/a.md:10: is not valid JSON",
                "docs/guides/a.md:13: Rust that is not compiled",
                "docs/guides/a.md:16: unknown language `cobol`",
                "docs/guides/b.md: its Rust is not compiled: name it in docs/pages.rs",
            ]
        );
    }
}
