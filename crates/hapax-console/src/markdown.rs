//! Renders the reference pages, whole or only the parts that contain all words of a filter.
//!
//! `pulldown-cmark` reads the Markdown. The markup is built here, by the console's HTML builder: raw
//! HTML of a page is shown as text, and a link keeps its target only if the target exists in the
//! console.

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, OffsetIter, Options, Parser, Tag};

use crate::html::{Element, Html, el, link};

/// Maximum number of elements within each other. The content of deeper ones is shown without them,
/// because elements are rendered recursively.
const DEPTH_MAX: usize = 64;

/// Returns the target of a link, if it exists in the console.
type LeadsTo<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Renders a page without its title. With words, only the parts that contain all of them.
pub(crate) fn render(text: &str, words: &[String], to: LeadsTo<'_>) -> Html {
    Page::of(text, words, to).render()
}

/// Renders the parts of a page that contain all words, beside those of other pages: headings have no
/// anchors, because two pages may have the same ones.
pub(crate) fn excerpt(text: &str, words: &[String], to: LeadsTo<'_>) -> Html {
    let mut page = Page::of(text, words, to);
    page.has_anchors = false;
    page.render()
}

/// Renders one paragraph without its element, such as the cell of a table.
pub(crate) fn inline(text: &str, to: LeadsTo<'_>) -> Html {
    let mut page = Page::of(text, &[], to);
    let _paragraph = page.events.next();
    page.content()
}

/// A page that is being rendered.
struct Page<'a> {
    text: &'a str,
    /// What follows. A method that renders an element reads up to the element's end.
    events: OffsetIter<'a>,
    words: &'a [String],
    /// Whether the heading contains all words: then everything below it is shown.
    is_section_shown: bool,
    /// Whether headings have anchors.
    has_anchors: bool,
    /// How many elements are open.
    depth: usize,
    to: LeadsTo<'a>,
}

impl<'a> Page<'a> {
    fn of(text: &'a str, words: &'a [String], to: LeadsTo<'a>) -> Self {
        Self {
            text,
            events: Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter(),
            words,
            is_section_shown: false,
            has_anchors: true,
            depth: 0,
            to,
        }
    }

    /// Renders all parts, or those that contain all words.
    fn render(mut self) -> Html {
        let (mut html, mut heading) = (Html::default(), None);
        while let Some((event, range)) = self.events.next() {
            let Event::Start(tag) = event else { continue };
            let block = match tag {
                Tag::Heading { level, .. } => {
                    heading = self.heading(level, range);
                    None
                }
                Tag::List(first_number) => self.list(first_number),
                Tag::Table(_) => self.table(),
                tag => {
                    let block = self.element(tag);
                    self.shows(range).then_some(block)
                }
            };
            if let Some(block) = block {
                html = html.add(heading.take()).add(block);
            }
        }
        html
    }

    /// Whether a part of the page contains all words.
    fn contains_words(&self, part: &str) -> bool {
        let part = part.to_lowercase();
        self.words.iter().all(|word| part.contains(word.as_str()))
    }

    fn shows(&self, range: Range<usize>) -> bool {
        self.is_section_shown || self.contains_words(&self.text[range])
    }

    fn heading(&mut self, level: HeadingLevel, range: Range<usize>) -> Option<Element> {
        let content = self.content();
        let tag = match level {
            HeadingLevel::H1 => return None,
            HeadingLevel::H2 => "h2",
            _ => "h3",
        };
        let title = self.text[range].trim_matches(['#', ' ', '\n']);
        self.is_section_shown = !self.words.is_empty() && self.contains_words(title);
        let heading = el(tag).add(content);
        Some(if self.has_anchors {
            heading.attr("id", anchor(title))
        } else {
            heading
        })
    }

    /// The items of a list that contain all words, or `None` if there are none.
    fn list(&mut self, first_number: Option<u64>) -> Option<Html> {
        let mut items = Vec::new();
        while let Some((Event::Start(_), range)) = self.events.next() {
            let item = el("li").add(self.content());
            items.extend(self.shows(range).then_some(item));
        }
        let list = el(list_tag(first_number)).all(&items);
        (!items.is_empty()).then(|| Html::default().add(list))
    }

    /// The rows of a table that contain all words, or `None` if there are none.
    fn table(&mut self) -> Option<Html> {
        let _head = self.events.next();
        let heads = self.cells();
        let mut rows = Vec::new();
        while let Some((Event::Start(_), range)) = self.events.next() {
            let cells = self.cells().into_iter().zip(&heads);
            let cells = cells.map(|((_, cell), (name, _))| {
                let value = el("div").class("v").add(cell);
                el("td").attr("data-head", name).add(value)
            });
            let row = el("tr").all(cells);
            rows.extend(self.shows(range).then_some(row));
        }
        let heads = heads.into_iter().map(|(_, head)| {
            if head.is_empty() {
                el("td")
            } else {
                el("th").attr("scope", "col").add(head)
            }
        });
        let head = el("thead").add(el("tr").all(heads));
        let body = el("tbody").all(&rows);
        let table = el("table").add(head).add(body);
        (!rows.is_empty()).then(|| Html::default().add(table))
    }

