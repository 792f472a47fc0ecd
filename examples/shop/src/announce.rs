//! What a person reads at start: where everything is, and what to try.

use std::{fmt::Write as _, io::Write as _, net::SocketAddr, path::Path};

use crate::config::Place;

/// What there is to say.
#[derive(Debug)]
pub(crate) struct Announcement<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) database: &'a Place,
    /// Destinations, each with where it goes; empty when no relay runs.
    pub(crate) destinations: &'a [(String, String)],
    /// Providers, each with where it is.
    pub(crate) providers: &'a [(&'static str, String)],
    /// Caught mail, in the demo.
    pub(crate) mail: Option<&'a Path>,
    /// The webhook secret, when it was made just now.
    pub(crate) new_secret: Option<&'a str>,
    /// Whether there is a console.
    pub(crate) console: bool,
    pub(crate) demo: bool,
}

/// Prints an announcement; a stdout that nobody reads is no reason not to start.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _unread = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Writes down what there is to say.
pub(crate) fn written(announcement: &Announcement<'_>) -> String {
    let Announcement {
        address,
        database,
        destinations,
        providers,
        mail,
        new_secret,
        console,
        demo,
    } = announcement;
    let mut text = format!("shop listens on http://{address}\n  rows in {database}\n");
    if destinations.is_empty() {
        text.push_str("  events stay in the outbox\n");
    }
    for (name, place) in *destinations {
        let _ = writeln!(text, "  events to {name}: {place}");
    }
    for (name, place) in *providers {
        let _ = writeln!(text, "  {name} provider at {place}");
    }
    if let Some(folder) = mail {
        let _ = writeln!(text, "  mail in {}", folder.display());
    }
    if let Some(secret) = new_secret {
        let _ = writeln!(
            text,
            "  webhooks are signed with {secret} (kept; not printed again)"
        );
    }
    if *console {
        let base = hapax_console::BASE;
        let _ = writeln!(text, "  console at http://{address}{base}");
    }
    if *demo {
        text.push_str(&tries(*address));
    }
    text
}

fn tries(address: SocketAddr) -> String {
    let send = format!(
        "curl -i http://{address}/orders -H 'authorization: Bearer demo-alice' \
         -H 'content-type: application/json' -H 'idempotency-key: try-1'"
    );
    format!(
        "try, twice:      {send} -d '{{\"customer_id\":\"ann\",\"amount\":500,\"currency\":\"EUR\"}}'\n\
         then a conflict: {send} -d '{{\"customer_id\":\"ann\",\"amount\":501,\"currency\":\"EUR\"}}'\n\
         what arrived:    curl http://{address}/demo/receiver\n"
    )
}
