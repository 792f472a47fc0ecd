//! Selection of the injections of a seed, by number.

use std::{collections::BTreeSet, fmt, str::FromStr};

use anyhow::Context as _;

/// Numbers of injections, written as `3,7-9`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Injections(pub(crate) BTreeSet<u64>);

impl FromStr for Injections {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut injections = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let number = text.parse::<u64>();
                number.with_context(|| {
                    format!("{part:?}: expected a number or a range of injections")
                })
            };
            injections.extend(number(first)?..=number(last)?);
        }
        Ok(Self(injections))
    }
}

impl fmt::Display for Injections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &number in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        let ranges = ranges.into_iter().map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        });
        f.write_str(&ranges.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injections_are_printed_as_they_are_parsed() {
        let injections = "3,7-9,12".parse::<Injections>().map(|it| it.to_string());
        assert_eq!(injections.ok().as_deref(), Some("3,7-9,12"));
        assert!("3,x".parse::<Injections>().is_err());
    }
}