    /// The cells of a row, each as plain text and as markup.
    fn cells(&mut self) -> Vec<(String, Html)> {
        let mut cells = Vec::new();
        while let Some((Event::Start(_), range)) = self.events.next() {
            let plain = self.text[range].replace('`', "");
            cells.push((plain.trim().to_owned(), self.content()));
        }
        cells
    }

    /// Renders an element that has started. Elements that the console does not know are replaced by
    /// their content.
    fn element(&mut self, tag: Tag<'_>) -> Html {
        if self.depth >= DEPTH_MAX {
            return self.plain();
        }
        self.depth += 1;
        let element = self.known_element(tag);
        self.depth -= 1;
        element
    }

    fn known_element(&mut self, tag: Tag<'_>) -> Html {
        let tag = match tag {
            Tag::CodeBlock(_) => return Html::default().add(self.code_block()),
            Tag::Link { dest_url, .. } => {
                let name = self.content();
                return match (self.to)(&dest_url) {
                    Some(target) => Html::default().add(link(&target, name)),
                    None => name,
                };
            }
            Tag::Paragraph => "p",
            Tag::List(first_number) => list_tag(first_number),
            Tag::Item => "li",
            Tag::Strong => "strong",
            Tag::Emphasis => "em",
            _ => return self.content(),
        };
        Html::default().add(el(tag).add(self.content()))
    }

    /// Renders up to the end of the element that has started.
    fn content(&mut self) -> Html {
        let mut html = Html::default();
        while let Some((event, _)) = self.events.next() {
            html = match event {
                Event::End(_) => break,
                Event::Start(tag) => html.add(self.element(tag)),
                Event::Code(code) => html.add(el("code").add(&*code)),
                Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => html.add(&*text),
                Event::SoftBreak | Event::HardBreak => html.add(" "),
                // Events of extensions that are not enabled, and horizontal rules.
                _ => html,
            };
        }
        html
    }

    /// Renders up to the end of the element that has started, as text without elements.
    fn plain(&mut self) -> Html {
        let (mut html, mut open) = (Html::default(), 1_usize);
        while open > 0 {
            let Some((event, _)) = self.events.next() else {
                break;
            };
            match event {
                Event::Start(_) => open += 1,
                Event::End(_) => open -= 1,
                Event::Text(text)
                | Event::Code(text)
                | Event::Html(text)
                | Event::InlineHtml(text) => html = html.add(&*text),
                Event::SoftBreak | Event::HardBreak => html = html.add(" "),
                _ => {}
            }
        }
        html
    }

    fn code_block(&mut self) -> Element {
        let mut code = String::new();
        while let Some((Event::Text(text), _)) = self.events.next() {
            code.push_str(&text);
        }
        el("pre")
            .attr("tabindex", "0")
            .attr("role", "region")
            .attr("aria-label", "Example")
            .add(el("code").add(code.trim_end()))
    }
}

fn list_tag(first_number: Option<u64>) -> &'static str {
    first_number.map_or("ul", |_| "ol")
}

/// The anchor of a heading, as the book generates it.
fn anchor(heading: &str) -> String {
    let letters = heading.to_lowercase();
    let kept = letters
        .chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\nA *word* and `co|de`,\n**strong** [here](http.md#a) [out](x.md).\n\n\
        ## A heading\n| a | b |\n|---|---|\n| `x\\|y` | one |\n| z | two \\| three |\n\n- first\n  more\n\
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
            "<td data-head=\"a\"><div class=\"v\"><code>x|y</code></div></td>",
            "<td data-head=\"b\"><div class=\"v\">two | three</div></td>",
            "<ul><li>first more</li><li>second</li></ul><ol><li>one</li></ol>",
            "<code>let &lt;a&gt;;</code>",
        ] {
            assert!(html.contains(part), "{part}\n{html}");
        }
    }

    #[test]
    fn markup_of_a_page_is_shown_as_text_and_an_unknown_target_is_left_out() {
        let page = "<script>a()</script>\n\n<b onclick=x>bold</b> [go](javascript:a) ![i](x.png)\n";
        let html = render(page, &[], &|_| None).into_string();
        assert!(html.contains("&lt;script&gt;a()&lt;/script&gt;"), "{html}");
        assert!(
            html.contains("&lt;b onclick=x&gt;bold&lt;/b&gt; go i"),
            "{html}"
        );
    }

    #[test]
    fn elements_are_nested_to_a_bounded_depth() {
        for (mark, element) in [("> ", "p"), ("- ", "ul"), ("1. ", "ol")] {
            let page = format!("{}deep <b>\n\nafter\n", mark.repeat(10_000));
            let html = render(&page, &[], &|_| None).into_string();
            let start = format!("<{element}>");
            assert!(html.matches(&*start).count() <= DEPTH_MAX + 2, "{mark}");
            assert!(html.contains("deep &lt;b&gt;"), "{mark}");
            assert!(html.contains("after"), "{mark}");
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
    fn an_excerpt_has_no_anchors_and_a_cell_has_no_paragraph() {
        let html = excerpt(PAGE, &["two".to_owned()], &|_| None).into_string();
        assert!(html.contains("<h2>A heading</h2>"), "{html}");
        let cell = inline("the `key` of *one*", &|_| None).into_string();
        assert_eq!(cell, "the <code>key</code> of <em>one</em>");
    }
}
