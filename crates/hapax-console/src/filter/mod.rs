//! Filter language: `type:order.* state:dead dest:mail attempt>3 age>5m`, parsed and written back.
//!
//! A term is a qualifier, an operator and a value, or a bare word. The result depends on the text
//! alone, so the URL is the state of a page. A filter that is not valid is refused with the wrong
//! term and the most similar qualifier. Nothing is guessed or ignored, because a filter that is not
//! applied would match everything.

use std::{fmt, time::Duration};

use hapax::{nearest, retry::parse_duration};

/// Maximum length of a filter in bytes.
const FILTER_BYTES_MAX: usize = 1024;
/// Maximum number of terms.
const TERMS_MAX: usize = 16;

/// A qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Qualifier {
    /// The event type.
    Type,
    /// The state.
    State,
    /// The destination.
    Dest,
    /// The destination that has not read an event.
    Unread,
    /// The beginning of an idempotency key or of its hash.
    Key,
    /// The tenant.
    Tenant,
    /// The aggregate of an event, such as `order/42`.
    About,
    /// The id.
    Id,
    /// Words of the last error.
    Error,
    /// The number of attempts.
    Attempt,
    /// The age.
    Age,
    /// The operation of a key.
    Operation,
    /// The consumer of a message.
    Consumer,
    /// The source of a message.
    Source,
    /// The name of a saga's definition.
    Saga,
    /// The actor.
    Actor,
    /// The action.
    Action,
    /// The object of an action.
    Object,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// `:`
    Is,
    /// `>`
    Over,
    /// `>=`
    AtLeast,
    /// `<`
    Under,
}

/// One term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) qualifier: Qualifier,
    pub(crate) op: Op,
    pub(crate) value: String,
}

/// A parsed filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) terms: Vec<Term>,
    /// Words without a qualifier.
    pub(crate) words: Vec<String>,
}

/// Why a filter is not valid, for its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) String);

impl Qualifier {
    /// All qualifiers with their names.
    pub(crate) const ALL: [(Self, &'static str); 18] = [
        (Self::Type, "type"),
        (Self::State, "state"),
        (Self::Dest, "dest"),
        (Self::Unread, "unread"),
        (Self::Key, "key"),
        (Self::Tenant, "tenant"),
        (Self::About, "about"),
        (Self::Id, "id"),
        (Self::Error, "error"),
        (Self::Attempt, "attempt"),
        (Self::Age, "age"),
        (Self::Operation, "operation"),
        (Self::Consumer, "consumer"),
        (Self::Source, "source"),
        (Self::Saga, "saga"),
        (Self::Actor, "actor"),
        (Self::Action, "action"),
        (Self::Object, "object"),
    ];

    /// The name.
    pub(crate) fn as_str(self) -> &'static str {
        let found = Self::ALL.iter().find(|(it, _)| *it == self);
        found.map_or("", |(_, word)| word)
    }

    fn named(word: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(_, name)| *name == word);
        found.map(|(it, _)| *it)
    }

    /// An example. Which states there are depends on the page.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Type => "type:order.*",
            Self::State => "state:",
            Self::Dest => "dest:mail",
            Self::Unread => "unread:mail",
            Self::Key => "key:8e03",
            Self::Tenant => "tenant:acme",
            Self::About => "about:order/42",
            Self::Id => "id:0190c2f4-6b1e-7c3d-9f2a-5d8e7b6a4c31",
            Self::Error => "error:timeout",
            Self::Attempt => "attempt>3",
            Self::Age => "age>5m",
            Self::Operation => "operation:\"POST /orders\"",
            Self::Consumer => "consumer:billing",
            Self::Source => "source:shop",
            Self::Saga => "saga:checkout",
            Self::Actor => "actor:alice",
            Self::Action => "action:pause",
            Self::Object => "object:\"destination mail\"",
        }
    }
}

