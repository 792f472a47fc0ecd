//! Parsers for the values of settings.
//!
//! An error message is the end of a sentence that its caller starts with the name of the setting.
//! It shows the value only if the value cannot be a secret.

use std::{
    fmt::Display,
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    str::FromStr,
    time::Duration,
};

use hapax::{
    retry::{Schedule, parse_duration},
    signature::{KeyTextError, Signer, Verifier},
};
use hapax_runtime::config::did_you_mean;
use http::Uri;
use ipnet::IpNet;
use secrecy::SecretString;

/// Parses one of a few words.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let meant = did_you_mean(text, known.iter().copied());
    Err(format!(
        "must be one of {}, not {text:?}{meant}",
        known.join(", ")
    ))
}

/// Parses `true` or `false`.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    word(text, &[("true", true), ("false", false)])
}

/// Parses an address with a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("must be an address such as 127.0.0.1:8080, not {text:?}"))
}

/// Parses a duration between two bounds.
pub(super) fn duration(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|error| format!("is not valid: {error}"))?;
    if duration < least || duration > most {
        return Err(format!("must be from {least:?} to {most:?}, not {text}"));
    }
    Ok(duration)
}

/// Parses a whole number between two bounds.
pub(super) fn count<N>(text: &str, least: N, most: N) -> Result<N, String>
where
    N: Copy + FromStr + PartialOrd + Display,
{
    let count = text.parse().ok();
    count
        .filter(|count| (&least..=&most).contains(&count))
        .ok_or_else(|| format!("must be a whole number from {least} to {most}, not {text:?}"))
}

/// Parses a rate, such as `100/s`: requests in a second, a minute or an hour.
pub(super) fn rate(text: &str) -> Result<(NonZeroU32, Duration), String> {
    let parse = || {
        let (requests, period) = text.split_once('/')?;
        let period = match period {
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            _ => return None,
        };
        Some((requests.parse::<NonZeroU32>().ok()?, period))
    };
    parse().ok_or_else(|| {
        format!(
            "must be a number of requests in a second, minute or hour, such as 100/s, 600/m or \
             1000/h, not {text:?}"
        )
    })
}

/// Parses a network, or a single address.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let single = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let net = text.parse().ok().or_else(single);
    net.ok_or_else(|| format!("must be a network such as 10.0.0.0/8, not {text:?}"))
}

/// Parses a share from 0 to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("must be a number from 0 to 1, not {text:?}"))
}

/// Parses a log level.
pub(super) fn level(text: &str) -> Result<tracing::Level, String> {
    use tracing::Level;
    word(
        text,
        &[
            ("error", Level::ERROR),
            ("warn", Level::WARN),
            ("info", Level::INFO),
            ("debug", Level::DEBUG),
            ("trace", Level::TRACE),
        ],
    )
}

/// Parses a retry schedule: the wait before each attempt.
pub(super) fn schedule(text: &str) -> Result<Schedule, String> {
    text.parse()
        .map_err(|error: hapax::retry::DurationError| error.to_string())
}

/// Parses the URL of a mail server.
pub(super) fn smtp(url: &str) -> Result<SecretString, String> {
    if url.starts_with("smtp://") || url.starts_with("smtps://") {
        Ok(SecretString::from(url))
    } else {
        Err("must be a URL that starts with smtp:// or smtps://".to_owned())
    }
}

/// Parses the URL of a provider: plain HTTP, without user information and query.
pub(super) fn provider(url: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = url.parse().ok();
    let fits = |uri: &Uri| {
        let authority = uri.authority().map(http::uri::Authority::as_str);
        uri.scheme_str() == Some("http")
            && uri.query().is_none()
            && authority.is_some_and(|authority| !authority.contains('@'))
    };
    uri.filter(fits)
        .ok_or_else(|| "must be like http://127.0.0.1:9001, without user or query".to_owned())
}

/// Parses the secret that signs webhooks.
pub(super) fn signer(text: &str) -> Result<Signer, String> {
    text.parse()
        .map_err(|error: KeyTextError| format!("is not valid: {error}"))
}

/// Parses the secret that verifies the webhooks of a source.
pub(super) fn verifier(text: &str) -> Result<Verifier, String> {
    text.parse()
        .map_err(|error: KeyTextError| format!("is not valid: {error}"))
}

/// Validates the name of a source of webhooks, which is a path segment.
pub(super) fn source(text: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        Ok(())
    } else {
        Err("inbox.secrets: a source must be 1 to 64 of A-Z a-z 0-9 _ -".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_word_names_the_nearest_right_one() {
        let error = word("gon", &[("new", 0), ("gone", 1)]).unwrap_err();
        assert_eq!(
            error,
            "must be one of new, gone, not \"gon\": did you mean gone?"
        );
        assert_eq!(
            switch("0").unwrap_err(),
            "must be one of true, false, not \"0\""
        );
    }

    #[test]
    fn a_provider_is_reached_over_plain_http() {
        for good in ["http://127.0.0.1:9001", "http://pay/", "http://pay:80/v1"] {
            assert!(provider(good).is_ok(), "{good}");
        }
        for bad in [
            "https://pay",
            "pay:80",
            "/pay",
            "http://u:secret@pay",
            "http://pay/?a=1",
            "",
        ] {
            let error = provider(bad).unwrap_err();
            assert!(!error.contains("secret"), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_a_number_of_requests_in_a_period() {
        let hundred = NonZeroU32::new(100).unwrap();
        assert_eq!(rate("100/s"), Ok((hundred, Duration::from_secs(1))));
        assert_eq!(rate("100/h"), Ok((hundred, Duration::from_hours(1))));
        for bad in ["0/s", "100", "100/d", "/s", "-1/s", "1.5/s", "s/100", ""] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_duration_keeps_its_bounds() {
        let check = |text| duration(text, Duration::from_secs(1), Duration::from_hours(1));
        assert_eq!(check("2s"), Ok(Duration::from_secs(2)));
        for bad in ["0s", "2h", "2", "x"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
