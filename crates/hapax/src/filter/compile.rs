//! Compilation of a filter: its JSON becomes conditions, or an error that names a place.

use std::cmp::Ordering;

use super::{
    FilterError,
    condition::{Bound, Condition, Operator, Test},
    document::{Kind, Value},
    literal::{Literal, below, members, read_number, read_text},
    subject::Subject,
};
use crate::{
    limits::{FILTER_CONDITIONS_MAX, FILTER_VALUES_MAX},
    nearest,
};

const COMBINATORS: [&str; 3] = ["$and", "$or", "$not"];
const OPERATORS: [&str; 12] = [
    "$eq",
    "$ne",
    "$in",
    "$nin",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$startsWith",
    "$endsWith",
    "$exists",
    "$contains",
];

/// Compiles a filter, and counts its conditions.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    conditions: usize,
    reads_payload: bool,
}

impl Compiler {
    /// Whether a condition so far looks at the payload.
    pub(super) fn reads_payload(&self) -> bool {
        self.reads_payload
    }

    /// Compiles an object of conditions, all of which have to hold.
    pub(super) fn object(
        &mut self,
        value: Value<'_>,
        place: &str,
    ) -> Result<Condition, FilterError> {
        if value.kind() != Kind::Object {
            return Err(FilterError::new(place, "must be an object of conditions"));
        }
        let mut all = Vec::new();
        for (name, value) in members(value, place)? {
            self.condition(&name, value, &below(place, &name), &mut all)?;
        }
        if all.is_empty() {
            let problem = "must have at least one condition";
            return Err(FilterError::new(place, problem));
        }
        Ok(Condition::All(all))
    }

    /// Compiles a member of such an object. `place` is that of the member.
    fn condition(
        &mut self,
        name: &str,
        value: Value<'_>,
        place: &str,
        into: &mut Vec<Condition>,
    ) -> Result<(), FilterError> {
        match name {
            "$and" => {
                self.count(place)?;
                into.extend(self.list(value, place)?);
            }
            "$or" => {
                self.count(place)?;
                into.push(Condition::Any {
                    place: place.to_owned(),
                    of: self.list(value, place)?,
                });
            }
            "$not" => {
                self.count(place)?;
                into.push(Condition::Not {
                    place: place.to_owned(),
                    of: Box::new(self.object(value, place)?),
                });
            }
            unknown if unknown.starts_with('$') => {
                let problem = if OPERATORS.contains(&unknown) {
                    "is an operator: it belongs to a value, as in {\"/amount\": {\"$gte\": 1}}"
                        .to_owned()
                } else {
                    unknown_word("combinator", unknown, &COMBINATORS)
                };
                return Err(FilterError::new(place, problem));
            }
            name => {
                let subject = Subject::parse(name);
                let subject = subject.map_err(|problem| FilterError::new(place, problem))?;
                self.tests(&subject, value, place, into)?;
            }
        }
        Ok(())
    }

    /// Compiles a list of objects of conditions.
    fn list(&mut self, value: Value<'_>, place: &str) -> Result<Vec<Condition>, FilterError> {
        let items = value.items().enumerate();
        let items = items.map(|(at, item)| self.object(item, &format!("{place}[{at}]")));
        let list: Vec<_> = items.collect::<Result<_, _>>()?;
        if list.is_empty() {
            let problem = "must be a list of at least one object of conditions";
            return Err(FilterError::new(place, problem));
        }
        Ok(list)
    }

