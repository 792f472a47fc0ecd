//! HTML builder: values become text or attributes, and never markup.
//!
//! Markup can be added only with [`el`], whose tags and attribute names are constants of the
//! program. All texts and values are escaped when they are added. Style and script attributes are
//! not used, because the console's policy refuses both.

use std::fmt::Write as _;

/// Elements without content and end tag.
const VOID: [&str; 7] = ["br", "hr", "img", "input", "link", "meta", "wbr"];

/// A value that can be rendered into a page.
pub(crate) trait Render {
    /// Appends the escaped value.
    fn render(&self, into: &mut String);
}

/// Markup created by this module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Html(String);

/// An element with its content.
#[derive(Clone, Debug)]
pub(crate) struct Element {
    tag: &'static str,
    attributes: String,
    inside: String,
}

/// An empty element.
pub(crate) fn el(tag: &'static str) -> Element {
    Element {
        tag,
        attributes: String::new(),
        inside: String::new(),
    }
}

/// A link.
pub(crate) fn link(to: &str, text: impl Render) -> Element {
    el("a").attr("href", to).add(text)
}

/// A choice between values, each with its label. The first one is chosen unless another one is `chosen`.
pub(crate) fn choice(name: &str, label: &str, options: &[(&str, &str)], chosen: &str) -> Html {
    let option = |(value, label): &(&str, &str)| {
        el("option")
            .attr("value", value)
            .flag("selected", *value == chosen)
            .add(*label)
    };
    let select = el("select")
        .attr("id", name)
        .attr("name", name)
        .all(options.iter().map(option));
    Html::default()
        .add(el("label").attr("for", name).add(label))
        .add(select)
}

impl Element {
    /// Sets an attribute.
    pub(crate) fn attr(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        let _ = write!(self.attributes, " {name}=\"");
        escape(value.as_ref(), &mut self.attributes);
        self.attributes.push('"');
        self
    }

    /// Sets an attribute without a value if `is` is true.
    pub(crate) fn flag(mut self, name: &'static str, is: bool) -> Self {
        if is {
            let _ = write!(self.attributes, " {name}");
        }
        self
    }

    /// Sets the class.
    pub(crate) fn class(self, class: impl AsRef<str>) -> Self {
        self.attr("class", class)
    }

    /// Appends to the content.
    pub(crate) fn add(mut self, what: impl Render) -> Self {
        what.render(&mut self.inside);
        self
    }

    /// Appends all items.
    pub(crate) fn all<T: Render>(mut self, what: impl IntoIterator<Item = T>) -> Self {
        for one in what {
            one.render(&mut self.inside);
        }
        self
    }
}

impl Html {
    /// Appends a value.
    pub(crate) fn add(mut self, what: impl Render) -> Self {
        what.render(&mut self.0);
        self
    }

    /// Renders all items.
    pub(crate) fn all<T: Render>(what: impl IntoIterator<Item = T>) -> Self {
        what.into_iter().fold(Self::default(), Self::add)
    }

    /// The markup.
    pub(crate) fn into_string(self) -> String {
        self.0
    }

    /// Whether there is no markup.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Render for Element {
    fn render(&self, into: &mut String) {
        let Self {
            tag,
            attributes,
            inside,
        } = self;
        let _ = write!(into, "<{tag}{attributes}>");
        if !VOID.contains(tag) {
            let _ = write!(into, "{inside}</{tag}>");
        }
    }
}

impl Render for Html {
    fn render(&self, into: &mut String) {
        into.push_str(&self.0);
    }
}

impl Render for str {
    fn render(&self, into: &mut String) {
        escape(self, into);
    }
}

impl Render for String {
    fn render(&self, into: &mut String) {
        escape(self, into);
    }
}

impl<T: Render + ?Sized> Render for &T {
    fn render(&self, into: &mut String) {
        (**self).render(into);
    }
}

impl<T: Render> Render for Option<T> {
    fn render(&self, into: &mut String) {
        if let Some(what) = self {
            what.render(into);
        }
    }
}

impl<T: Render> Render for Vec<T> {
    fn render(&self, into: &mut String) {
        for what in self {
            what.render(into);
        }
    }
}

impl Render for i64 {
    fn render(&self, into: &mut String) {
        let _ = write!(into, "{self}");
    }
}

impl Render for u64 {
    fn render(&self, into: &mut String) {
        let _ = write!(into, "{self}");
    }
}

impl Render for u32 {
    fn render(&self, into: &mut String) {
        let _ = write!(into, "{self}");
    }
}

/// Escapes text, for element content and quoted attributes.
fn escape(text: &str, into: &mut String) {
    for letter in text.chars() {
        match letter {
            '&' => into.push_str("&amp;"),
            '<' => into.push_str("&lt;"),
            '>' => into.push_str("&gt;"),
            '"' => into.push_str("&quot;"),
            '\'' => into.push_str("&#39;"),
            // Characters that would end the text or reverse the direction of the line.
            '\0' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => into.push('\u{fffd}'),
            plain => into.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_added_means_itself() {
        let evil = "<script>alert('1')</script>\" onload=\"x";
        let made = el("p").attr("title", evil).add(evil);
        let html = Html::default().add(made).into_string();
        assert_eq!(
            html,
            "<p title=\"&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&quot;x\">\
             &lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&quot;x</p>"
        );
    }

    #[test]
    fn an_element_that_holds_nothing_is_not_closed() {
        let html = Html::default().add(el("input").flag("required", true).flag("disabled", false));
        assert_eq!(html.into_string(), "<input required>");
    }

    proptest! {
        #[test]
        fn no_text_makes_markup(text in any::<String>()) {
            let html = Html::default().add(text.as_str()).into_string();
            prop_assert!(!html.contains(['<', '>', '"', '\'', '\0']));
            for (at, _) in html.match_indices('&') {
                let rest = &html[at..];
                let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
                prop_assert!(known.iter().any(|it| rest.starts_with(it)));
            }
        }
    }
}
