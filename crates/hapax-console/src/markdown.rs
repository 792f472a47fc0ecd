//! Markdown renderer for the reference pages. It supports only the syntax that they use, and can
//! restrict a page to the parts that contain all words of a filter.

use crate::html::{Element, Html, el, link};

/// Returns the target of a link, if it exists in the console.
type LeadsTo<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A block of a page.
enum Block<'a> {
    Heading(usize, &'a str),
    Paragraph(String),
    Code(String),
    Table(Vec<&'a str>, Vec<Vec<&'a str>>),
    List(bool, Vec<String>),
}

/// Renders a page without its title. With words, only the parts that contain all of them.
pub(crate) fn render(text: &str, words: &[String], to: LeadsTo<'_>) -> Html {
    let holds = |text: &str| {
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word.as_str()))
    };
    let (mut html, mut heading) = (Html::default(), None);
    // If a heading contains all words, everything below it is shown.
    let mut whole = false;
    for block in blocks(text) {
        let shown = match block {
            Block::Heading(1, _) => None,
            Block::Heading(level, title) => {
                whole = !words.is_empty() && holds(title);
                heading = Some(title_of(level, title, to));
                None
            }
            Block::Paragraph(text) => {
                (whole || holds(&text)).then(|| el("p").add(spans(&text, to)))
            }
            Block::Code(text) => (whole || holds(&text)).then(|| pre(&text)),
            Block::Table(heads, rows) => {
                let fits = |row: &Vec<&str>| whole || holds(&row.join(" "));
                let rows: Vec<_> = rows.into_iter().filter(fits).collect();
                (!rows.is_empty()).then(|| table(&heads, &rows, to))
            }
            Block::List(ordered, items) => {
                let fits = items.into_iter().filter(|item| whole || holds(item));
                let items: Vec<_> = fits.map(|item| el("li").add(spans(&item, to))).collect();
                let tag = if ordered { "ol" } else { "ul" };
                (!items.is_empty()).then(|| el(tag).all(items))
            }
        };
        if let Some(shown) = shown {
            html = html.add(heading.take()).add(shown);
        }
    }
    html
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        if line.starts_with("```") {
            let code: Vec<&str> = lines
                .by_ref()
                .take_while(|it| !it.starts_with("```"))
                .collect();
            blocks.push(Block::Code(code.join("\n")));
        } else if line.starts_with('#') {
            let level = line.bytes().take_while(|it| *it == b'#').count();
            blocks.push(Block::Heading(level, line[level..].trim()));
        } else if line.starts_with('|') {
            let mut rows = Vec::new();
            while let Some(row) = lines.next_if(|it| it.starts_with('|')) {
                rows.push(cells(row));
            }
            // The first row is the separator below the header.
            let rows = rows.into_iter().skip(1).collect();
            blocks.push(Block::Table(cells(line), rows));
        } else if let Some(first) = item(line) {
            let (ordered, mut items) = (!line.starts_with('-'), vec![first.to_owned()]);
            while let Some(next) = lines.next_if(|it| !it.trim().is_empty()) {
                match (item(next), items.last_mut()) {
                    (Some(text), _) => items.push(text.to_owned()),
                    (None, Some(last)) => {
                        last.push(' ');
                        last.push_str(next.trim());
                    }
                    (None, None) => {}
                }
            }
            blocks.push(Block::List(ordered, items));
        } else {
            let mut text = line.to_owned();
            let goes_on = |it: &&str| {
                !it.trim().is_empty() && !it.starts_with(['|', '#']) && !it.starts_with("```")
            };
            while let Some(next) = lines.next_if(goes_on) {
                text.push(' ');
                text.push_str(next.trim());
            }
            blocks.push(Block::Paragraph(text));
        }
    }
    blocks
}

fn item(line: &str) -> Option<&str> {
    if let Some(text) = line.strip_prefix("- ") {
        return Some(text);
    }
    let (number, text) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())).then_some(text)
}

