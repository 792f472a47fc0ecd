//! Rule for prose: words that make a sentence vague are counted against a budget.
//!
//! STYLE.md asks for sentences whose subject is a noun. The words of `VAGUE` stand for a noun that
//! the reader has to guess, or have a standard term. The budget is the number of uses
//! that remain; it may only fall.

use super::Tree;

/// Words and phrases, each as it is written in the middle of a sentence.
const VAGUE: &[&str] = &[
    "whoever",
    "whatever",
    "nobody",
    "somebody",
    "anybody",
    "told",
    "anew",
    "for good",
    "far side",
    "of its own",
    "of their own",
    "comes home",
];

/// The number of uses in Markdown and in comments of Rust, SQL, Python and JavaScript.
const BUDGET: usize = 25;

/// There are at most `BUDGET` uses of `VAGUE`; with more, every use is listed.
pub(super) fn plain(tree: &Tree) -> Vec<String> {
    let uses: Vec<String> = tree
        .iter()
        .filter(|(path, _)| !path.starts_with("bench/RESULTS"))
        .flat_map(|(path, text)| uses(path, text))
        .collect();
    if uses.len() <= BUDGET {
        return Vec::new();
    }
    let total = format!(
        "{} uses of vague words, at most {BUDGET} are allowed",
        uses.len()
    );
    uses.into_iter().chain([total]).collect()
}

fn uses(path: &str, text: &str) -> Vec<String> {
    let Some(comment) = comment_of(path) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (line, number) in text.lines().zip(1..) {
        let prose = match comment {
            // Markdown is prose, except in code fences.
            "" => {
                is_fenced ^= line.trim_start().starts_with("```");
                (!is_fenced).then_some(line)
            }
            comment => line.trim_start().strip_prefix(comment),
        };
        let words = prose.into_iter().flat_map(vague);
        found.extend(words.map(|word| format!("{path}:{number}: {word:?}")));
    }
    found
}

/// What a comment of this file starts with; empty for Markdown.
fn comment_of(path: &str) -> Option<&'static str> {
    let (_, end) = path.rsplit_once('.')?;
    match end {
        "md" => Some(""),
        "rs" | "js" | "mjs" => Some("//"),
        "sql" => Some("--"),
        "py" => Some("#"),
        _ => None,
    }
}

/// The vague words of a line, where they are words and not parts of words or of names.
fn vague(line: &str) -> Vec<&'static str> {
    let is_inside = |it: char| it.is_alphanumeric() || it == '_' || it == '`' || it == '-';
    let mut found = Vec::new();
    for word in VAGUE {
        for (at, _) in line.match_indices(word) {
            let before = line[..at].chars().next_back();
            let after = line[at + word.len()..].chars().next();
            if !before.is_some_and(is_inside) && !after.is_some_and(is_inside) {
                found.push(*word);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vague_words_are_found_in_prose_and_not_in_code() {
        let tree = Tree::of(&[
            ("a.md", "Nobody, or nobody.\n```text\nnobody\n```\n"),
            ("b.rs", "//! Whoever is told.\nlet told = retold(1);\n"),
            ("c.sql", "-- A key, for good.\nSELECT 'for good';\n"),
        ]);
        let found: Vec<String> = tree
            .iter()
            .flat_map(|(path, text)| uses(path, text))
            .collect();
        let expected = [
            "a.md:1: \"nobody\"",
            "b.rs:1: \"told\"",
            "c.sql:1: \"for good\"",
        ];
        assert_eq!(found, expected);
    }
}
