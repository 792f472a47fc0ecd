//! Links between the pages lead somewhere: to a file of the project, and to a heading in it.
//!
//! Links to the world are not followed: a gate must not depend on it.

use super::Tree;

/// Every relative link leads to a file, and to a heading where it names one.
pub(super) fn lead_somewhere(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (target, number) in targets(text) {
            if let Some(problem) = problem(tree, path, target) {
                findings.push(format!("{path}:{number}: `{target}` {problem}"));
            }
        }
    }
    findings
}

/// What is wrong with a link on the page `path`.
fn problem(tree: &Tree, path: &str, target: &str) -> Option<&'static str> {
    if ["https://", "http://", "mailto:"]
        .iter()
        .any(|scheme| target.starts_with(scheme))
    {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() {
        path.to_owned()
    } else {
        match resolve(path, file) {
            Some(file) => file,
            None => return Some("leads out of the project"),
        }
    };
    if !tree.holds(&file) {
        return Some("leads nowhere");
    }
    let text = tree.text(&file).unwrap_or_default();
    let known = heading.is_empty() || headings(text).any(|known| known == heading);
    (!known).then_some("names no heading of that page")
}

/// The path that `target` names when it stands on the page `path`; `None` outside the project.
fn resolve(path: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The lines of a page that are prose, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut fenced = false;
    text.lines().zip(1..).filter(move |(line, _)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of the links on a page, each with its line.
fn targets(text: &str) -> Vec<(&str, usize)> {
    let mut targets = Vec::new();
    for (line, number) in prose(text) {
        for (at, _) in line.match_indices("](") {
            let quoted = line[..at].matches('`').count() % 2 == 1;
            let target = &line[at + 2..];
            if let Some(end) = target.find(')').filter(|_| !quoted) {
                targets.push((&target[..end], number));
            }
        }
    }
    targets
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text)
        .filter(|(line, _)| line.starts_with('#'))
        .map(|(line, _)| anchor(line.trim_start_matches('#').trim()))
}

fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_to_a_file_and_to_a_heading() {
        let page = "# A page\n[b](../b.md) [own](#a-page) [web](https://example.org/x)\n\
            [folder](../crates) [lost](c.md)\n[no heading](../b.md#lost) [out](../../x.md)\n\
            `[code](lost.md)`\n```\n[code](lost.md)\n```\n[b](../b.md#it-s--2-things)\n";
        let tree = Tree::of(&[
            ("docs/a.md", page),
            (
                "b.md",
                "# B\n## It s: 2 things\n```\n# lost\n```\n## It s / 2 things\n",
            ),
            ("crates/x.rs", ""),
        ]);
        assert_eq!(
            lead_somewhere(&tree),
            [
                "docs/a.md:3: `c.md` leads nowhere",
                "docs/a.md:4: `../b.md#lost` names no heading of that page",
                "docs/a.md:4: `../../x.md` leads out of the project",
            ]
        );
    }
}
