//! A JSON text with an index of its values, for filters and mappings.
//!
//! The text is read once, without recursion, so that no nesting is too deep. The index has one entry
//! for each value and each member name, in the order of the text; nothing is copied. Numbers stay
//! the text that they are. The accepted texts are those that may be emitted as a JSON payload.

use std::borrow::Cow;

use super::{
    decimal::Decimal,
    table::{Large, Table},
};

/// A number with more bytes than this is parsed when the text is read, and not at every comparison.
const SHORT_NUMBER_BYTES: u32 = 64;
/// An object or an array with more values and names than this inside it is large: its children get a
/// table if they are looked up often.
const SMALL_NODES: u32 = 128;
/// Maximum number of bytes in which one byte of a string can be written: `\u0041`.
const ESCAPE_BYTES: usize = 6;

#[cfg(test)]
pub(crate) use tests::VISITED;

/// A JSON text with the index of its values.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    text: &'a str,
    nodes: Vec<Node>,
    /// The long numbers, by the indexes of their nodes, in the order of the text.
    long_numbers: Vec<(usize, Option<Decimal<'a>>)>,
    /// The large objects and arrays, in the order of the text.
    large: Vec<Large>,
    depth: usize,
}

/// A value, or the name of a member.
#[derive(Clone, Copy, Debug)]
struct Node {
    kind: Kind,
    /// Where the text of the value begins and ends; of a string, without the quotation marks.
    start: u32,
    end: u32,
    /// The index of the first node that is not part of this one.
    next: u32,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    False,
    True,
    Number,
    Text,
    Array,
    Object,
}

/// A value in a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'d> {
    document: &'d Document<'d>,
    index: usize,
}

impl Node {
    fn raw(self, text: &str) -> &str {
        &text[self.start as usize..self.end as usize]
    }

    fn is_long_number(self) -> bool {
        self.kind == Kind::Number && self.end - self.start > SHORT_NUMBER_BYTES
    }

    /// Whether this node, which has an index, is a large object or array.
    fn is_large(self, index: u32) -> bool {
        matches!(self.kind, Kind::Object | Kind::Array) && self.next - index > SMALL_NODES
    }
}

impl<'a> Document<'a> {
    /// Reads a text; `None` if it is not JSON, or has more than 4 GiB.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        u32::try_from(text.len()).ok()?;
        let mut parser = Parser {
            text: text.as_bytes(),
            at: 0,
            nodes: Vec::new(),
            open: Vec::new(),
            depth: 0,
        };
        parser.read()?;
        let Parser { nodes, depth, .. } = parser;
        let long = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.is_long_number());
        let long = long.map(|(index, node)| (index, Decimal::parse(node.raw(text))));
        let long_numbers = long.collect();
        let indexed = (0..).zip(&nodes);
        let large = indexed.filter(|(index, node)| node.is_large(*index));
        let large = large.map(|(index, _)| Large::new(index)).collect();
        Some(Self {
            text,
            nodes,
            long_numbers,
            large,
            depth,
        })
    }

    /// The number of objects and arrays around the innermost value.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The value of the whole text.
    pub(crate) fn root(&self) -> Value<'_> {
        Value {
            document: self,
            index: 0,
        }
    }
}

impl<'d> Value<'d> {
    pub(crate) fn kind(self) -> Kind {
        self.node().kind
    }

