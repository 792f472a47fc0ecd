//! Check: what is not moving and why (destinations, order keys and sagas), as in the admin API.
//!
//! Open transactions are reported by `sessions`, which needs fewer privileges.

use hapax::admin::{Actor, Cause, Stalled, StalledItem};

use super::{Context, Finding};
use crate::environment;

pub(super) async fn check(context: &Context) -> Vec<Finding> {
    // If the tables do not exist or cannot be read, another check reports that.
    let Some(admin) = super::admin(context).await else {
        return Vec::new();
    };
    match admin.stalled(&Actor::new("")).await {
        Ok(all) => {
            let stalled = all.iter().filter_map(finding);
            let mut findings: Vec<Finding> = stalled.collect();
            for (check, fine) in [
                ("stalled", "no destination is stalled"),
                ("sagas", "no saga needs attention or is overdue"),
            ] {
                if !findings.iter().any(|finding| finding.check == check) {
                    findings.push(Finding::ok(check, fine));
                }
            }
            findings
        }
        Err(error) => {
            let problem = environment::error_chain(&error);
            let remedy = "on PostgreSQL, read the log of the server; then run `hapax doctor` again";
            vec![Finding::error("stalled", problem, remedy)]
        }
    }
}

fn finding(stalled: &Stalled) -> Option<Finding> {
    let Stalled {
        what,
        cause,
        since,
        waiting,
        ..
    } = stalled;
    if let StalledItem::Sagas { name, version } = what {
        return Some(sagas(name, *version, cause, *waiting));
    }
    let since = since.map(|at| format!(" since {at}"));
    let since = since.unwrap_or_default();
    let found = format!("{what}: {cause}{since}; {waiting} wait");
    let remedy = match cause {
        Cause::Disabled { .. } => {
            "the receiver responded with 410: correct the destination and resume it, or remove it"
        }
        Cause::Unowned { .. } => "start a relay that is configured for the destination",
        Cause::OwnerSilent { .. } => {
            "check whether this node runs; another relay that is configured for the destination \
             takes it over"
        }
        Cause::BehindDeadLetter { .. } => {
            "run `hapax dead-letters show`, then replay or discard the dead letter"
        }
        Cause::Declined { .. } => {
            "bind a queue or a stream that accepts these events, or remove their type from the \
             destination's `events`; then run `hapax dead-letters list`"
        }
        Cause::NotSettling => {
            "read the log of its relay, and check the metric hapax_relay_breaker_open"
        }
        Cause::Paused { .. } => return Some(Finding::note("stalled", found, "")),
        Cause::WaitsForRetry { next_at, .. } => {
            let found = format!("{found}, until {next_at}");
            return Some(Finding::note("stalled", found, ""));
        }
        // Reported by `sessions` and `prepared`.
        _ => return None,
    };
    Some(Finding::warning("stalled", found, remedy))
}

fn sagas(name: &str, version: u32, cause: &Cause, count: u64) -> Finding {
    if *cause == Cause::NeedsAttention {
        let found = format!("{count} of the sagas {name} need attention (version {version})");
        let remedy = format!(
            "list them with `hapax sagas list --state needs_attention --name {name}`, then run \
             `hapax sagas decide` for each"
        );
        return Finding::warning("sagas", found, remedy);
    }
    let found = format!(
        "{count} of the sagas {name} version {version} have been due for more than a minute"
    );
    let remedy = "start a service whose saga runner has this kind and this version";
    Finding::warning("sagas", found, remedy)
}
