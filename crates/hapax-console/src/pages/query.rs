//! Filter of a list: parsed from `?q=`, checked against what the page supports, and converted to
//! the filters of the store.

use hapax::{Timestamp, admin::EventFilter, event::EventId, key::Tenant, nearest};

use crate::{
    filter::{Filter, Qualifier, Wrong},
    guard::PageRequest,
    html::{Html, el},
    layout::FilterBox,
};

/// The qualifiers of a page.
pub(crate) struct PageQualifiers {
    pub(crate) qualifiers: &'static [Qualifier],
    /// The meaning of bare words, if they are supported.
    pub(crate) words: Option<&'static str>,
    /// A state of the page, as an example; empty if it has none.
    pub(crate) state: &'static str,
}

/// The text of a filter and the result of parsing it.
pub(crate) struct ListQuery {
    pub(crate) text: String,
    pub(crate) filter: Filter,
    pub(crate) wrong: Option<Wrong>,
    known: &'static PageQualifiers,
}

impl PageQualifiers {
    /// An example of every term that the page accepts.
    fn hint(&self) -> Html {
        let example = |qualifier: &Qualifier| {
            let state = (*qualifier == Qualifier::State).then_some(self.state);
            let example = format!("{}{}", qualifier.example(), state.unwrap_or_default());
            Html::default().add(" ").add(el("code").add(example))
        };
        let words = self.words.map(|what| format!(" A bare word is {what}."));
        Html::default()
            .add("For example")
            .add(Html::all(self.qualifiers.iter().map(example)))
            .add(words)
    }
}

impl ListQuery {
    /// Parses the filter of a request.
    pub(crate) fn of(page_request: &PageRequest, known: &'static PageQualifiers) -> Self {
        Self::read(page_request.fields.text("q"), known)
    }

    /// Parses a filter.
    pub(crate) fn read(text: &str, known: &'static PageQualifiers) -> Self {
        let read = Filter::parse(text);
        let read = read.and_then(|filter| {
            filter.check(known.qualifiers, known.words.is_some())?;
            Ok(filter)
        });
        let (filter, wrong) = match read {
            Ok(filter) => (filter, None),
            Err(wrong) => (Filter::default(), Some(wrong)),
        };
        Self {
            text: text.to_owned(),
            filter,
            wrong,
            known,
        }
    }

    /// Records an error in a value, unless there already is an error.
    pub(crate) fn refuse(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    /// Whether the filter is valid. A filter that is not valid matches nothing.
    pub(crate) fn is_right(&self) -> bool {
        self.wrong.is_none()
    }

    /// The filter box of the list.
    pub(crate) fn into_box(self) -> FilterBox {
        FilterBox {
            hint: self.known.hint(),
            wrong: self.wrong.map(|wrong| wrong.0),
            text: self.text,
        }
    }

    /// The store's filter of events and deliveries.
    pub(crate) fn of_events(&mut self, now: Timestamp) -> EventFilter {
        let (older, younger) = self.filter.ages();
        let before = |age| Timestamp::from_millis(now.as_millis().saturating_sub(millis(age)));
        let mut found = EventFilter {
            kind: self.filter.one(Qualifier::Type).map(str::to_owned),
            since: younger.map(before),
            until: older.map(before),
            attempts_min: self.filter.attempts_min(),
            error: self.filter.one(Qualifier::Error).map(str::to_owned),
            ..EventFilter::default()
        };
        if let Some(about) = self.filter.one(Qualifier::About) {
            let (kind, id) = match about.split_once('/') {
                Some((kind, id)) => (kind, Some(id.to_owned())),
                None => (about, None),
            };
            found.aggregate_type = Some(kind.to_owned());
            found.aggregate_id = id;
        }
        found.tenant = self.tenant();
        if let Some(id) = self.filter.one(Qualifier::Id).map(str::to_owned) {
            match id.parse::<EventId>() {
                Ok(id) => found.event_id = Some(id),
                Err(_) => self.refuse(Wrong(format!("id: takes a UUID, not {id:?}"))),
            }
        }
        found
    }

    /// The tenant.
    pub(crate) fn tenant(&mut self) -> Option<Tenant> {
        let name = self.filter.one(Qualifier::Tenant)?.to_owned();
        match Tenant::new(name.as_str()) {
            Ok(tenant) => Some(tenant),
            Err(error) => {
                self.refuse(Wrong(format!("tenant: {error}")));
                None
            }
        }
    }

    /// The start and the end of the time range that corresponds to the ages.
    pub(crate) fn moments(&self, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
        let (older, younger) = self.filter.ages();
        let before = |age| Timestamp::from_millis(now.as_millis().saturating_sub(millis(age)));
        (younger.map(before), older.map(before))
    }

    /// The value of a qualifier that a bare word can replace. A second word is refused.
    pub(crate) fn one_or_word(&mut self, qualifier: Qualifier) -> Option<String> {
        let said = self.filter.one(qualifier).map(str::to_owned);
        let mut words = self.filter.words.clone().into_iter();
        let found = said.or_else(|| words.next());
        if let Some(more) = words.next() {
            self.refuse_word(&more, qualifier);
        }
        found
    }

    /// The text of a qualifier that bare words can replace. Words in addition to the qualifier are
    /// refused.
    pub(crate) fn one_or_words(&mut self, qualifier: Qualifier) -> Option<String> {
        let said = self.filter.one(qualifier).map(str::to_owned);
        let words = self.filter.words.clone();
        match (&said, words.first()) {
            (Some(_), Some(more)) => self.refuse_word(more, qualifier),
            (None, Some(_)) => return Some(words.join(" ")),
            _ => {}
        }
        said
    }

    fn refuse_word(&mut self, word: &str, qualifier: Qualifier) {
        let name = qualifier.as_str();
        let wrong = format!(
            "{word:?} is one too many: a bare word means {name}: here, and is allowed once"
        );
        self.refuse(Wrong(wrong));
    }

    /// The state, out of the known ones. A second one is refused.
    pub(crate) fn state<T>(&mut self, all: &[T], word: impl Fn(&T) -> &'static str) -> Option<T>
    where
        T: Copy,
    {
        let found = self.states(all, &word);
        if let Some(more) = found.get(1) {
            let wrong = format!(
                "state: can be given once on this page, not {:?} as well",
                word(more)
            );
            self.refuse(Wrong(wrong));
        }
        found.first().copied()
    }

    /// The states, out of the known ones.
    pub(crate) fn states<T>(&mut self, all: &[T], word: impl Fn(&T) -> &'static str) -> Vec<T>
    where
        T: Copy,
    {
        let names: Vec<String> = self
            .filter
            .every(Qualifier::State)
            .flat_map(|words| words.split(','))
            .map(str::to_owned)
            .collect();
        let mut found = Vec::new();
        for name in names {
            if let Some(state) = all.iter().find(|it| word(it) == name) {
                found.push(*state);
                continue;
            }
            let words: Vec<_> = all.iter().map(&word).collect();
            let near = nearest(&name, words.iter().copied());
            let hint = near.map(|near| format!("; did you mean state:{near}?"));
            let hint = hint.unwrap_or_default();
            let words = words.join(", ");
            let wrong = format!("state: must be one of {words}, not {name:?}{hint}");
            self.refuse(Wrong(wrong));
        }
        found
    }
}

fn millis(age: std::time::Duration) -> i64 {
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}
