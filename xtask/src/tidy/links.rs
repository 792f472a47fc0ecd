//! Rules for links between pages: the file and the heading that a link names must exist.
//!
//! External links are not followed, because the gate must not depend on other servers. They only
//! have to be valid URLs.

use super::Tree;

/// Every relative link names an existing file and, if it names a heading, an existing heading.
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

/// Every external link is a valid https URL. Only links to the local machine may use http.
pub(super) fn shaped(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        for (target, number) in targets(text)
            .into_iter()
            .filter(|(it, _)| it.contains("://"))
        {
            if !is_address(target) {
                findings.push(format!("{path}:{number}: `{target}` is not an https URL"));
            }
        }
    }
    findings
}

fn is_address(target: &str) -> bool {
    let (scheme, rest) = target.split_once("://").unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let name = host.split(':').next().unwrap_or_default();
    let is_name = name.contains('.') && !name.starts_with('.') && !name.ends_with('.');
    let may_be_plain = name == "127.0.0.1" || name == "localhost";
    let legal = target
        .chars()
        .all(|letter| letter.is_ascii_graphic() && !"<>\"{}|\\^`".contains(letter));
    legal && ((scheme == "https" && is_name) || (scheme == "http" && may_be_plain))
}

/// The problem with a link on the page `path`, if any.
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
        return Some("does not exist");
    }
    let text = tree.text(&file).unwrap_or_default();
    let known = heading.is_empty() || headings(text).any(|known| known == heading);
    (!known).then_some("names a heading that does not exist")
}

/// The path that the link `target` on the page `path` names; `None` outside the project.
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

/// The lines of a page outside of code blocks, with their numbers.
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
        // A definition, `[name]: target`, and a URL alone, `<https://...>`.
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        targets.extend(definition.map(|(_, target)| (target.trim(), number)));
        let bare = line
            .match_indices("<http")
            .filter_map(|(at, _)| line[at + 1..].split('>').next());
        targets.extend(bare.map(|target| (target, number)));
    }
    targets
}

/// The anchors of the headings of a page, as GitHub and mdBook generate them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut seen: Vec<String> = Vec::new();
    let lines = prose(text).filter(|(line, _)| line.starts_with('#'));
    lines.map(move |(line, _)| {
        let anchor = anchor(line.trim_start_matches('#').trim());
        // A repeated heading gets a number.
        let before = seen.iter().filter(|it| **it == anchor).count();
        seen.push(anchor.clone());
        match before {
            0 => anchor,
            number => format!("{anchor}-{number}"),
        }
    })
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
    fn a_link_to_the_world_is_an_address() {
        let page = "[a](https://example.org/x?y#z) [b](http://127.0.0.1:8080/) <https://example.org>\n\
            [c](http://example.org) [d](https://nowhere) [e](htps://example.org)\n\
            [f]: https://exa mple.org\n<http://example.org/>\n";
        let found = shaped(&Tree::of(&[("a.md", page)]));
        let wrong =
            |line: usize, target: &str| format!("a.md:{line}: `{target}` is not an https URL");
        assert_eq!(
            found,
            [
                wrong(2, "http://example.org"),
                wrong(2, "https://nowhere"),
                wrong(2, "htps://example.org"),
                wrong(3, "https://exa mple.org"),
                wrong(4, "http://example.org/"),
            ]
        );
    }

    #[test]
    fn a_definition_leads_somewhere_and_the_second_heading_of_a_name_has_a_number() {
        let tree = Tree::of(&[
            ("a.md", "[b]: b.md#x-1\n[c]: c.md\n[d](b.md#x-2)\n"),
            ("b.md", "# X\n## X\n"),
        ]);
        assert_eq!(
            lead_somewhere(&tree),
            [
                "a.md:2: `c.md` does not exist",
                "a.md:3: `b.md#x-2` names a heading that does not exist",
            ]
        );
    }

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
                "docs/a.md:3: `c.md` does not exist",
                "docs/a.md:4: `../b.md#lost` names a heading that does not exist",
                "docs/a.md:4: `../../x.md` leads out of the project",
            ]
        );
    }
}
