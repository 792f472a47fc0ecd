//! Canonical form of strings, and the order of member names.

use std::cmp::Ordering;

use super::{JsonError, Writer};

impl Writer<'_> {
    /// Reads a string and writes its canonical form.
    pub(super) fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        self.out.push(b'"');
        loop {
            let rest = &self.text[self.at..];
            let plain = |b: &u8| matches!(b, b'"' | b'\\' | 0..=0x1f);
            let stop = rest.iter().position(plain).unwrap_or(rest.len());
            self.out.extend_from_slice(&rest[..stop]);
            self.at += stop;
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                _ => return Err(self.syntax()),
            }
        }
        self.at += 1;
        self.out.push(b'"');
        Ok(())
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        let escaped = self.peek().ok_or_else(|| self.syntax())?;
        self.at += 1;
        let character = match escaped {
            b'"' | b'\\' | b'/' => char::from(escaped),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.code_point()?,
            _ => return Err(self.syntax()),
        };
        push_char(&mut self.out, character);
        Ok(())
    }

    /// Reads the digits after `\u`, and the second half of a surrogate pair.
    fn code_point(&mut self) -> Result<char, JsonError> {
        let first = self.unit()?;
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first).ok_or_else(|| self.syntax());
        }
        if first >= 0xdc00 || !self.eat_now(b'\\') || !self.eat_now(b'u') {
            return Err(self.syntax());
        }
        let second = self.unit()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(self.syntax());
        }
        let point = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        char::from_u32(point).ok_or_else(|| self.syntax())
    }

    fn unit(&mut self) -> Result<u32, JsonError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16));
            unit = unit * 16 + digit.ok_or_else(|| self.syntax())?;
            self.at += 1;
        }
        Ok(unit)
    }
}

/// Writes a character of a string as RFC 8785 requires.
pub(super) fn push_char(out: &mut Vec<u8>, character: char) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let short = match character {
        '"' => b'"',
        '\\' => b'\\',
        '\u{8}' => b'b',
        '\u{c}' => b'f',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\0'..='\u{1f}' => {
            let byte = character as usize;
            out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                DIGITS[byte >> 4],
                DIGITS[byte & 15],
            ]);
            return;
        }
        _ => {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Compares two names, as written in canonical strings, by UTF-16 code units.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let plain = |name: &[u8]| name.iter().all(|b| b.is_ascii() && *b != b'\\');
    if plain(a) && plain(b) {
        return a.cmp(b);
    }
    units(a).cmp(units(b))
}

fn units(name: &[u8]) -> impl Iterator<Item = u16> {
    let text = std::str::from_utf8(name).unwrap_or_default();
    let mut rest = text.chars();
    let mut low = None;
    std::iter::from_fn(move || {
        if let Some(unit) = low.take() {
            return Some(unit);
        }
        let character = match rest.next()? {
            '\\' => unescape(&mut rest),
            plain => plain,
        };
        let mut pair = [0; 2];
        character.encode_utf16(&mut pair);
        low = (character.len_utf16() == 2).then_some(pair[1]);
        Some(pair[0])
    })
}

/// Reads back what [`push_char`] wrote after a backslash.
fn unescape(rest: &mut std::str::Chars<'_>) -> char {
    match rest.next() {
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => {
            let digits = rest.by_ref().take(4);
            let point = digits.fold(0, |sum, c| sum * 16 + c.to_digit(16).unwrap_or(0));
            char::from_u32(point).unwrap_or_default()
        }
        other => other.unwrap_or_default(),
    }
}