    /// The string; `None` for another type, and for a string with half of a surrogate pair, which
    /// is not Unicode text.
    pub(crate) fn text(self) -> Option<Cow<'d, str>> {
        if self.kind() != Kind::Text {
            return None;
        }
        let raw = self.raw();
        if !raw.contains('\\') {
            return Some(Cow::Borrowed(raw));
        }
        let text = serde_json::from_str::<String>(&format!("\"{raw}\""));
        text.ok().map(Cow::Owned)
    }

    /// The string, unless it is certainly longer than this many bytes. It is not unescaped then, so
    /// that it can be compared with many short texts.
    pub(super) fn short_text(self, bytes_max: usize) -> Option<Cow<'d, str>> {
        if self.raw().len() > ESCAPE_BYTES * bytes_max {
            return None;
        }
        self.text()
    }

    /// Whether the value is this string.
    pub(super) fn is_text(self, text: &str) -> bool {
        self.short_text(text.len()).is_some_and(|own| own == text)
    }

    /// The number; `None` for another type.
    pub(super) fn number(self) -> Option<Decimal<'d>> {
        if self.kind() != Kind::Number {
            return None;
        }
        if !self.node().is_long_number() {
            return Decimal::parse(self.raw());
        }
        let long = &self.document.long_numbers;
        let place = long.binary_search_by_key(&self.index, |(index, _)| *index);
        place.ok().and_then(|place| long[place].1)
    }

    /// The text of the value as it was written; of a string, with its escapes and without the quotation
    /// marks.
    pub(crate) fn raw(self) -> &'d str {
        self.node().raw(self.document.text)
    }

    /// The value as it was written, which is JSON.
    pub(crate) fn json(self) -> &'d str {
        let node = self.node();
        let mark = u32::from(node.kind == Kind::Text);
        &self.document.text[(node.start - mark) as usize..(node.end + mark) as usize]
    }

    /// The items of an array; nothing for another type.
    pub(crate) fn items(self) -> impl Iterator<Item = Self> {
        let is_array = self.kind() == Kind::Array;
        self.children().filter(move |_| is_array)
    }

    /// The names and the values of an object; nothing for another type.
    pub(crate) fn members(self) -> impl Iterator<Item = (Self, Self)> {
        let is_object = self.kind() == Kind::Object;
        let mut children = self.children().filter(move |_| is_object);
        std::iter::from_fn(move || Some((children.next()?, children.next()?)))
    }

    /// The table of the children of a large object or array that has been looked up often; `None` if its
    /// children have to be visited.
    pub(super) fn table(self) -> Option<&'d Table> {
        let large = &self.document.large;
        let place = large.binary_search_by_key(&self.index, Large::index).ok()?;
        large[place].table(|| Table::of(self))
    }

    /// The index of the value in its document.
    pub(super) fn index(self) -> usize {
        self.index
    }

    /// The value at this index of the same document.
    pub(super) fn sibling(self, index: usize) -> Self {
        Self { index, ..self }
    }

    /// The value at a path: names of members, or indexes of items. If an object has a name more
    /// than once, the last member counts.
    pub(super) fn at(self, steps: &[String]) -> Option<Self> {
        let child = |value: Self, step: &String| match value.kind() {
            Kind::Array => value.item(index_of(step)?),
            _ => value.member(step),
        };
        steps.iter().try_fold(self, child)
    }

    fn item(self, at: usize) -> Option<Self> {
        match self.table() {
            Some(table) => table.item(at).map(|index| self.sibling(index)),
            None => self.items().nth(at),
        }
    }

    fn member(self, name: &str) -> Option<Self> {
        if let Some(table) = self.table() {
            return table.member(name).map(|index| self.sibling(index));
        }
        let named = self.members().filter(|(own, _)| own.is_text(name));
        named.last().map(|(_, value)| value)
    }

    fn children(self) -> impl Iterator<Item = Self> {
        let Self { document, index } = self;
        let end = self.node().next as usize;
        let mut next = index + 1;
        std::iter::from_fn(move || {
            if next >= end {
                return None;
            }
            #[cfg(test)]
            VISITED.set(VISITED.get() + 1);
            let child = Self {
                document,
                index: next,
            };
            next = child.node().next as usize;
            Some(child)
        })
    }

    fn node(self) -> Node {
        self.document.nodes[self.index]
    }
}

