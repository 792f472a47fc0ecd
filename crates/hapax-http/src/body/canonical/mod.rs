//! Canonical JSON, so that equal requests have equal hashes.
//!
//! Members are sorted by the UTF-16 code units of their names, strings are written as RFC 8785
//! requires, and whitespace is removed. Number tokens are kept as sent, or written by their decimal
//! value, but never as doubles, so two numbers that are equal as doubles can be different requests.
//! A duplicate name in an object is refused, because parsers differ on which one counts.
//!
//! The text is processed in one pass that writes to one buffer, without a tree and without an
//! allocation per value. Members that are out of order are sorted at the end of that buffer.

mod text;
mod decimal;

use std::cmp::Ordering;

use hapax::limits::{JSON_DEPTH_MAX, JSON_MEMBERS_MAX};

use text::{compare, push_char};

/// The number of members for which there is room at first: those of a usual body.
const MEMBERS: usize = 8;

/// How the canonical form writes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// As they were sent.
    AsSent,
    /// By their decimal value: `4200`, `4200.0` and `4.2e3` are equal.
    ByValue,
}

/// Why a text has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JsonError {
    /// The text is not JSON.
    #[error("the body is not valid JSON at byte {at}")]
    Syntax {
        /// The offset of the error.
        at: usize,
    },
    /// An object has a duplicate member.
    #[error("an object of the body has the member {name} more than once")]
    Duplicate {
        /// The name, as JSON.
        name: String,
    },
    /// The nesting is too deep.
    #[error("the body is nested deeper than {JSON_DEPTH_MAX} levels")]
    Depth,
    /// An object has too many members.
    #[error("an object of the body has more than {JSON_MEMBERS_MAX} members")]
    Members,
}

/// Writes `json` in canonical form. `folded` replaces the values of top-level members.
pub(super) fn canonical(
    json: &[u8],
    folded: &[(&str, &str)],
    numbers: Numbers,
) -> Result<Vec<u8>, JsonError> {
    if let Err(error) = std::str::from_utf8(json) {
        let at = error.valid_up_to();
        return Err(JsonError::Syntax { at });
    }
    let mut writer = Writer {
        text: json,
        at: 0,
        // Members are sorted after the output, which takes no more space than the output itself.
        out: Vec::with_capacity(2 * json.len()),
        members: Vec::with_capacity(MEMBERS),
        folded,
        numbers,
    };
    writer.value(0)?;
    writer.space();
    if writer.at == json.len() {
        Ok(writer.out)
    } else {
        Err(writer.syntax())
    }
}

/// A member of an open object: its position in the output.
#[derive(Clone, Copy)]
struct Member {
    start: usize,
    name_end: usize,
    end: usize,
}

struct Writer<'a> {
    text: &'a [u8],
    at: usize,
    out: Vec<u8>,
    /// The members of all open objects. Each object knows the index of its first one.
    members: Vec<Member>,
    folded: &'a [(&'a str, &'a str)],
    numbers: Numbers,
}

