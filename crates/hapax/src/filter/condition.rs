//! Conditions, and which of them does not hold for an event.

use std::cmp::Ordering;

use super::{
    decimal::Decimal,
    literal::Literal,
    subject::{EventValue, Facts, Subject},
};

/// A condition, or several.
#[derive(Debug)]
pub(super) enum Condition {
    /// Holds if all of these conditions hold.
    All(Vec<Condition>),
    /// Holds if one of these conditions holds.
    Any {
        /// The place in the filter.
        place: String,
        of: Vec<Condition>,
    },
    /// Holds if this condition does not hold.
    Not {
        /// The place in the filter.
        place: String,
        of: Box<Condition>,
    },
    /// A condition on one value.
    Test(Test),
}

/// A condition on one value.
#[derive(Debug)]
pub(super) struct Test {
    /// The place in the filter.
    pub(super) place: String,
    pub(super) subject: Subject,
    pub(super) operator: Operator,
}

/// Comparison of a value with what is expected. `Differs`, `NotIn` and `Exists(false)` also hold if
/// there is no value.
#[derive(Debug)]
pub(super) enum Operator {
    Equals(Literal),
    Differs(Literal),
    In(Vec<Literal>),
    NotIn(Vec<Literal>),
    /// In this order relative to a bound: the value comes before it, after it, or is equal.
    Compared(&'static [Ordering], Bound),
    StartsWith(String),
    EndsWith(String),
    Exists(bool),
    Contains(Literal),
}

/// The operand of a comparison. Only values of the same type are compared.
#[derive(Debug)]
pub(super) enum Bound {
    /// The number as it was written.
    Number(String),
    Text(String),
}

impl Condition {
    /// The place of the first condition that does not hold; `None` if the event matches.
    pub(super) fn failing(&self, facts: &Facts<'_>) -> Option<&str> {
        match self {
            Self::All(all) => all.iter().find_map(|it| it.failing(facts)),
            Self::Any { place, of } => {
                let none = of.iter().all(|it| it.failing(facts).is_some());
                none.then_some(place.as_str())
            }
            Self::Not { place, of } => of.failing(facts).is_none().then_some(place.as_str()),
            Self::Test(test) => (!test.holds(facts)).then_some(test.place.as_str()),
        }
    }
}

impl Test {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        let found = self.subject.find(facts);
        let is = |literal: &Literal| found.is_some_and(|it| it.equals(literal));
        let has_text = |is: &dyn Fn(&str) -> bool| {
            let text = found.and_then(EventValue::text);
            text.is_some_and(|text| is(&text))
        };
        match &self.operator {
            Operator::Equals(literal) => is(literal),
            Operator::Differs(literal) => !is(literal),
            Operator::In(literals) => literals.iter().any(is),
            Operator::NotIn(literals) => !literals.iter().any(is),
            Operator::Compared(orders, bound) => {
                let order = found.and_then(|it| bound.order_of(it));
                order.is_some_and(|order| orders.contains(&order))
            }
            Operator::StartsWith(start) => has_text(&|text| text.starts_with(start.as_str())),
            Operator::EndsWith(end) => has_text(&|text| text.ends_with(end.as_str())),
            Operator::Exists(expected) => found.is_some() == *expected,
            Operator::Contains(literal) => found.is_some_and(|it| it.contains(literal)),
        }
    }
}

impl Bound {
    /// The order of a value relative to the bound; `None` if they have different types. Strings are
    /// in the order of their code points.
    fn order_of(&self, found: EventValue<'_>) -> Option<Ordering> {
        match self {
            Self::Number(bound) => Some(found.number()?.cmp(&Decimal::parse(bound)?)),
            Self::Text(bound) => Some((*found.text()?).cmp(bound.as_str())),
        }
    }
}
