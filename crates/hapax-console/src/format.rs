//! Formatting of values: times, durations, numbers, states, and content.

use std::{fmt::Write as _, time::Duration};

use hapax::{
    Timestamp,
    admin::{Count, CountKind},
    mask::Shown,
};

use crate::{
    fields::url,
    html::{Element, Html, Render, el, link},
};

/// A time relative to now, with the exact time as title.
pub(crate) fn time(at: Timestamp, now: Timestamp) -> Element {
    let said = if at > now {
        format!("in {}", about(at.since(now)))
    } else if now.since(at) < Duration::from_secs(1) {
        "just now".to_owned()
    } else {
        format!("{} ago", about(now.since(at)))
    };
    let exact = at.to_string();
    el("time")
        .attr("datetime", &exact)
        .attr("title", &exact)
        .add(said)
}

/// A duration in its two largest units.
pub(crate) fn span(span: Duration) -> String {
    let millis = span.as_millis();
    let seconds = millis / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match () {
        () if millis < 1_000 => format!("{millis} ms"),
        () if seconds < 10 => format!("{seconds}.{} s", millis / 100 % 10),
        () if minutes == 0 => format!("{seconds} s"),
        () if minutes < 10 && seconds.is_multiple_of(60) => format!("{minutes} min"),
        () if minutes < 10 => format!("{minutes} min {} s", seconds % 60),
        () if hours == 0 => format!("{minutes} min"),
        () if days == 0 => format!("{hours} h {} min", minutes % 60),
        () => format!("{days} d {} h", hours % 24),
    }
}

/// A duration in its largest unit.
pub(crate) fn about(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => "1 s".to_owned(),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A number with its noun, in the singular or the plural.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{} {noun}", self::number(number))
}

/// A number with separators.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut spaced = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            spaced.push('\u{202f}');
        }
        spaced.push(digit);
    }
    spaced
}

/// A count, marked if it is not exact.
pub(crate) fn count(count: Count) -> String {
    let said = number(count.number);
    match count.kind {
        CountKind::Exact => said,
        CountKind::AtLeast => format!("≥ {said}"),
        CountKind::About => format!("≈ {said}"),
    }
}

/// A size in bytes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

/// A state.
pub(crate) fn badge(state: &str) -> Element {
    let tone = match state {
        "dead" | "dead_letters" | "failed" | "failing" | "rejected" | "gone" | "disabled"
        | "refused" | "needs_attention" | "unowned" | "owner_silent" | "nobody_knows"
        | "behind_dead_letter" | "declined" | "breaker_open" => "bad",
        "retrying" | "blocked" | "partly_blocked" | "paused" | "unavailable" | "interrupted"
        | "in_progress" | "removing" | "waiting" | "job_waits" | "held_back" | "not_settling"
        | "stalled" | "waits_for_retry" | "backlog_grows" | "slowed" => "slow",
        "delivered" | "completed" | "done" | "active" | "enabled" => "good",
        _ => "plain",
    };
    let label = match state {
        "passed" => "no attempt",
        "unread" => "not read yet",
        "nobody_knows" => "unknown version",
        "not_opened" => "not opened yet",
        state => state,
    };
    el("span")
        .class(format!("badge {tone}"))
        .add(label.replace('_', " "))
}

/// Content that is already masked.
pub(crate) fn content(label: &str, shown: &Shown) -> Element {
    match shown {
        // A scrolling region has to be reachable by keyboard.
        Shown::Json(text) => el("pre")
            .attr("tabindex", "0")
            .attr("role", "region")
            .attr("aria-label", label)
            .add(el("code").add(indented(text))),
        Shown::Opaque {
            content_type,
            bytes,
        } => {
            let kind = content_type.as_deref().unwrap_or("no content type");
            let said = format!("{} of {kind}: only JSON is shown", size(*bytes));
            el("p").class("soft").add(said)
        }
    }
}