impl Writer<'_> {
    fn value(&mut self, depth: usize) -> Result<(), JsonError> {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            _ => Err(self.syntax()),
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), JsonError> {
        self.open(b'[', depth)?;
        if self.eat(b']') {
            self.out.push(b']');
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            if !self.more(b']')? {
                return Ok(());
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), JsonError> {
        self.open(b'{', depth)?;
        if self.eat(b'}') {
            self.out.push(b'}');
            return Ok(());
        }
        let first = self.members.len();
        loop {
            self.member(depth)?;
            if !self.more(b'}')? {
                break;
            }
        }
        self.sort(first)?;
        self.members.truncate(first);
        Ok(())
    }

    fn member(&mut self, depth: usize) -> Result<(), JsonError> {
        self.space();
        if self.peek() != Some(b'"') {
            return Err(self.syntax());
        }
        if self.members.len() >= JSON_MEMBERS_MAX {
            return Err(JsonError::Members);
        }
        let start = self.out.len();
        self.string()?;
        let name_end = self.out.len();
        self.space();
        if !self.eat(b':') {
            return Err(self.syntax());
        }
        self.out.push(b':');
        self.value(depth + 1)?;
        if depth == 0 {
            self.fold(start, name_end);
        }
        let end = self.out.len();
        self.members.push(Member {
            start,
            name_end,
            end,
        });
        Ok(())
    }

    /// Replaces the value just written if its member is in `folded`.
    fn fold(&mut self, start: usize, name_end: usize) {
        let name = &self.out[start + 1..name_end - 1];
        let folded = self
            .folded
            .iter()
            .find(|(wanted, _)| wanted.as_bytes() == name);
        if let Some((_, value)) = folded {
            self.out.truncate(name_end + 1);
            self.out.push(b'"');
            value.chars().for_each(|c| push_char(&mut self.out, c));
            self.out.push(b'"');
        }
    }

    /// Sorts the members from `first` on, in the output.
    fn sort(&mut self, first: usize) -> Result<(), JsonError> {
        let (members, out) = (&mut self.members[first..], &mut self.out);
        let name = |out: &[u8], m: &Member| -> std::ops::Range<usize> {
            debug_assert!(m.name_end <= out.len());
            m.start + 1..m.name_end - 1
        };
        let order =
            |out: &[u8], a: &Member, b: &Member| compare(&out[name(out, a)], &out[name(out, b)]);
        if members.is_sorted_by(|a, b| order(out, a, b) == Ordering::Less) {
            return Ok(());
        }
        let begin = members[0].start;
        members.sort_unstable_by(|a, b| order(out, a, b));
        for pair in members.windows(2) {
            if order(out, &pair[0], &pair[1]) == Ordering::Equal {
                let name = &out[pair[0].start..pair[0].name_end];
                let name = String::from_utf8_lossy(name).into_owned();
                return Err(JsonError::Duplicate { name });
            }
        }
        // The sorted members are written after the unsorted ones, and then take their place.
        let end = out.len();
        for (place, member) in members.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_within(member.start..member.end);
        }
        out.push(b'}');
        out.copy_within(end.., begin);
        out.truncate(begin + out.len() - end);
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.eat_now(b'-');
        if !self.eat_now(b'0') {
            self.digits()?;
        }
        if self.eat_now(b'.') {
            self.digits()?;
        }
        if self.eat_now(b'e') || self.eat_now(b'E') {
            let _sign = self.eat_now(b'+') || self.eat_now(b'-');
            self.digits()?;
        }
        let number = &self.text[start..self.at];
        match self.numbers {
            Numbers::AsSent => self.out.extend_from_slice(number),
            Numbers::ByValue => decimal::push_value(&mut self.out, number),
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            Err(self.syntax())
        } else {
            Ok(())
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.syntax());
        }
        self.at += word.len();
        self.out.extend_from_slice(word);
        Ok(())
    }

    fn open(&mut self, bracket: u8, depth: usize) -> Result<(), JsonError> {
        if depth >= JSON_DEPTH_MAX {
            return Err(JsonError::Depth);
        }
        self.at += 1;
        self.out.push(bracket);
        Ok(())
    }

    /// Reads what follows an element: true for a comma, false for the closing bracket.
    fn more(&mut self, close: u8) -> Result<bool, JsonError> {
        self.space();
        let more = match self.peek() {
            Some(b',') => true,
            Some(byte) if byte == close => false,
            _ => return Err(self.syntax()),
        };
        self.at += 1;
        self.out.push(if more { b',' } else { close });
        Ok(more)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Skips whitespace, and consumes the next byte if it is this one.
    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        self.eat_now(byte)
    }

    fn eat_now(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn syntax(&self) -> JsonError {
        JsonError::Syntax { at: self.at }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
