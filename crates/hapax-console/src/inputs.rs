//! Fields of forms that have a label and a hint.

use crate::html::{Element, Html, el};

/// The hint of the event types of an endpoint.
pub(crate) const TYPES_HINT: &str = "Patterns such as order.*, separated by spaces or lines. \
                                     Without a type and a pattern, the endpoint receives all events.";
/// The hint of the filter of an endpoint.
pub(crate) const FILTER_HINT: &str = "Conditions on the content of events, as JSON, such as \
                                      {\"/amount\": {\"$gte\": 1000}}. Empty for none.";
/// The hint of the mapping of an endpoint.
pub(crate) const MAPPING_HINT: &str = "A template that makes the whole body of each request, as \
                                       JSON, such as {\"text\": \"$.data.message\"}. Empty for the \
                                       usual body.";

/// A field with its label. Its id is not one that the script of the console looks for.
pub(crate) fn labelled(name: &str, label: &str, input: Element) -> Html {
    let id = format!("field-{name}");
    Html::default()
        .add(el("label").attr("for", id).add(label))
        .add(input)
}

/// A text of several lines.
pub(crate) fn area(name: &str, label: &str, text: &str, hint: &str) -> Html {
    let (id, note) = (format!("field-{name}"), format!("note-{name}"));
    // A browser drops the first line break of a text area.
    let area = el("textarea")
        .attr("id", id)
        .attr("name", name)
        .attr("rows", "3")
        .attr("spellcheck", "false")
        .attr("aria-describedby", &note)
        .add("\n")
        .add(text);
    labelled(name, label, area).add(el("p").class("soft").attr("id", &note).add(hint))
}
