//! Attempts of an operation, for logs and error reports.
//!
//! They are printed as `attempt,delay_ms,status,code,notes`, one line each: `delay_ms` is the wait
//! before the attempt, `code` is the `code` of a problem+json response, and `notes` is the error or
//! the reason for the retry.

use std::{fmt, ops::Deref, time::Duration};

use hapax::limits::NOTE_CHARS;
use serde::Serialize;

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// The wait after the previous attempt, in milliseconds.
    pub delay_ms: u64,
    /// The time from sending the request to the response or the error, in milliseconds.
    pub took_ms: u64,
    /// The status of the response, if there was one.
    pub status: Option<u16>,
    /// The `code` of a problem+json response.
    pub code: Option<String>,
    /// The error, or the wait that was asked for.
    pub notes: String,
}

impl Attempt {
    pub(crate) fn new(
        attempt: u32,
        (delay, took): (Duration, Duration),
        status: Option<u16>,
        code: Option<String>,
        notes: &str,
    ) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            attempt,
            delay_ms: millis(delay),
            took_ms: millis(took),
            status,
            code,
            notes: notes.chars().take(NOTE_CHARS).collect(),
        }
    }
}

/// The attempts of one operation, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Attempts(Vec<Attempt>);

impl Attempts {
    pub(crate) fn push(&mut self, attempt: Attempt) {
        self.0.push(attempt);
    }
}

impl Deref for Attempts {
    type Target = [Attempt];

    fn deref(&self) -> &[Attempt] {
        &self.0
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attempt,delay_ms,status,code,notes")?;
        for it in &self.0 {
            let status = it.status.map(|it| it.to_string()).unwrap_or_default();
            write!(f, "\n{},{},{status},", it.attempt, it.delay_ms)?;
            cell(f, it.code.as_deref().unwrap_or_default())?;
            f.write_str(",")?;
            cell(f, &it.notes)?;
        }
        Ok(())
    }
}

/// A CSV cell (RFC 4180) on one line. Text from a server must not create lines.
fn cell(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let text: String = text.chars().map(clean).collect();
    if text.contains([',', '"']) {
        write!(f, "\"{}\"", text.replace('"', "\"\""))
    } else {
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TIME: (Duration, Duration) = (Duration::ZERO, Duration::ZERO);

    #[test]
    fn attempts_print_as_csv_whatever_stands_in_them() {
        let mut attempts = Attempts::default();
        let code = Some("DEPENDENCY.unavailable".to_owned());
        attempts.push(Attempt::new(
            1,
            NO_TIME,
            None,
            None,
            "no \"route\",\nat all",
        ));
        let times = (Duration::from_micros(57_900), Duration::from_millis(3));
        attempts.push(Attempt::new(2, times, Some(503), code, ""));
        let expected = "attempt,delay_ms,status,code,notes\n\
            1,0,,,\"no \"\"route\"\", at all\"\n\
            2,57,503,DEPENDENCY.unavailable,";
        assert_eq!(attempts.to_string(), expected);
    }

    #[test]
    fn a_note_is_bounded() {
        let attempt = Attempt::new(1, NO_TIME, None, None, &"\u{e9}".repeat(10_000));
        assert_eq!(attempt.notes.chars().count(), NOTE_CHARS);
    }
}
