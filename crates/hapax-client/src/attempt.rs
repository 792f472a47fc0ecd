//! Attempts of an operation, for logs and error reports.
//!
//! They are printed as `attempt,delay_ms,status,code,notes`, one line each: `delay_ms` is the wait
//! before the attempt, `status` is the class of the outcome (`2xx`, `5xx`, `timeout` or `network`),
//! `code` is the status of the response, and `notes` is the `code` of a problem+json response, the
//! error, or the reason for the retry.

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
    /// Whether the time for the attempt passed without a response.
    pub timed_out: bool,
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
            timed_out: false,
            notes: notes.chars().take(NOTE_CHARS).collect(),
        }
    }

    /// The class of the outcome.
    fn class(&self) -> String {
        match self.status {
            Some(status) => format!("{}xx", status / 100),
            None if self.timed_out => "timeout".to_owned(),
            None => "network".to_owned(),
        }
    }

    /// The notes of the CSV line. A 502 or 504 without a problem is the response of a proxy.
    fn remark(&self) -> String {
        let words = match (self.code.as_deref(), self.status) {
            (Some(code), _) => code,
            (None, Some(502 | 504)) => "proxy error",
            (None, Some(200..300)) => "success",
            _ => "",
        };
        let between = if words.is_empty() || self.notes.is_empty() {
            ""
        } else {
            ": "
        };
        format!("{words}{between}{}", self.notes)
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
            let code = it.status.map(|it| it.to_string()).unwrap_or_default();
            write!(f, "\n{},{},{},{code},", it.attempt, it.delay_ms, it.class())?;
            cell(f, &it.remark())?;
        }
        Ok(())
    }
}

/// A CSV cell (RFC 4180) on one line. Text from a server must not create lines, or a formula that a
/// spreadsheet would execute.
fn cell(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut text: String = text.chars().map(clean).collect();
    if text.starts_with(['=', '+', '-', '@']) {
        text.insert(0, '\'');
    }
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
        let formula = Some("=HYPERLINK(1)".to_owned());
        attempts.push(Attempt::new(3, NO_TIME, Some(400), formula, ""));
        let expected = "attempt,delay_ms,status,code,notes\n\
            1,0,network,,\"no \"\"route\"\", at all\"\n\
            2,57,5xx,503,DEPENDENCY.unavailable\n\
            3,0,4xx,400,'=HYPERLINK(1)";
        assert_eq!(attempts.to_string(), expected);
    }

    #[test]
    fn the_class_and_the_notes_say_who_failed() {
        let mut attempts = Attempts::default();
        let mut late = Attempt::new(1, NO_TIME, None, None, "initial timeout");
        late.timed_out = true;
        attempts.push(late);
        let wait = |millis| (Duration::from_millis(millis), Duration::ZERO);
        attempts.push(Attempt::new(2, wait(137), Some(502), None, ""));
        attempts.push(Attempt::new(3, wait(281), Some(201), None, ""));
        let expected = "attempt,delay_ms,status,code,notes\n\
            1,0,timeout,,initial timeout\n\
            2,137,5xx,502,proxy error\n\
            3,281,2xx,201,success";
        assert_eq!(attempts.to_string(), expected);
    }

    #[test]
    fn a_note_is_bounded() {
        let attempt = Attempt::new(1, NO_TIME, None, None, &"\u{e9}".repeat(10_000));
        assert_eq!(attempt.notes.chars().count(), NOTE_CHARS);
    }
}
