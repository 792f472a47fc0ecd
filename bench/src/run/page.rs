//! `RESULTS.md`: a part for each store, one each for the relay, feeds, the console, the gateway and
//! endpoints.
//!
//! A run that has measured a part completely replaces it and keeps the others.

use std::{fmt, time::Duration};

use super::report::{COMMAND, Section, summary};

/// The parts with results of other commands, which are kept at the end: that of `bench/sdk/run`, and
/// one that is written by hand.
const OTHERS: [&str; 2] = ["# Packages for TypeScript and Python", "# Fleet"];

/// A part of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Part {
    /// The shop on SQLite
    Embedded,
    /// The shop on PostgreSQL
    Postgres,
    /// The relay on PostgreSQL
    Relay,
    /// An outbox table with a feed, with a table source, and `hapax.emit`
    Feed,
    /// The pages of the web console
    Console,
    /// The gateway in front of a service, nginx and haproxy
    Gateway,
    /// Endpoints of tenants, some of them slow or down
    Endpoints,
}

impl Part {
    /// All parts, in the order of the page.
    pub(super) const ALL: [Self; 7] = [
        Self::Embedded,
        Self::Postgres,
        Self::Relay,
        Self::Feed,
        Self::Console,
        Self::Gateway,
        Self::Endpoints,
    ];

    fn heading(self) -> &'static str {
        match self {
            Self::Embedded => "# Figures of the embedded store",
            Self::Postgres => "# PostgreSQL",
            Self::Relay => "# Relay",
            Self::Feed => "# Feed",
            Self::Console => "# Console",
            Self::Gateway => "# Gateway",
            Self::Endpoints => "# Endpoints",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "embedded",
            Self::Postgres => "postgres",
            Self::Relay => "relay",
            Self::Feed => "feed",
            Self::Console => "console",
            Self::Gateway => "gateway",
            Self::Endpoints => "endpoints",
        })
    }
}

/// A part with its results.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) part: Part,
    pub(super) sections: Vec<Section>,
    pub(super) took: Duration,
}

impl Written {
    /// The text of the part.
    pub(super) fn text(&self, machine: &str, kind: &str) -> String {
        let Self {
            part,
            sections,
            took,
        } = self;
        let details: Vec<_> = sections.iter().map(ToString::to_string).collect();
        format!(
            "{}\n\nWritten by `{COMMAND} --part {part}{kind}`, in {took:.0?}. \
             How to repeat and how to read them: [README.md](README.md).\n\n{machine}\n{}\n{}",
            part.heading(),
            summary(sections),
            details.join("\n")
        )
    }
}

/// The page with new texts for the parts in `written`. Other parts are kept.
pub(super) fn page(kept: &str, written: &[(Part, String)]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in Part::ALL {
        let new = written.iter().find(|(of, _)| *of == part);
        let text = match new {
            Some((_, text)) => text.clone(),
            None => kept_part(kept, part.heading()).unwrap_or_default(),
        };
        parts.push(text);
    }
    parts.extend(OTHERS.iter().filter_map(|heading| kept_part(kept, heading)));
    let parts = parts.iter().map(|text| text.trim_end());
    let parts = parts.filter(|text| !text.is_empty());
    parts
        .map(|text| format!("{text}\n"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The text of a part of a page, from its heading to the next heading of the same level.
fn kept_part(page: &str, heading: &str) -> Option<String> {
    let mut lines = page.lines().skip_while(|line| *line != heading);
    let mut text = lines.next()?.to_owned();
    for line in lines.take_while(|line| !line.starts_with("# ")) {
        text.push('\n');
        text.push_str(line);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Figures of the embedded store\n\none\n\n## a\n\n# PostgreSQL\n\ntwo\n";

    #[test]
    fn a_part_that_was_not_measured_stays_as_it_is() {
        let relay = "# Relay\n\nthree\n\n".to_owned();
        let both = page(PAGE, &[(Part::Relay, relay)]);
        assert_eq!(both, format!("{PAGE}\n# Relay\n\nthree\n"));
        let postgres = "# PostgreSQL\n\nnew".to_owned();
        let three = page(&both, &[(Part::Postgres, postgres)]);
        assert_eq!(three, both.replace("two", "new"));
    }

    #[test]
    fn what_others_measured_stays_at_the_end() {
        let [packages, fleet] = OTHERS;
        let others = format!("{packages}\n\nfour\n\n{fleet}\n\nfive\n");
        let relay = "# Relay\n\nthree\n".to_owned();
        let all = page(&format!("{PAGE}\n{others}"), &[(Part::Relay, relay)]);
        assert_eq!(all, format!("{PAGE}\n# Relay\n\nthree\n\n{others}"));
    }

    #[test]
    fn a_page_that_is_not_there_yet_has_what_was_measured() {
        let relay = "# Relay\n\nthree\n".to_owned();
        assert_eq!(page("", &[(Part::Relay, relay.clone())]), relay);
    }
}
