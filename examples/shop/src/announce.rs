//! The text printed at start: addresses, files, and commands to try.

use std::{fmt::Write as _, io::Write as _, net::SocketAddr, path::Path};

use crate::config::DatabaseLocation;

/// The content of the text.
#[derive(Debug)]
pub(crate) struct Announcement<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) database: &'a DatabaseLocation,
    /// The name and address of each destination; empty if no relay runs.
    pub(crate) destinations: &'a [(String, String)],
    /// The name and URL of each provider.
    pub(crate) providers: &'a [(&'static str, String)],
    /// The folder of caught mail, in the demo.
    pub(crate) mail: Option<&'a Path>,
    /// The webhook secret, if this start created it.
    pub(crate) new_secret: Option<&'a str>,
    /// The base URL of the customer portal, if it is served.
    pub(crate) portal: Option<&'a str>,
    /// Whether the web console is served.
    pub(crate) console: bool,
    pub(crate) demo: bool,
}

/// Prints an announcement to stdout; the shop starts even if stdout is closed.
pub(crate) fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _unread = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Formats an announcement.
pub(crate) fn written(announcement: &Announcement<'_>) -> String {
    let Announcement {
        address,
        database,
        destinations,
        providers,
        mail,
        new_secret,
        portal,
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
            "  webhooks are signed with {secret} (stored; not printed again)"
        );
    }
    if *console {
        let base = hapax_console::BASE;
        let _ = writeln!(text, "  console at http://{address}{base}");
    }
    if let Some(url) = portal {
        let base = hapax_console::portal::BASE;
        let _ = writeln!(
            text,
            "  customer portal at {url}{base}, opened by a link: POST /admin/portal-links"
        );
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
        "run this twice:   {send} -d '{{\"customer_id\":\"ann\",\"amount\":500,\"currency\":\"EUR\"}}'\n\
         then a conflict:  {send} -d '{{\"customer_id\":\"ann\",\"amount\":501,\"currency\":\"EUR\"}}'\n\
         delivered events: curl http://{address}/demo/receiver\n"
    )
}