/// The cells of a row. A bar inside code does not end a cell.
fn cells(row: &str) -> Vec<&str> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    let (mut cells, mut start, mut quoted, mut before) = (Vec::new(), 0, false, ' ');
    for (at, letter) in row.char_indices() {
        match letter {
            '`' => quoted = !quoted,
            '|' if !quoted && before != '\\' => {
                cells.push(row[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        before = letter;
    }
    cells.push(row[start..].trim());
    cells
}

fn title_of(level: usize, title: &str, to: LeadsTo<'_>) -> Element {
    let tag = if level == 2 { "h2" } else { "h3" };
    el(tag).attr("id", anchor(title)).add(spans(title, to))
}

/// The anchor of a heading, as the book generates it.
fn anchor(heading: &str) -> String {
    let letters = heading.to_lowercase();
    let kept = letters
        .chars()
        .filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

fn pre(text: &str) -> Element {
    el("pre")
        .attr("tabindex", "0")
        .attr("role", "region")
        .attr("aria-label", "Example")
        .add(el("code").add(text))
}

fn table(heads: &[&str], rows: &[Vec<&str>], to: LeadsTo<'_>) -> Element {
    let head = heads.iter().map(|head| {
        if head.is_empty() {
            el("td")
        } else {
            el("th").attr("scope", "col").add(spans(head, to))
        }
    });
    let row = |row: &Vec<&str>| {
        let cell = |(cell, head): (&&str, &&str)| {
            let name = head.replace('`', "");
            el("td").attr("data-head", name).add(spans(cell, to))
        };
        el("tr").all(row.iter().zip(heads).map(cell))
    };
    el("table")
        .add(el("thead").add(el("tr").all(head)))
        .add(el("tbody").all(rows.iter().map(row)))
}

/// Renders code, bold text and links.
fn spans(text: &str, to: LeadsTo<'_>) -> Html {
    let mut html = Html::default();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[', '\\']) {
        let (plain, special) = rest.split_at(at);
        html = html.add(plain);
        let (shown, behind) = span(special, to);
        html = html.add(shown);
        rest = behind;
    }
    html.add(rest)
}

/// Renders one inline element and returns the rest.
fn span<'a>(text: &'a str, to: LeadsTo<'_>) -> (Html, &'a str) {
    let between = |open: &str, close: &str| {
        let inside = text.strip_prefix(open)?;
        let end = inside.find(close).filter(|end| *end > 0)?;
        Some((&inside[..end], &inside[end + close.len()..]))
    };
    for fence in ["``", "`"] {
        if let Some((code, rest)) = between(fence, fence) {
            let code = code.trim().replace("\\|", "|");
            return (Html::default().add(el("code").add(code)), rest);
        }
    }
    if let Some((strong, rest)) = between("**", "**") {
        return (
            Html::default().add(el("strong").add(spans(strong, to))),
            rest,
        );
    }
    if let Some((name, rest)) = between("*", "*") {
        return (Html::default().add(el("em").add(name)), rest);
    }
    if let Some((name, rest)) = between("[", "](")
        && let Some(end) = rest.find(')')
    {
        let (target, behind) = (&rest[..end], &rest[end + 1..]);
        let name = spans(name, to);
        let html = match to(target) {
            Some(target) => Html::default().add(link(&target, name)),
            None => name,
        };
        return (html, behind);
    }
    if let Some(rest) = text.strip_prefix('\\') {
        let end = rest.chars().next().map_or(0, char::len_utf8);
        return (Html::default().add(&rest[..end]), &rest[end..]);
    }
    let end = text.chars().next().map_or(0, char::len_utf8);
    (Html::default().add(&text[..end]), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\nA *word* and `co|de`,\n**strong** [here](http.md#a) [out](x.md).\n\n\
        ## A heading\n| a | b |\n|---|---|\n| `x|y` | one |\n| z | two \\| three |\n\n- first\n  more\n\
        - second\n\n1. one\n\n```\nlet <a>;\n```\n";

    fn html(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
        let to = |target: &str| target.strip_prefix("http.md").map(|it| format!("/h{it}"));
        render(PAGE, &words, &to).into_string()
    }

    #[test]
    fn a_page_becomes_html() {
        let html = html(&[]);
        assert!(!html.contains("Title"));
        for part in [
            "<p>A <em>word</em> and <code>co|de</code>, <strong>strong</strong> \
             <a href=\"/h#a\">here</a> out.</p>",
            "<h2 id=\"a-heading\">A heading</h2>",
            "<td data-head=\"a\"><code>x|y</code></td><td data-head=\"b\">one</td>",
            "<td data-head=\"b\">two | three</td>",
            "<ul><li>first more</li><li>second</li></ul><ol><li>one</li></ol>",
            "<code>let &lt;a&gt;;</code>",
        ] {
            assert!(html.contains(part), "{part}\n{html}");
        }
    }

    #[test]
    fn a_filter_leaves_what_holds_its_words_under_its_heading() {
        let html = html(&["two"]);
        assert!(
            html.contains("A heading") && html.contains("three"),
            "{html}"
        );
        assert!(!html.contains("one") && !html.contains("first"), "{html}");
        assert!(self::html(&["nowhere"]).is_empty());
        assert!(self::html(&["heading"]).contains("second"));
    }

    #[test]
    fn every_page_of_the_reference_is_rendered_without_a_leftover() {
        for page in [
            include_str!("../../../docs/reference/http.md"),
            include_str!("../../../docs/reference/cli.md"),
            include_str!("../../../docs/reference/errors.md"),
        ] {
            let html = render(page, &[], &|_| None).into_string();
            assert!(html.len() > page.len() / 2);
            assert!(!html.contains("```") && !html.contains("]("), "{html}");
        }
    }
}
