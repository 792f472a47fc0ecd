//! The destinations of the shop's events.
//!
//! Each webhook is a destination for every event. Its name consists of its host and a hash of its
//! URL, so the same URL is the same destination in every process, and a secret in a URL does not
//! appear in metrics. Mail receives only signups. The network policy allows a loopback address only
//! for the demo's receiver.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use hapax::{Clock, key::hex, relay::Destination, retry::Schedule, signature::Signer, sink::Sink};
use hapax_sinks::{
    secret::Secret,
    settings::DestinationSettings,
    smtp::{Smtp, SmtpSettings},
    webhook::{Webhook, WebhookSettings},
};
use http::Uri;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};

use crate::{config, templates, uploads};

/// The name of the destination for the demo's receiver.
pub(crate) const DEMO: &str = "demo";
/// The name of the destination for mail.
pub(crate) const MAIL: &str = "mail";
/// The name of the destination for the job that makes thumbnails.
const THUMBNAILS: &str = "thumbnails";

/// The type of the events that are sent as mail.
const SIGNED_UP: &str = "user.signed_up";
/// The type of the events for which thumbnails are made.
const UPLOADED: &str = "file.uploaded";
const SENDER: &str = "Shop <shop@localhost>";

/// The demo's retry schedule, with short waits so that retries can be watched.
pub(crate) const DEMO_SCHEDULE: &str = "0s,1s,2s,4s,8s,15s,30s,1m,2m,5m";

/// The retry schedule for thumbnails: a missing file is retried for two days.
const THUMBNAILS_SCHEDULE: &str = "0s,1s,5s,30s,5m,30m,2h,6h,12h,24h";
/// The time limit for the thumbnails of one image, including the wait for other images.
const THUMBNAILS_MAX: Duration = Duration::from_mins(2);

/// A destination, and a description of its address.
pub(crate) type Described = (Destination, String);

/// Builds the destination for the demo's receiver at `address`.
pub(crate) fn demo(
    address: SocketAddr,
    signer: &Signer,
    schedule: Option<Schedule>,
    clock: &Clock,
) -> anyhow::Result<Described> {
    let settings = WebhookSettings {
        url: format!("http://{address}/"),
        secret: signer.reveal().into(),
        allow: vec![address.ip().into()],
        ..WebhookSettings::default()
    };
    let webhook = Webhook::new(&settings, DestinationSettings::default(), clock.clone())?;
    let schedule = schedule.map_or_else(|| DEMO_SCHEDULE.parse(), Ok)?;
    let destination = Destination::new(DEMO, Arc::new(webhook)).schedule(schedule);
    Ok((destination, "GET /demo/receiver".to_owned()))
}

/// Builds a destination for each distinct webhook URL of the configuration.
pub(crate) fn webhooks(
    config: &config::Webhook,
    signer: &Signer,
    clock: &Clock,
) -> anyhow::Result<Vec<Described>> {
    let urls: BTreeMap<String, &String> =
        config.urls.iter().map(|url| (name_of(url), url)).collect();
    let described = urls.into_iter().map(|(name, url)| {
        let settings = WebhookSettings {
            url: url.clone(),
            secret: signer.reveal().into(),
            allow: config.allow_net.clone(),
            ..WebhookSettings::default()
        };
        let webhook = Webhook::new(&settings, DestinationSettings::default(), clock.clone())
            .with_context(|| format!("webhook {name} is not valid"))?;
        if let Some(blocked) = webhook.refusal() {
            tracing::warn!(destination = name, %blocked, "nothing will be sent: set --allow-net");
        }
        let schedule = config.schedule.clone().unwrap_or_default();
        let destination = Destination::new(&name, Arc::new(webhook)).schedule(schedule);
        Ok((destination, format!("webhook on {}", host_of(url))))
    });
    described.collect()
}

/// Builds the destination for mail, through the configured server or the demo's mail catcher.
///
/// `None` if there is neither.
pub(crate) fn mail(
    server: Option<&SecretString>,
    catcher: Option<SocketAddr>,
    templates: &Path,
    schedule: Option<Schedule>,
) -> anyhow::Result<Option<Described>> {
    let (url, place) = match (server, catcher) {
        (Some(url), _) => (Secret::Text(url.clone()), "the configured mail server"),
        (None, Some(address)) => (
            format!("smtp://{address}").into(),
            "the demo's mail catcher",
        ),
        (None, None) => return Ok(None),
    };
    templates::write_out(templates)
        .with_context(|| format!("cannot write mail templates to {}", templates.display()))?;
    let settings = SmtpSettings {
        url,
        from: SENDER.to_owned(),
        recipient: "{{ data.email }}".to_owned(),
        templates: templates.to_owned(),
        mails: [(SIGNED_UP.to_owned(), "welcome".to_owned())].into(),
        ..SmtpSettings::default()
    };
    let smtp = Smtp::new(&settings, DestinationSettings::default())?;
    let destination = Destination::new(MAIL, Arc::new(smtp)).only([SIGNED_UP]);
    let destination = destination.schedule(schedule.unwrap_or_default());
    Ok(Some((destination, place.to_owned())))
}

/// Builds the destination for the thumbnail job, which `sink` runs in this process.
pub(crate) fn thumbnails(
    sink: Arc<dyn Sink>,
    schedule: Option<Schedule>,
) -> anyhow::Result<Described> {
    let schedule = schedule.map_or_else(|| THUMBNAILS_SCHEDULE.parse(), Ok)?;
    let destination = Destination::new(THUMBNAILS, sink)
        .only([UPLOADED])
        .schedule(schedule)
        .concurrency(uploads::DECODED)
        .timeout(THUMBNAILS_MAX);
    Ok((destination, "rows in the database".to_owned()))
}

fn name_of(url: &str) -> String {
    let hash = hex(&Sha256::digest(url)[..4]);
    format!("webhook-{}-{hash}", host_of(url))
}

fn host_of(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    uri.and_then(|uri| uri.host().map(str::to_owned))
        .unwrap_or_else(|| "unknown".to_owned())
}
