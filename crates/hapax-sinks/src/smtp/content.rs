//! Encoding of a mail's content for `DATA`.
//!
//! Lines end with CR LF only, a dot at the beginning of a line is doubled, and a single dot ends
//! the content. So no mail can end early and continue as commands. The content is sent with one
//! write, so that no small packet waits for the acknowledgement of another one.

use std::fmt;

/// Headers and body of a mail, to be sent after `DATA`.
pub(super) struct Content<'a>(pub(super) &'a str);

impl fmt::Display for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while !rest.is_empty() {
            let end = rest.find(['\r', '\n']).unwrap_or(rest.len());
            let (line, tail) = rest.split_at(end);
            if line.starts_with('.') {
                f.write_str(".")?;
            }
            f.write_str(line)?;
            f.write_str("\r\n")?;
            rest = tail
                .strip_prefix("\r\n")
                .or(tail.strip_prefix(['\r', '\n']))
                .unwrap_or(tail);
        }
        f.write_str(".\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_ends_where_it_ends_and_nowhere_before() {
        check("a\r\nb\r\n", "a\r\nb\r\n.\r\n");
        check("a", "a\r\n.\r\n");
        check("", ".\r\n");
        check(".\r\n..\r\n.a", "..\r\n...\r\n..a\r\n.\r\n");
        check("a\r\n\r\n\r\nb", "a\r\n\r\n\r\nb\r\n.\r\n");
    }

    #[test]
    fn a_bare_line_end_cannot_hide_a_final_dot() {
        check("a\n.\nMAIL", "a\r\n..\r\nMAIL\r\n.\r\n");
        check("a\r.\rMAIL", "a\r\n..\r\nMAIL\r\n.\r\n");
        check("a\n.\r\nMAIL", "a\r\n..\r\nMAIL\r\n.\r\n");
        check("a\r\n.\nMAIL", "a\r\n..\r\nMAIL\r\n.\r\n");
    }

    #[track_caller]
    fn check(mail: &str, expected: &str) {
        assert_eq!(Content(mail).to_string(), expected);
    }
}
