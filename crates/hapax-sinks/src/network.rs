//! Networks in settings, such as `allow`.
//!
//! A network is written with its length. A single address is refused, because an address without a
//! length could be meant as a network, and the error says how each is written.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de::Error as _};

/// A network of a setting.
struct Network(IpNet);

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::custom(
                "must be a network such as \"10.0.0.0/8\": a single address ends in /32, or in \
                 /128 for IPv6",
            )
        })
    }
}

/// Reads a list of networks. The error about one says how a network is written.
///
/// # Errors
/// Fails if one of them is not a network.
pub fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let networks = Vec::<Network>::deserialize(deserializer)?;
    Ok(networks.into_iter().map(|Network(net)| net).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_without_a_length_is_refused_with_how_it_is_written() {
        let written = json!(["10.0.0.0/8", "127.0.0.1/32", "::1/128"]);
        let read = networks(&written).unwrap();
        assert_eq!(json!(read), written);
        for wrong in ["127.0.0.1", "::1", "localhost", "10.0.0.0/33", ""] {
            let error = networks(&json!([wrong])).unwrap_err().to_string();
            assert!(error.contains("/32"), "{wrong}: {error}");
        }
    }
}
