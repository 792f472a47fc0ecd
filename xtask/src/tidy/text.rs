//! Rules for every text file: clean line ends, and no path of a home folder.

use std::path::Path;

use super::Tree;

/// Lines must not end with white space, and files must end with one line break. In a patch, an
/// empty line of the context is a space.
pub(super) fn clean(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.iter().filter(|(_, text)| !text.is_empty()) {
        let is_patch = Path::new(path).extension().is_some_and(|it| it == "patch");
        for (line, number) in text.split('\n').zip(1..) {
            if line.ends_with([' ', '\t', '\r']) && !(is_patch && line == " ") {
                findings.push(format!(
                    "{path}:{number}: white space at the end of the line"
                ));
            }
        }
        if !text.ends_with('\n') || text.ends_with("\n\n") {
            findings.push(format!("{path}: must end with exactly one line break"));
        }
    }
    findings
}

/// No file contains a path in a home folder.
pub(super) fn no_homes(tree: &Tree) -> Vec<String> {
    let homes = ["home", "root", "Users"].map(|folder| format!("/{folder}/"));
    let mut findings = Vec::new();
    for (path, text) in tree.iter() {
        for (line, number) in text.lines().zip(1..) {
            if homes.iter().any(|home| begins_in(line, home)) {
                findings.push(format!(
                    "{path}:{number}: contains the path of a home folder"
                ));
            }
        }
    }
    findings
}

/// Whether `line` contains a path that starts with `folder`.
fn begins_in(line: &str, folder: &str) -> bool {
    line.match_indices(folder)
        .any(|(at, _)| !line[..at].ends_with(|before: char| before.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_at_the_end_of_a_line_or_file_is_found() {
        let tree = Tree::of(&[
            ("a.rs", "fine\n"),
            ("b.rs", "one \ntwo\t\nthree\r\n"),
            ("c.md", "no break"),
            ("d.md", "two breaks\n\n"),
            ("empty.png", ""),
        ]);
        assert_eq!(
            clean(&tree),
            [
                "b.rs:1: white space at the end of the line",
                "b.rs:2: white space at the end of the line",
                "b.rs:3: white space at the end of the line",
                "c.md: must end with exactly one line break",
                "d.md: must end with exactly one line break",
            ]
        );
    }

    #[test]
    fn a_folder_of_one_machine_is_found() {
        let home = format!("see /{}/ann/notes\n", "home");
        let tree = Tree::of(&[("a.md", &home), ("b.md", "see docs/home/page\n")]);
        assert_eq!(
            no_homes(&tree),
            ["a.md:1: contains the path of a home folder"]
        );
    }
}
