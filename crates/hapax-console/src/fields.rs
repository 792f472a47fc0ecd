//! Form fields, in a query string or in a body.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

/// Characters that are not escaped in a URL.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Fields in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Parses `name=value&name=value`.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let pairs = text.split(|byte| *byte == b'&').filter(|it| !it.is_empty());
        let pair = |pair: &[u8]| {
            let at = pair.iter().position(|byte| *byte == b'=');
            let (name, value) = pair.split_at(at.unwrap_or(pair.len()));
            (decode(name), decode(value.get(1..).unwrap_or_default()))
        };
        Self(pairs.map(pair).collect())
    }

    /// The first value of a name, unless it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let own = self.0.iter().filter(move |(known, _)| known == name);
        own.map(|(_, value)| value.as_str())
    }

    /// The first value of a name, or an empty text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }
}

/// A URL of the console with a query. Fields without a value are omitted.
pub(crate) fn url(path: &str, fields: &[(&str, &str)]) -> String {
    let mut url = path.to_owned();
    let mut gap = '?';
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        url.push(gap);
        url.push_str(name);
        url.push('=');
        url.extend(utf8_percent_encode(value, PLAIN));
        gap = '&';
    }
    url
}

/// A path that ends with the name of an object.
pub(crate) fn path_of(folder: &str, name: &str) -> String {
    // A browser would interpret dots as a folder.
    let name = utf8_percent_encode(name, PLAIN).to_string();
    let name = if name.bytes().all(|byte| byte == b'.') {
        name.replace('.', "%2E")
    } else {
        name
    };
    format!("{folder}/{name}")
}

fn decode(text: &[u8]) -> String {
    let spaced: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_form_is_read_as_a_browser_sends_it() {
        let fields = Fields::parse(b"q=type%3Aorder.*+state%3Adead&empty=&flag&q=second");
        assert_eq!(fields.get("q"), Some("type:order.* state:dead"));
        assert_eq!(fields.get("empty"), None);
        assert_eq!(fields.get("flag"), None);
        assert_eq!(fields.text("none"), "");
    }

    proptest! {
        #[test]
        fn what_a_url_says_is_read_back(value in ".{1,30}") {
            let url = url("/console/events", &[("none", ""), ("q", &value)]);
            let query = url.split_once('?').unwrap().1;
            let fields = Fields::parse(query.as_bytes());
            prop_assert_eq!(fields.get("q"), Some(value.as_str()));
        }
    }
}