    /// Compiles what is expected of one value: a value to which it is equal, or operators.
    fn tests(
        &mut self,
        subject: &Subject,
        value: Value<'_>,
        place: &str,
        into: &mut Vec<Condition>,
    ) -> Result<(), FilterError> {
        self.reads_payload |= matches!(subject, Subject::Payload(_));
        let members = members(value, place)?;
        let is_operator = |name: &str| name.starts_with('$');
        if !members.iter().any(|(name, _)| is_operator(name)) {
            if value.kind() == Kind::Object && members.is_empty() {
                let problem = "is empty: write {\"$eq\": {}} for an empty object";
                return Err(FilterError::new(place, problem));
            }
            let operator = Operator::Equals(Literal::read(value, place)?);
            return self.test(subject, operator, place, into);
        }
        for (name, operand) in members {
            let place = below(place, &name);
            if !is_operator(&name) {
                let problem = "stands among operators: compare with a whole object by $eq";
                return Err(FilterError::new(&place, problem));
            }
            self.test(subject, operator(&name, operand, &place)?, &place, into)?;
        }
        Ok(())
    }

    fn test(
        &mut self,
        subject: &Subject,
        operator: Operator,
        place: &str,
        into: &mut Vec<Condition>,
    ) -> Result<(), FilterError> {
        self.count(place)?;
        into.push(Condition::Test(Test {
            place: place.to_owned(),
            subject: subject.clone(),
            operator,
        }));
        Ok(())
    }

    fn count(&mut self, place: &str) -> Result<(), FilterError> {
        self.conditions += 1;
        if self.conditions > FILTER_CONDITIONS_MAX {
            let problem = format!("is one condition too many: {FILTER_CONDITIONS_MAX} are allowed");
            return Err(FilterError::new(place, problem));
        }
        Ok(())
    }
}

fn operator(name: &str, operand: Value<'_>, place: &str) -> Result<Operator, FilterError> {
    const LESS: Ordering = Ordering::Less;
    const EQUAL: Ordering = Ordering::Equal;
    const GREATER: Ordering = Ordering::Greater;
    let compared = |orders: &'static [Ordering]| {
        bound(operand, place).map(|bound| Operator::Compared(orders, bound))
    };
    match name {
        "$eq" => Literal::read(operand, place).map(Operator::Equals),
        "$ne" => Literal::read(operand, place).map(Operator::Differs),
        "$in" => values(operand, place).map(Operator::In),
        "$nin" => values(operand, place).map(Operator::NotIn),
        "$gt" => compared(&[GREATER]),
        "$gte" => compared(&[GREATER, EQUAL]),
        "$lt" => compared(&[LESS]),
        "$lte" => compared(&[LESS, EQUAL]),
        "$startsWith" => read_text(operand, place).map(Operator::StartsWith),
        "$endsWith" => read_text(operand, place).map(Operator::EndsWith),
        "$exists" => match operand.kind() {
            Kind::True => Ok(Operator::Exists(true)),
            Kind::False => Ok(Operator::Exists(false)),
            _ => Err(FilterError::new(place, "must be true or false")),
        },
        "$contains" => Literal::read(operand, place).map(Operator::Contains),
        unknown => {
            let problem = unknown_word("operator", unknown, &OPERATORS);
            Err(FilterError::new(place, problem))
        }
    }
}

/// The operand of `$in` and `$nin`.
fn values(operand: Value<'_>, place: &str) -> Result<Vec<Literal>, FilterError> {
    let count = operand.items().count();
    if operand.kind() != Kind::Array || !(1..=FILTER_VALUES_MAX).contains(&count) {
        let problem = format!("must be a list of 1 to {FILTER_VALUES_MAX} values");
        return Err(FilterError::new(place, problem));
    }
    let items = operand.items().enumerate();
    items
        .map(|(at, item)| Literal::read(item, &format!("{place}[{at}]")))
        .collect()
}

/// The operand of a comparison.
fn bound(operand: Value<'_>, place: &str) -> Result<Bound, FilterError> {
    match operand.kind() {
        Kind::Number => read_number(operand, place).map(Bound::Number),
        Kind::Text => read_text(operand, place).map(Bound::Text),
        _ => Err(FilterError::new(place, "must be a number or a string")),
    }
}

fn unknown_word(what: &str, word: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("is an unknown {what}: did you mean {meant}?"),
        None => format!("is an unknown {what}: it must be one of {all}"),
    }
}
