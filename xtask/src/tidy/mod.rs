//! `cargo x tidy`: checks conventions of the project that no other tool checks.
//!
//! Each rule reads the whole tree as text and returns findings in the form `path:line: what is
//! wrong`. A rule depends only on the tree, so that its tests can pass a tree of a few lines.

mod text;
mod source;
mod prose;
mod direction;
mod circles;
mod queries;
mod pages;
mod origins;
mod blocks;
mod links;
mod reference;
mod mutants;

use std::path::Path;

use anyhow::bail;

use crate::tree::Tree;

/// A rule: returns its findings in a tree, one line each, sorted by path.
type Rule = fn(&Tree) -> Vec<String>;

const RULES: &[Rule] = &[
    text::clean,
    text::no_homes,
    source::short,
    source::narrow,
    source::documented,
    source::named,
    source::tests_do_not_wait,
    prose::plain,
    direction::crates,
    direction::absences,
    direction::wiring,
    circles::circles,
    queries::one_statement,
    queries::columns,
    queries::twins,
    queries::read_by_name,
    pages::changelog,
    pages::decisions,
    pages::summary,
    origins::shown,
    blocks::checked,
    links::lead_somewhere,
    links::shaped,
    reference::complete,
    reference::no_more,
    mutants::applied,
    mutants::listed,
];

/// Checks the tree under `root` against every rule.
pub(crate) fn tidy(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let findings: Vec<String> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    for finding in &findings {
        println!("    {finding}");
    }
    if !findings.is_empty() {
        bail!("{} finding(s)", findings.len());
    }
    println!("    {} files, {} rules", tree.len(), RULES.len());
    Ok(())
}
