//! Check: what the configuration of the gateway does not protect, and whether its services can be
//! reached from this machine.
//!
//! The findings are those of `hapax gateway check`. A TCP connection to each instance is opened and
//! closed; nothing is sent.

use hapax_gateway::{
    check::{self, Severity, findings, unreachable},
    config::Settings,
};

use super::{Context, Finding};

const CHECK: &str = "gateway";

/// The findings, if the configuration has a gateway. With `connect`, also those about instances.
pub(super) async fn check(context: &Context, connect: bool) -> Vec<Finding> {
    let Some(settings) = &context.config.gateway else {
        return Vec::new();
    };
    let mut all: Vec<Finding> = findings(settings, None).iter().map(of_settings).collect();
    if connect {
        let down = unreachable(settings).await;
        if down.is_empty() {
            all.push(Finding::ok(CHECK, reachable(settings)));
        }
        all.extend(down.iter().map(of_instance));
    }
    all
}

fn of_settings(found: &check::Finding) -> Finding {
    match found.severity {
        Severity::Warning => {
            let object = &found.object;
            let remedy = format!("correct {object}, unless intended; see `hapax gateway check`");
            Finding::warning(CHECK, text(found), remedy)
        }
        Severity::Note => Finding::note(CHECK, text(found), ""),
    }
}

fn of_instance(found: &check::Finding) -> Finding {
    let remedy = "check the address, and the route from this machine; the gateway avoids the \
                  instance until it can be reached";
    Finding::warning(CHECK, text(found), remedy)
}

fn text(found: &check::Finding) -> String {
    format!("{}: {}", found.object, found.text)
}

fn reachable(settings: &Settings) -> String {
    let instances = settings.upstreams.values();
    let instances: usize = instances.map(|upstream| upstream.instances.len()).sum();
    let routes = settings.routes.len();
    format!("routes: {routes}; instances, which can all be reached: {instances}")
}
