//! Retry schedule of the relay: a list of waits.
//!
//! A [`Schedule`] lists the waits before the attempts at one event. Jitter only makes a wait
//! longer, and so does a `Retry-After` of the receiver: it is a minimum.

use std::{str::FromStr, time::Duration};

/// The decision after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another attempt, after this wait.
    Retry(Duration),
    /// No further attempt. The event becomes a dead letter.
    DeadLetter,
}

/// The waits before the attempts. The first one belongs to the first attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    waits: Vec<Duration>,
    jitter_percent: u32,
}

impl Schedule {
    /// Creates a schedule with one wait before each attempt, lengthened by up to `jitter_percent`
    /// %.
    ///
    /// An empty list counts as one attempt.
    pub fn new(waits: impl IntoIterator<Item = Duration>, jitter_percent: u32) -> Self {
        let mut waits: Vec<_> = waits.into_iter().collect();
        if waits.is_empty() {
            waits.push(Duration::ZERO);
        }
        Self {
            waits,
            jitter_percent,
        }
    }

    /// The number of attempts at an event.
    pub fn attempts_max(&self) -> u32 {
        u32::try_from(self.waits.len()).unwrap_or(u32::MAX)
    }

    /// Decides whether another attempt follows the failed attempt number `attempt` (starting at 1).
    ///
    /// `unit` is a uniform random number in `0.0..1.0`; `retry_after` is the minimum wait that the
    /// receiver asked for.
    pub fn after(&self, attempt: u32, unit: f64, retry_after: Option<Duration>) -> Next {
        let Some(wait) = self.waits.get(attempt as usize) else {
            return Next::DeadLetter;
        };
        let stretch = 1.0 + unit * f64::from(self.jitter_percent) / 100.0;
        let asked = retry_after.unwrap_or_default();
        Next::Retry((*wait).max(asked).mul_f64(stretch))
    }
}

impl Default for Schedule {
    /// The schedule of Standard Webhooks: ten attempts in about three days, with 20 % jitter.
    fn default() -> Self {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 3600;
        let waits = [
            0,
            5,
            5 * MINUTE,
            30 * MINUTE,
            2 * HOUR,
            5 * HOUR,
            10 * HOUR,
            14 * HOUR,
            20 * HOUR,
            24 * HOUR,
        ];
        Self::new(waits.map(Duration::from_secs), 20)
    }
}

impl FromStr for Schedule {
    type Err = DurationError;

    /// Parses `"0s, 5s, 5m"`, with 20 % jitter.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let waits = text
            .split(',')
            .map(parse_duration)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(waits, 20))
    }
}

/// Parses a duration such as `250ms`, `30s`, `5m`, `24h` or `7d`.
///
/// # Errors
/// Fails if the number or the unit is missing or unknown, or if the duration is too long.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let error = || DurationError(text.to_owned());
    let number: u64 = number.parse().map_err(|_| error())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(error()),
    };
    let longest = Duration::from_hours(876_000);
    number
        .checked_mul(millis)
        .map(Duration::from_millis)
        .filter(|duration| *duration <= longest)
        .ok_or_else(error)
}

/// The text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration such as 250ms, 30s, 5m, 24h or 7d")]
pub struct DurationError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_runs_its_course_and_then_the_event_is_dead() {
        let schedule = Schedule::default();
        check(&schedule, 1, 5);
        check(&schedule, 2, 300);
        check(&schedule, 9, 24 * 3600);
        assert_eq!(schedule.after(10, 0.0, None), Next::DeadLetter);
        assert_eq!(schedule.attempts_max(), 10);
    }

    #[test]
    fn jitter_only_lengthens_and_by_at_most_a_fifth() {
        let schedule: Schedule = "0s,10s".parse().unwrap();
        assert_eq!(
            schedule.after(1, 0.0, None),
            Next::Retry(Duration::from_secs(10))
        );
        assert_eq!(
            schedule.after(1, 0.5, None),
            Next::Retry(Duration::from_secs(11))
        );
    }

    #[test]
    fn retry_after_is_a_minimum_and_never_a_shortcut() {
        let schedule: Schedule = "0s,10s".parse().unwrap();
        let asked = |secs| schedule.after(1, 0.0, Some(Duration::from_secs(secs)));
        assert_eq!(asked(60), Next::Retry(Duration::from_mins(1)));
        assert_eq!(asked(1), Next::Retry(Duration::from_secs(10)));
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration(" 7d "), Ok(Duration::from_hours(168)));
        for bad in [
            "",
            "5",
            "s",
            "-1s",
            "1.5s",
            "5 s",
            "5y",
            "99999999999999999999s",
            "999999999d",
        ] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
        assert!("5s,,1m".parse::<Schedule>().is_err());
    }

    #[track_caller]
    fn check(schedule: &Schedule, attempt: u32, wait_secs: u64) {
        let expected = Next::Retry(Duration::from_secs(wait_secs));
        assert_eq!(schedule.after(attempt, 0.0, None), expected);
    }
}