impl Op {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Is => ":",
            Self::Over => ">",
            Self::AtLeast => ">=",
            Self::Under => "<",
        }
    }
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// Fails with the first term that is not valid.
    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        let too_long = || Wrong(format!("a filter is at most {FILTER_BYTES_MAX} bytes long"));
        if text.len() > FILTER_BYTES_MAX {
            return Err(too_long());
        }
        let mut filter = Self::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            rest = filter.take(rest)?.trim_start();
            if filter.terms.len() + filter.words.len() > TERMS_MAX {
                return Err(Wrong(format!("a filter has at most {TERMS_MAX} terms")));
            }
        }
        // Writing a filter may add quotation marks and spaces, and the result has to be parsed
        // again.
        if filter.to_string().len() > FILTER_BYTES_MAX {
            return Err(too_long());
        }
        Ok(filter)
    }

    /// Refuses terms that a page cannot apply.
    ///
    /// # Errors
    /// The error names the term and the qualifiers of the page.
    pub(crate) fn check(&self, known: &[Qualifier], words: bool) -> Result<(), Wrong> {
        let names = known
            .iter()
            .map(|it| it.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        if let Some(term) = self.terms.iter().find(|it| !known.contains(&it.qualifier)) {
            let word = term.qualifier.as_str();
            return Err(Wrong(format!(
                "{word}: is not supported on this page: use {names}"
            )));
        }
        match self.words.first() {
            Some(word) if !words => Err(Wrong(format!("{word:?} has no qualifier: use {names}"))),
            _ => Ok(()),
        }
    }

    /// The value of a qualifier that occurs at most once.
    pub(crate) fn one(&self, qualifier: Qualifier) -> Option<&str> {
        let term = self.terms.iter().find(|it| it.qualifier == qualifier);
        term.map(|term| term.value.as_str())
    }

    /// All values of a qualifier.
    pub(crate) fn every(&self, qualifier: Qualifier) -> impl Iterator<Item = &str> {
        let terms = self
            .terms
            .iter()
            .filter(move |it| it.qualifier == qualifier);
        terms.map(|term| term.value.as_str())
    }

    /// The minimum number of attempts; 0 by default.
    pub(crate) fn attempts_min(&self) -> u32 {
        let bound = |term: &Term| {
            let count = term.value.parse::<u32>().unwrap_or(0);
            match term.op {
                Op::Over => count.saturating_add(1),
                _ => count,
            }
        };
        let terms = self
            .terms
            .iter()
            .filter(|it| it.qualifier == Qualifier::Attempt);
        terms.map(bound).max().unwrap_or(0)
    }

    /// The minimum and the maximum age.
    pub(crate) fn ages(&self) -> (Option<Duration>, Option<Duration>) {
        let ages = |under: bool| {
            let terms = self.terms.iter();
            let terms = terms
                .filter(move |it| it.qualifier == Qualifier::Age && (it.op == Op::Under) == under);
            terms.filter_map(|term| parse_duration(&term.value).ok())
        };
        (ages(false).max(), ages(true).min())
    }

    /// Adds a term.
    pub(crate) fn and(mut self, qualifier: Qualifier, value: &str) -> Self {
        self.terms.retain(|it| it.qualifier != qualifier);
        self.terms.push(Term {
            qualifier,
            op: Op::Is,
            value: value.to_owned(),
        });
        self
    }

    /// Parses the first term and returns the rest.
    fn take<'a>(&mut self, text: &'a str) -> Result<&'a str, Wrong> {
        let letters = text
            .find(|it: char| !it.is_ascii_alphabetic() && it != '_')
            .unwrap_or(text.len());
        let (name, behind) = text.split_at(letters);
        let ops = [Op::AtLeast, Op::Over, Op::Under, Op::Is];
        let op = ops
            .into_iter()
            .find(|op| !name.is_empty() && behind.starts_with(op.as_str()));
        let Some(op) = op else {
            let (word, rest) = value(text)?;
            self.words.push(word);
            return Ok(rest);
        };
        let qualifier = Qualifier::named(name).ok_or_else(|| unknown(name, op))?;
        let (value, rest) = value(&behind[op.as_str().len()..])?;
        let term = Term {
            qualifier,
            op,
            value,
        };
        check(&term)?;
        let repeats = matches!(
            qualifier,
            Qualifier::State | Qualifier::Age | Qualifier::Attempt
        );
        if !repeats && self.one(qualifier).is_some() {
            return Err(Wrong(format!("{name}: is given twice")));
        }
        self.terms.push(term);
        Ok(rest)
    }
}

/// Parses a value and returns the rest.
fn value(text: &str) -> Result<(String, &str), Wrong> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        return Ok((word.to_owned(), rest));
    };
    let (mut word, mut letters) = (String::new(), quoted.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((word, &quoted[at + 1..])),
            '\\' => word.extend(letters.next().map(|(_, next)| next)),
            plain => word.push(plain),
        }
    }
    Err(Wrong("a quotation mark is not closed".to_owned()))
}

fn unknown(name: &str, op: Op) -> Wrong {
    let known = Qualifier::ALL.iter().map(|(_, word)| *word);
    let op = op.as_str();
    let hint = if let Some(near) = nearest(name, known) {
        format!("did you mean {near}{op}?")
    } else {
        let all: Vec<&str> = Qualifier::ALL.iter().map(|(_, word)| *word).collect();
        format!("known are {}", all.join(", "))
    };
    Wrong(format!("there is no {name}{op} — {hint}"))
}

/// Checks that the value is valid for the qualifier.
fn check(term: &Term) -> Result<(), Wrong> {
    let Term {
        qualifier,
        op,
        value,
    } = term;
    let name = qualifier.as_str();
    let ordered = matches!(qualifier, Qualifier::Attempt | Qualifier::Age);
    let problem = match (qualifier, op) {
        _ if value.is_empty() => "needs a value".to_owned(),
        (_, Op::Is) if ordered => format!("has to be compared: {}", qualifier.example()),
        (_, Op::Over | Op::AtLeast | Op::Under) if !ordered => {
            format!("cannot be compared: write {name}: and a value")
        }
        (Qualifier::Attempt, Op::Under) => "takes > or >=: attempt>3".to_owned(),
        (Qualifier::Attempt, _) if value.parse::<u32>().is_err() => {
            format!("takes a whole number, not {value:?}")
        }
        (Qualifier::Age, _) if parse_duration(value).is_err() => {
            format!("takes a time such as 30s, 5m, 2h or 7d, not {value:?}")
        }
        _ => return Ok(()),
    };
    Err(Wrong(format!("{name}: {problem}")))
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        for Term {
            qualifier,
            op,
            value,
        } in &self.terms
        {
            write!(f, "{gap}{}{}", qualifier.as_str(), op.as_str())?;
            quote(f, value, false)?;
            gap = " ";
        }
        for word in &self.words {
            f.write_str(gap)?;
            quote(f, word, true)?;
            gap = " ";
        }
        Ok(())
    }
}

/// Writes a value so that it can be parsed again.
fn quote(f: &mut fmt::Formatter<'_>, value: &str, is_word: bool) -> fmt::Result {
    let is_cut = value.is_empty()
        || value.starts_with('"')
        || value.contains(char::is_whitespace)
        || is_word && value.contains([':', '<', '>']);
    if !is_cut {
        return f.write_str(value);
    }
    f.write_str("\"")?;
    for letter in value.chars() {
        if matches!(letter, '"' | '\\') {
            f.write_str("\\")?;
        }
        write!(f, "{letter}")?;
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests;