/// The index that a step of a JSON Pointer names: digits without leading zeros.
pub(super) fn index_of(step: &str) -> Option<usize> {
    let is_plain = step.bytes().all(|byte| byte.is_ascii_digit());
    let is_index = is_plain && (step == "0" || !step.starts_with('0'));
    step.parse().ok().filter(|_| is_index)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    /// The indexes of the objects and arrays that are not closed yet.
    open: Vec<usize>,
    depth: usize,
}

impl Parser<'_> {
    fn read(&mut self) -> Option<()> {
        loop {
            let mut is_complete = self.value()?;
            while is_complete {
                let Some(container) = self.open.last().copied() else {
                    self.space();
                    return (self.at == self.text.len()).then_some(());
                };
                let kind = self.nodes[container].kind;
                is_complete = !self.has_more(kind)?;
            }
        }
    }

    /// Reads a value, or the beginning of an object or array. Returns whether the value is complete.
    fn value(&mut self) -> Option<bool> {
        self.space();
        let kind = match self.peek()? {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => return self.string().map(|()| true),
            b't' => return self.literal(b"true", Kind::True),
            b'f' => return self.literal(b"false", Kind::False),
            b'n' => return self.literal(b"null", Kind::Null),
            _ => return self.number().map(|()| true),
        };
        self.open.push(self.nodes.len());
        self.depth = self.depth.max(self.open.len());
        self.push(kind, self.at);
        self.at += 1;
        self.space();
        if self.eat(closing(kind)) {
            self.close();
            return Some(true);
        }
        if kind == Kind::Object {
            self.name()?;
        }
        Some(false)
    }

    /// Reads what follows a value in an object or array. Returns whether there is another value.
    fn has_more(&mut self, kind: Kind) -> Option<bool> {
        self.space();
        if self.eat(closing(kind)) {
            self.close();
            return Some(false);
        }
        if !self.eat(b',') {
            return None;
        }
        if kind == Kind::Object {
            self.name()?;
        }
        Some(true)
    }

    fn name(&mut self) -> Option<()> {
        self.space();
        if self.peek() != Some(b'"') {
            return None;
        }
        self.string()?;
        self.space();
        self.eat(b':').then_some(())
    }

    fn string(&mut self) -> Option<()> {
        self.at += 1;
        let start = self.at;
        loop {
            let rest = &self.text[self.at..];
            let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
            self.at += rest.iter().position(stops)?;
            match self.text[self.at] {
                b'"' => break,
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
        self.push(Kind::Text, start);
        self.at += 1;
        Some(())
    }

    fn escape(&mut self) -> Option<()> {
        let escaped = *self.text.get(self.at + 1)?;
        self.at += 2;
        match escaped {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.text.get(self.at..self.at + 4)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _sign = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        self.push(Kind::Number, start);
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn literal(&mut self, word: &[u8], kind: Kind) -> Option<bool> {
        if !self.text[self.at..].starts_with(word) {
            return None;
        }
        let start = self.at;
        self.at += word.len();
        self.push(kind, start);
        Some(true)
    }

    /// Adds a node that ends here.
    fn push(&mut self, kind: Kind, start: usize) {
        self.nodes.push(Node {
            kind,
            start: short(start),
            end: short(self.at),
            next: short(self.nodes.len() + 1),
        });
    }

    /// Closes the innermost object or array.
    fn close(&mut self) {
        let (next, end) = (short(self.nodes.len()), short(self.at));
        if let Some(index) = self.open.pop() {
            self.nodes[index].next = next;
            self.nodes[index].end = end;
        }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

fn closing(kind: Kind) -> u8 {
    if kind == Kind::Object { b'}' } else { b']' }
}

fn short(number: usize) -> u32 {
    u32::try_from(number).expect("a text has no more values than bytes, and fewer than 2^32 bytes")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    thread_local! {
        /// The number of values and names that were visited on this thread.
        pub(crate) static VISITED: Cell<usize> = const { Cell::new(0) };
    }
}
