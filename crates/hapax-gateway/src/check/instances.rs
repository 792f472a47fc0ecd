//! Check of the instances of upstreams: each is connected to once.
//!
//! All connections are opened at the same time, each with the time limit of its upstream. Nothing is
//! sent, so an instance that accepts connections and does not respond is not found.

use futures_util::future::join_all;
use http::{Uri, uri::Scheme};
use tokio::{net::TcpStream, time::timeout};

use super::{Finding, Severity};
use crate::config::{Settings, Upstream, parse_instance};

/// The findings about instances that accept no connection within the upstream's `connect_timeout`.
/// Nothing is sent.
pub async fn unreachable(settings: &Settings) -> Vec<Finding> {
    let upstreams = settings.upstreams.iter();
    let all = upstreams.flat_map(|(name, upstream)| {
        let instances = upstream.instances.iter();
        instances.map(move |instance| of_instance(name, upstream, instance))
    });
    join_all(all).await.into_iter().flatten().collect()
}

async fn of_instance(name: &str, upstream: &Upstream, instance: &str) -> Option<Finding> {
    let why = match parse_instance(instance) {
        Err(problem) => problem,
        Ok(uri) => {
            let (host, port) = address(&uri);
            let limit = upstream.connect_timeout.0;
            match timeout(limit, TcpStream::connect((host, port))).await {
                Ok(Ok(_)) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no connection within {limit:?}"),
            }
        }
    };
    Some(Finding {
        severity: Severity::Warning,
        object: format!("gateway.upstreams.{name}"),
        text: format!("cannot connect to {instance}: {why}"),
    })
}

/// The host and the port of an instance.
fn address(uri: &Uri) -> (&str, u16) {
    let default = if uri.scheme() == Some(&Scheme::HTTPS) {
        443
    } else {
        80
    };
    let host = uri.host().unwrap_or_default();
    // A literal IPv6 address is in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (host, uri.port_u16().unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_instance_that_accepts_no_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let up = format!("http://{}", listener.local_addr().unwrap());
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let down = format!("http://{}", closed.local_addr().unwrap());
        drop(closed);
        let mut settings = Settings::default();
        let upstream = Upstream::new([up.as_str(), down.as_str()]);
        settings.upstreams.insert("orders".to_owned(), upstream);
        let found = unreachable(&settings).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].object, "gateway.upstreams.orders");
        assert!(found[0].text.contains(&down), "{found:?}");
    }

    #[test]
    fn an_instance_has_the_port_of_its_scheme() {
        check("http://a", ("a", 80));
        check("https://a", ("a", 443));
        check("https://[::1]:8443", ("::1", 8443));
    }

    #[track_caller]
    fn check(instance: &str, expected: (&str, u16)) {
        let uri = parse_instance(instance).unwrap();
        assert_eq!(address(&uri), expected);
    }
}
