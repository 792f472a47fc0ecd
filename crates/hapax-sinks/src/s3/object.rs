//! Objects: JSON Lines, named by the time and the ids of their events.
//!
//! The name and the bytes depend only on the events and the settings. So a batch that is delivered
//! again replaces its object with the same bytes.

use hapax::{event::Event, sink::Offer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    format::{self, TextFormat, civil},
    settings::SettingError,
};

/// Maximum length of a prefix in bytes. A name has at most 1,024.
const PREFIX_BYTES_MAX: usize = 512;
/// Characters that are escaped in a path before it is signed.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// An event as a line.
pub(super) struct Line<'a> {
    event: &'a Event,
    pub(super) bytes: Vec<u8>,
}

impl<'a> Line<'a> {
    pub(super) fn of(offer: &'a Offer, format: TextFormat, source: &str) -> Self {
        let event = offer.event();
        let mut bytes = Vec::new();
        format::push_line(&mut bytes, format.write(event, source));
        Self { event, bytes }
    }
}

/// The content of an object.
pub(super) fn body(lines: &[Line<'_>]) -> Vec<u8> {
    let mut body = Vec::with_capacity(lines.iter().map(|line| line.bytes.len()).sum());
    for line in lines {
        body.extend_from_slice(&line.bytes);
    }
    body
}

/// The name of an object, percent-encoded: the hour of its first event in UTC, the ids of its first
/// and its last event, and the beginning of the hash of its content.
pub(super) fn name(prefix: &str, lines: &[Line<'_>], body_hash: &str) -> String {
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
        return prefix.to_owned();
    };
    let hour = civil(first.event.created_at).strftime("%Y/%m/%d/%H");
    let (first, last) = (first.event.id, last.event.id);
    let hash = body_hash.get(..16).unwrap_or(body_hash);
    format!("{prefix}{hour}/{first}-{last}-{hash}.jsonl")
}

/// The prefix of a setting, percent-encoded and with a slash at its end; empty if there is none.
pub(super) fn prefix(text: Option<&str>) -> Result<String, SettingError> {
    let text = text.unwrap_or_default();
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.is_empty() {
        return Ok(String::new());
    }
    let is_part = |part: &str| !matches!(part, "" | "." | "..");
    let is_valid = text.len() <= PREFIX_BYTES_MAX
        && !text.contains(char::is_control)
        && text.split('/').all(is_part);
    if !is_valid {
        let problem = format!(
            "has a part that is empty, . or .., a control character, or more than \
             {PREFIX_BYTES_MAX} bytes"
        );
        return Err(SettingError::new("prefix", problem));
    }
    Ok(format!("{}/", utf8_percent_encode(text, ESCAPED)))
}

#[cfg(test)]
mod tests {
    use hapax::event::NewEvent;

    use super::*;
    use crate::{aws::hash, sample::numbered_offer};

    #[test]
    fn the_name_and_the_bytes_depend_only_on_the_events() {
        let offers = [offer(1), offer(2)];
        let again = offers.clone().map(|offer| Offer {
            attempt: 2,
            ..offer
        });
        let [first, second] = [&offers, &again].map(|offers| {
            let lines = lines(offers);
            let body = body(&lines);
            (name("shop/", &lines, &hash(&body)), body)
        });
        assert_eq!(first, second);
        let (name, body) = first;
        let ids: Vec<_> = offers.iter().map(|it| it.event().id.to_string()).collect();
        let beginning = format!("shop/2023/11/14/22/{}-{}-", ids[0], ids[1]);
        assert!(name.starts_with(&beginning), "{name}");
        assert!(name.strip_suffix(".jsonl").is_some(), "{name}");
        let text = String::from_utf8(body).unwrap();
        let found = text.lines().map(|line| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            event["id"].as_str().unwrap().to_owned()
        });
        assert_eq!(found.collect::<Vec<_>>(), ids);
    }

    #[test]
    fn other_content_has_another_name() {
        let offers = [offer(1), offer(2)];
        let lines = lines(&offers);
        let of = |lines: &[Line<'_>]| name("", lines, &hash(&body(lines)));
        assert_ne!(of(&lines), of(&lines[..1]));
        let raw = [Line::of(&offers[0], TextFormat::Raw, "/s")];
        assert_ne!(of(&lines[..1]), of(&raw));
    }

    #[test]
    fn a_prefix_is_escaped_and_ends_with_one_slash() {
        let of = |text| prefix(Some(text)).unwrap();
        assert_eq!(of("shop/events"), "shop/events/");
        assert_eq!(of("shop/"), "shop/");
        assert_eq!(of("a b$/é~"), "a%20b%24/%C3%A9~/");
        assert_eq!(of(""), "");
        assert_eq!(prefix(None).unwrap(), "");
        for bad in ["/a", "a//b", "a/../b", ".", "a\nb", &"x".repeat(513)] {
            assert_eq!(prefix(Some(bad)).unwrap_err().setting, "prefix", "{bad}");
        }
    }

    fn lines(offers: &[Offer]) -> Vec<Line<'_>> {
        let line = |offer| Line::of(offer, TextFormat::Structured, "/s");
        offers.iter().map(line).collect()
    }

    fn offer(number: u64) -> Offer {
        numbered_offer(number, NewEvent::json("order.created", &number))
    }
}
