//! Values that a filter contains, and their equality with values of an event.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    FilterError,
    decimal::Decimal,
    document::{Kind, Value},
};

/// A JSON value of a filter.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    /// The number as it was written.
    Number(String),
    Text(String),
    Array(Vec<Literal>),
    Object(BTreeMap<String, Literal>),
}

impl Literal {
    /// Reads a value at this place of the filter. The depth of the filter is bounded.
    pub(super) fn read(value: Value<'_>, place: &str) -> Result<Self, FilterError> {
        Ok(match value.kind() {
            Kind::Null => Self::Null,
            Kind::False => Self::Bool(false),
            Kind::True => Self::Bool(true),
            Kind::Number => Self::Number(read_number(value, place)?),
            Kind::Text => Self::Text(read_text(value, place)?),
            Kind::Array => {
                let items = value.items().enumerate();
                let items = items.map(|(at, item)| Self::read(item, &format!("{place}[{at}]")));
                Self::Array(items.collect::<Result<_, _>>()?)
            }
            Kind::Object => {
                let members = members(value, place)?.into_iter();
                let members = members.map(|(name, value)| {
                    let read = Self::read(value, &below(place, &name))?;
                    Ok((name, read))
                });
                Self::Object(members.collect::<Result<_, FilterError>>()?)
            }
        })
    }

    /// Whether a value of an event is equal. The members of objects may be in any order.
    pub(super) fn equals(&self, value: Value<'_>) -> bool {
        match self {
            Self::Null => value.kind() == Kind::Null,
            Self::Bool(true) => value.kind() == Kind::True,
            Self::Bool(false) => value.kind() == Kind::False,
            Self::Number(number) => {
                let number = Decimal::parse(number);
                number.is_some() && number == value.number()
            }
            Self::Text(text) => value.is_text(text),
            Self::Array(items) => {
                let mut own = value.items();
                value.kind() == Kind::Array
                    && items
                        .iter()
                        .all(|item| own.next().is_some_and(|own| item.equals(own)))
                    && own.next().is_none()
            }
            Self::Object(members) => value.kind() == Kind::Object && has_members(value, members),
        }
    }
}

/// Whether an object has exactly these members.
fn has_members(value: Value<'_>, members: &BTreeMap<String, Literal>) -> bool {
    if let Some(table) = value.table() {
        let is_equal = |(name, literal): (&String, &Literal)| {
            let own = table.member(name);
            own.is_some_and(|index| literal.equals(value.sibling(index)))
        };
        return table.names() == Some(members.len()) && members.iter().all(is_equal);
    }
    let longest = members.keys().map(String::len).max();
    let longest = longest.unwrap_or_default();
    let mut own = BTreeMap::new();
    for (name, value) in value.members() {
        let Some(name) = name.short_text(longest) else {
            return false;
        };
        // Of members with the same name the last one counts.
        own.insert(name, value);
        if own.len() > members.len() {
            return false;
        }
    }
    let mut pairs = own.iter().zip(members);
    own.len() == members.len()
        && pairs
            .all(|((own_name, own), (name, literal))| **own_name == **name && literal.equals(*own))
}

/// The members of an object of the filter, none of them twice.
pub(crate) fn members<'d>(
    value: Value<'d>,
    place: &str,
) -> Result<Vec<(String, Value<'d>)>, FilterError> {
    let mut seen = BTreeSet::new();
    let mut members = Vec::new();
    for (name, value) in value.members() {
        let name = read_text(name, place)?;
        if !seen.insert(name.clone()) {
            return Err(FilterError::new(&below(place, &name), "appears twice"));
        }
        members.push((name, value));
    }
    Ok(members)
}

/// The place of a member.
pub(crate) fn below(place: &str, name: &str) -> String {
    match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    }
}

/// A string of the filter.
pub(crate) fn read_text(value: Value<'_>, place: &str) -> Result<String, FilterError> {
    let text = value.text().ok_or_else(|| {
        let problem = match value.kind() {
            Kind::Text => "contains half of a surrogate pair, which no text has",
            _ => "must be a string",
        };
        FilterError::new(place, problem)
    })?;
    Ok(text.into_owned())
}

/// A number of the filter.
pub(super) fn read_number(value: Value<'_>, place: &str) -> Result<String, FilterError> {
    match value.number() {
        Some(_) => Ok(value.raw().to_owned()),
        None => Err(FilterError::new(
            place,
            "must be a number whose exponent has at most 18 digits",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{super::document::Document, *};

    #[test]
    fn a_long_value_is_not_read_again_for_each_value_of_a_list() {
        let start = Instant::now();
        let escaped = format!("\"{}\"", "\\u0041".repeat(170_000));
        let named = format!("{{{escaped}: 1}}");
        let digits = format!("1.{}", "0".repeat(1_000_000));
        let repeated = format!("{{{}\"a\": 1}}", "\"a\": 2,".repeat(100_000));
        let nested = format!("[{repeated}]");
        for payload in [
            escaped,
            named,
            format!("[{digits}]"),
            digits,
            repeated,
            nested,
        ] {
            let document = Document::parse(&payload).unwrap();
            for text in ["\"A\"", "2", "[2]", "{\"a\": 2}", "[{\"a\": 2}]"] {
                let filter = Document::parse(text).unwrap();
                let literal = Literal::read(filter.root(), "").unwrap();
                for _ in 0..1_000 {
                    assert!(!literal.equals(document.root()), "{text}");
                }
            }
        }
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    }

    #[test]
    fn a_value_is_equal_however_long_its_text_is() {
        check(r#""\u0041\u00e9\ud83d\ude00\n""#, "\"A\u{e9}\u{1f600}\\n\"");
        check("\"\"", "\"\"");
        check(r#"{"\u0041": [1]}"#, r#"{"A": [1]}"#);
        let many = "\"\\u0061\": 2,".repeat(100);
        check(
            &format!("{{{many}\"a\": 1, \"b\": {{}}}}"),
            r#"{"a": 1, "b": {}}"#,
        );
        check(&format!("[1.{}]", "0".repeat(100)), "[1]");
        check(
            &format!("{}1.5", "9".repeat(100)),
            &format!("{}1.50", "9".repeat(100)),
        );
    }

    #[track_caller]
    fn check(payload: &str, text: &str) {
        let (document, filter) = (Document::parse(payload), Document::parse(text));
        let literal = Literal::read(filter.unwrap().root(), "").unwrap();
        assert!(literal.equals(document.unwrap().root()), "{payload}");
    }
}