/// Indents JSON. Other text is unchanged. Numbers and names keep their text.
fn indented(text: &str) -> String {
    let (mut out, mut depth, mut quoted, mut escaped) = (String::new(), 0_usize, false, false);
    let line = |out: &mut String, depth: usize| {
        let _ = write!(out, "\n{:1$}", "", depth.min(64) * 2);
    };
    let mut letters = text.trim().chars().peekable();
    while let Some(letter) = letters.next() {
        if quoted {
            out.push(letter);
            quoted = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        match letter {
            '{' | '[' => {
                out.push(letter);
                while letters.peek().is_some_and(|it| it.is_whitespace()) {
                    letters.next();
                }
                if let Some(close) = letters.next_if(|it| matches!(it, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(letter);
            }
            ',' => {
                out.push(letter);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => {
                quoted = true;
                out.push(letter);
            }
            it if it.is_whitespace() => {}
            plain => out.push(plain),
        }
    }
    out
}

/// The content of a cell.
pub(crate) fn cell(what: impl Render) -> Html {
    Html::default().add(what)
}

/// Length up to which a text stays on one line, and a word of a longer text in one piece.
const WHOLE: usize = 20;

/// A text of the store in a fixed-width font, or nothing.
pub(crate) fn code(text: Option<&str>) -> Html {
    let text = text.filter(|text| !text.is_empty());
    text.map_or_else(none, |text| cell(whole(el("code"), text)))
}

/// A text of the store, such as a name.
pub(crate) fn name(text: &str) -> Element {
    whole(el("span"), text)
}

/// Adds a text to an element. A short one is never wrapped. A word that is too long for a column
/// may be broken anywhere, if possible after a separator.
fn whole(element: Element, text: &str) -> Element {
    if text.chars().count() <= WHOLE {
        return element.class("line").add(text);
    }
    if text
        .split_whitespace()
        .all(|word| word.chars().count() <= WHOLE)
    {
        return element.add(text);
    }
    let pieces = text.split_inclusive(['.', '/', '_', ':', ',']);
    let last = text.split(['.', '/', '_', ':', ',']).count();
    let piece = |(at, piece): (usize, &str)| {
        let may_break = (at + 1 < last).then(|| el("wbr"));
        Html::default().add(piece).add(may_break)
    };
    element.class("break").all(pieces.enumerate().map(piece))
}

/// An empty value.
pub(crate) fn none() -> Html {
    cell(el("span").class("soft none").add("–"))
}

/// A name that links to its page and opens its row.
pub(crate) fn open_name(to: &str, text: &str) -> Element {
    open(to, name(text))
}

/// The link that opens its row.
pub(crate) fn open(to: &str, text: impl Render) -> Element {
    link(to, text).attr("data-open", "")
}

/// A list of names and values.
pub(crate) fn facts<const N: usize>(facts: [(&str, Html); N]) -> Element {
    let fact =
        |(name, value): (&str, Html)| el("div").add(el("dt").add(name)).add(el("dd").add(value));
    let said = facts.into_iter().filter(|(_, value)| !value.is_empty());
    el("dl").class("facts").all(said.map(fact))
}

/// The link to the next page. An empty page may have one.
pub(crate) fn pager(path: &str, q: &str, before: &str, next: Option<&str>) -> Option<Element> {
    pager_of(path, &[("q", q)], before, next, ["The newest", "Older"])
}

/// The links to the first and to the next page of a list with these fields and labels.
pub(crate) fn pager_of(
    path: &str,
    fields: &[(&str, &str)],
    before: &str,
    next: Option<&str>,
    labels: [&str; 2],
) -> Option<Element> {
    if before.is_empty() && next.is_none() {
        return None;
    }
    let [to_first, to_next] = labels;
    let first = (!before.is_empty()).then(|| link(&url(path, fields), to_first));
    let next = next.map(|next| {
        let to = url(path, &[fields, &[("before", next)]].concat());
        link(&to, to_next).attr("rel", "next").class("next")
    });
    Some(
        el("nav")
            .class("pager")
            .attr("aria-label", "Pages of the list")
            .add(first)
            .add(next),
    )
}

/// A note that nothing was found.
pub(crate) fn nothing(what: &str) -> Element {
    el("p").class("nothing").add(what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_span_is_said_in_its_largest_units() {
        for (millis, said) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (59_999, "59 s"),
            (61_000, "1 min 1 s"),
            (3_599_000, "59 min"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), said);
        }
        assert_eq!(number(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(number(123), "123");
    }

    #[test]
    fn a_time_is_said_in_one_unit() {
        for (seconds, said) in [
            (0, "1 s"),
            (59, "59 s"),
            (61, "1 min"),
            (3_599, "59 min"),
            (172_799, "47 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(about(Duration::from_secs(seconds)), said);
        }
        assert_eq!(counted(1, "key", "keys"), "1 key");
        assert_eq!(counted(0, "key", "keys"), "0 keys");
    }

    #[test]
    fn a_short_text_stays_in_one_piece_and_a_long_word_breaks_at_its_separators() {
        let html = |text: &str| code(Some(text)).into_string();
        assert_eq!(
            html("POST /orders"),
            "<code class=\"line\">POST /orders</code>"
        );
        let words = "connection refused (10.0.0.7:443)";
        assert_eq!(html(words), format!("<code>{words}</code>"));
        assert_eq!(
            html("checkout.payment.succeeded"),
            "<code class=\"break\">checkout.<wbr>payment.<wbr>succeeded</code>"
        );
        assert_eq!(
            html("a.checkout.payment.succeeded."),
            "<code class=\"break\">a.<wbr>checkout.<wbr>payment.<wbr>succeeded.<wbr></code>"
        );
    }

    #[test]
    fn json_is_indented_and_keeps_its_text() {
        let text = "{\"a\":[1.0,{}],\"b\":\"x, {y}\\\"\"}";
        let lines = "{\n  \"a\": [\n    1.0,\n    {}\n  ],\n  \"b\": \"x, {y}\\\"\"\n}";
        assert_eq!(indented(text), lines);
    }

    proptest! {
        #[test]
        fn indenting_changes_nothing_but_white_space(text in any::<String>()) {
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(bare(&indented(&text)), bare(&text));
        }
    }
}
