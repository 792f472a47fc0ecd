//! Patterns of names: `events.{type}` is `events.order.created` for one event and another name for
//! the next.
//!
//! The placeholders are `{type}`, `{tenant}`, `{aggregate_type}` and `{aggregate_id}`. If an event
//! lacks a value, `_` is used. The sink escapes all values, so that an event can only produce a
//! valid name.

use hapax::event::Event;

use crate::settings::SettingError;

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Hole(Hole),
}

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hole {
    /// The event type.
    Type,
    /// The tenant.
    Tenant,
    /// The aggregate type.
    AggregateType,
    /// The aggregate id.
    AggregateId,
}

impl Pattern {
    /// Parses the pattern of a setting.
    pub(crate) fn of_setting(setting: &str, text: &str) -> Result<Self, SettingError> {
        let expected = "{type}, {tenant}, {aggregate_type} or {aggregate_id}";
        let problem = format!("is empty or has an unknown {{placeholder}}: expected {expected}");
        Self::parse(text).ok_or_else(|| SettingError::new(setting, problem))
    }

    /// Parses a pattern. Returns `None` if a brace does not belong to a known placeholder.
    fn parse(text: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, hole) = rest.split_at(at);
            let (name, after) = hole.strip_prefix('{')?.split_once('}')?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(Piece::Hole(Hole::named(name)?));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        (!pieces.is_empty()).then_some(Self(pieces))
    }

    /// Whether all events have the same name, so that an error in it applies to all of them.
    #[cfg(any(test, feature = "nats", feature = "redis", feature = "kafka"))]
    pub(crate) fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The name for an event. Each placeholder is replaced with what `spell` returns.
    pub(crate) fn fill(&self, event: &Event, spell: impl Fn(Hole, &str) -> String) -> String {
        let mut name = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Hole(hole) => match hole.of(event) {
                    Some(value) if !value.is_empty() => name.push_str(&spell(*hole, value)),
                    _ => name.push('_'),
                },
            }
        }
        name
    }

    /// The name with `x` for each placeholder. If it is not valid, no name is.
    #[cfg(any(test, feature = "nats", feature = "redis", feature = "kafka"))]
    pub(crate) fn sample(&self) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Hole(_) => "x",
        });
        pieces.collect()
    }
}

impl Hole {
    fn named(name: &str) -> Option<Self> {
        match name {
            "type" => Some(Self::Type),
            "tenant" => Some(Self::Tenant),
            "aggregate_type" => Some(Self::AggregateType),
            "aggregate_id" => Some(Self::AggregateId),
            _ => None,
        }
    }

    fn of(self, event: &Event) -> Option<&str> {
        let aggregate = event.aggregate.as_ref();
        match self {
            Self::Type => Some(&event.kind),
            Self::Tenant => event.tenant.as_ref().map(hapax::key::Tenant::as_str),
            Self::AggregateType => aggregate.map(|it| it.kind.as_str()),
            Self::AggregateId => aggregate.map(|it| it.id.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use hapax::event::NewEvent;

    use super::*;
    use crate::sample;

    #[test]
    fn holes_are_filled_and_what_an_event_lacks_is_an_underscore() {
        let bare = NewEvent::json("order.created", &1);
        check("all", &bare, "all");
        check("events.{type}", &bare, "events.order.created");
        check("{tenant}/{aggregate_type}-{aggregate_id}!", &bare, "_/_-_!");
        check(
            "{aggregate_type}{aggregate_id}",
            &bare.about("order", "7"),
            "order7",
        );
    }

    #[test]
    fn a_hole_that_is_none_is_refused() {
        for text in ["", "{", "}", "a{b}", "{type", "type}", "{}", "{type}}"] {
            assert_eq!(Pattern::parse(text), None, "{text}");
        }
        assert_eq!(Pattern::parse("a {type}").unwrap().sample(), "a x");
    }

    #[track_caller]
    fn check(text: &str, new: &NewEvent, expected: &str) {
        let offer = sample::offer(new.clone());
        let pattern = Pattern::parse(text).unwrap();
        let name = pattern.fill(offer.event(), |_, value| value.to_owned());
        assert_eq!(name, expected);
    }
}
