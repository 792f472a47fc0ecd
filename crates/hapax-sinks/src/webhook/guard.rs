//! SSRF guard: the addresses to which a webhook may be sent.
//!
//! The author of a webhook URL must not be able to reach services that only this machine can reach:
//! the machine itself, its private network, the metadata service of the cloud. The guard checks the
//! address of each connection. A name that resolves to a private address is therefore blocked, also
//! if it did not when the destination was configured. The guard refuses spellings that resolvers
//! silently convert into addresses, too.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Maximum length of a DNS name in bytes.
const NAME_BYTES_MAX: usize = 253;

/// IPv4 ranges outside the public internet, with their names.
const CLOSED_V4: [(Ipv4Net, &str); 16] = [
    (v4([0, 0, 0, 0], 8), "this network"),
    (v4([10, 0, 0, 0], 8), "private"),
    (v4([100, 64, 0, 0], 10), "carrier-grade NAT"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([168, 63, 129, 16], 32), "cloud platform"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([172, 16, 0, 0], 12), "private"),
    (v4([192, 0, 0, 0], 24), "protocol assignment"),
    (v4([192, 0, 2, 0], 24), "documentation"),
    (v4([192, 88, 99, 0], 24), "6to4 relay"),
    (v4([192, 168, 0, 0], 16), "private"),
    (v4([198, 18, 0, 0], 15), "benchmark"),
    (v4([198, 51, 100, 0], 24), "documentation"),
    (v4([203, 0, 113, 0], 24), "documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([240, 0, 0, 0], 4), "reserved or broadcast"),
];

/// The block of IPv6 that is assigned to the public internet.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// IPv6 ranges outside the public internet, with their names. An address in no block is "not
/// global".
const CLOSED_V6: [(Ipv6Net, &str); 14] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "IPv4-compatible"),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), "NAT64"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "NAT64"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "Teredo"),
    // ORCHID, benchmarks and other protocols share this block.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "protocol assignment"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "documentation"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "unique local"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

/// The host of a URL, parsed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// An address in its usual notation.
    Address(IpAddr),
    /// A name to resolve.
    Name(String),
}

/// Why no connection was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Blocked {
    /// The host is an unusual notation of an address, or a name that should not be resolved.
    #[error("host is neither a name nor an address in its usual notation")]
    Spelling,
    /// The address is outside the public internet.
    #[error("address {address} is {range}")]
    Address {
        /// The blocked address.
        address: IpAddr,
        /// The name of its range.
        range: &'static str,
    },
    /// Every address of the name is outside the public internet. None is said, because a customer who enters
    /// a name must not learn how it is resolved in a private network.
    #[error("an address of the host is {range}")]
    Name {
        /// The name of the range of one of them.
        range: &'static str,
    },
}

/// The permitted addresses: the public internet, and configured exceptions.
#[derive(Clone, Default)]
pub(crate) struct Guard {
    allow: Vec<IpNet>,
    /// Whether the public internet is blocked too.
    is_private: bool,
}

impl Guard {
    pub(crate) fn allowing(allow: Vec<IpNet>) -> Self {
        Self {
            allow,
            is_private: false,
        }
    }

    /// Permits the exceptions and not the public internet.
    pub(crate) fn allowing_only(allow: Vec<IpNet>) -> Self {
        Self {
            allow,
            is_private: true,
        }
    }

    /// Checks an address. An address that embeds an IPv4 address is treated like that one.
    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), Blocked> {
        let address = address.to_canonical();
        match closed(address) {
            Some(range) if !self.allow.iter().any(|net| net.contains(&address)) => {
                Err(Blocked::Address { address, range })
            }
            None if self.is_private => {
                let range = "in the public internet, and the URL is not https";
                Err(Blocked::Address { address, range })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.allow).finish()
    }
}

impl Host {
    /// Parses the host of a URL; `[...]` is IPv6.
    pub(crate) fn parse(text: &str) -> Result<Self, Blocked> {
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let address: Ipv6Addr = inner.parse().map_err(|_| Blocked::Spelling)?;
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let too_long = text.is_empty() || text.len() > NAME_BYTES_MAX;
        if too_long || !text.bytes().all(plain) || ends_in_a_number(text) {
            return Err(Blocked::Spelling);
        }
        Ok(Self::Name(text.to_owned()))
    }
}

/// Whether the last label is a number. Resolvers read `127.1`, `0x7f000001`, `0177.0.0.1` and
/// `2130706433` as addresses.
///
/// No real name ends in a numeric label, so such a host is an unusual notation of an address.
fn ends_in_a_number(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let label = name.rsplit('.').next().unwrap_or_default();
    let hex = label.strip_prefix("0x").or(label.strip_prefix("0X"));
    match hex {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn closed(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            let mut ranges = CLOSED_V4.iter();
            ranges.find(|(net, _)| net.contains(&address)).map(|r| r.1)
        }
        IpAddr::V6(address) => {
            let mut ranges = CLOSED_V6.iter();
            let range = ranges.find(|(net, _)| net.contains(&address)).map(|r| r.1);
            range.or((!GLOBAL_V6.contains(&address)).then_some("not global"))
        }
    }
}

const fn v4(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from_octets(octets), prefix)
}

const fn v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_segments(segments), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_internet_is_open() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.128.0.1",
        ] {
            check(address, None);
        }
        for address in [
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "::ffff:8.8.8.8",
        ] {
            check(address, None);
        }
    }

    #[test]
    fn every_range_that_is_not_public_is_closed_from_its_first_address_to_its_last() {
        check("0.0.0.0", Some("this network"));
        check("0.255.255.255", Some("this network"));
        check("10.0.0.1", Some("private"));
        check("100.64.0.1", Some("carrier-grade NAT"));
        check("100.100.100.200", Some("carrier-grade NAT"));
        check("127.255.255.255", Some("loopback"));
        check("168.63.129.16", Some("cloud platform"));
        check("169.254.169.254", Some("link-local"));
        check("172.16.0.1", Some("private"));
        check("172.31.255.255", Some("private"));
        check("192.0.0.192", Some("protocol assignment"));
        check("192.0.2.1", Some("documentation"));
        check("192.88.99.1", Some("6to4 relay"));
        check("192.168.1.1", Some("private"));
        check("198.19.255.255", Some("benchmark"));
        check("198.51.100.1", Some("documentation"));
        check("203.0.113.1", Some("documentation"));
        check("224.0.0.1", Some("multicast"));
        check("239.255.255.255", Some("multicast"));
        check("240.0.0.1", Some("reserved or broadcast"));
        check("255.255.255.255", Some("reserved or broadcast"));
    }

    #[test]
    fn every_ipv6_range_that_is_not_public_is_closed() {
        check("::", Some("unspecified"));
        check("::1", Some("loopback"));
        check("::ffff:127.0.0.1", Some("loopback"));
        check("::ffff:a9fe:a9fe", Some("link-local"));
        check("::127.0.0.1", Some("IPv4-compatible"));
        check("::ffff:0:127.0.0.1", Some("not global"));
        check("64:ff9b::7f00:1", Some("NAT64"));
        check("64:ff9b:1::7f00:1", Some("NAT64"));
        check("100::1", Some("not global"));
        check("2001::7f00:1", Some("Teredo"));
        check("2001:2::1", Some("protocol assignment"));
        check("2001:10::1", Some("protocol assignment"));
        check("2001:20::1", Some("protocol assignment"));
        check("2001:db8::1", Some("documentation"));
        check("2002:7f00:1::", Some("6to4"));
        check("3fff::1", Some("documentation"));
        check("5f00::1", Some("not global"));
        check("fc00::1", Some("unique local"));
        check("fd00:ec2::254", Some("unique local"));
        check("fe80::1", Some("link-local"));
        check("fec0::1", Some("site-local"));
        check("ff02::1", Some("multicast"));
    }

    #[test]
    fn what_is_opened_on_purpose_is_open_and_nothing_beside_it() {
        let guard = Guard::allowing(vec![
            "127.0.0.0/8".parse().unwrap(),
            "fd00:1::/32".parse().unwrap(),
            "::/0".parse().unwrap(),
        ]);
        let is_allowed = |address: &str| guard.check_address(address.parse().unwrap()).is_ok();
        assert!(
            is_allowed("127.0.0.1") && is_allowed("::ffff:127.0.0.1") && is_allowed("fd00:1::1")
        );
        assert!(!is_allowed("10.0.0.1") && !is_allowed("::ffff:10.0.0.1"));
    }

    #[test]
    fn without_tls_only_an_exception_outside_the_public_internet_is_open() {
        let guard = Guard::allowing_only(vec![
            "10.0.0.0/8".parse().unwrap(),
            "0.0.0.0/0".parse().unwrap(),
        ]);
        let is_allowed = |address: &str| guard.check_address(address.parse().unwrap()).is_ok();
        assert!(is_allowed("10.0.0.1") && is_allowed("::ffff:10.0.0.1"));
        assert!(!is_allowed("8.8.8.8") && !is_allowed("fd00::1"));
    }

    #[test]
    fn an_address_in_disguise_is_never_shown_to_a_resolver() {
        for text in [
            "2130706433",
            "0x7f000001",
            "0X7F000001",
            "0177.0.0.1",
            "127.1",
            "127.0.1",
            "017700000001",
            "127.0.0.1.",
            "0x7f.1",
            "127.0.0.0x1",
            "a.0x",
            "1.2.3.4.5",
            "256.0.0.1",
            "127.0.0.01",
            "[fe80::1%eth0]",
            "[fe80::1%25eth0]",
            "[::1",
            "[127.0.0.1]",
            "[]",
            "",
            ".",
            "..",
            "%31%32%37.0.0.1",
            "a b",
            "a@b",
            "１２７.0.0.1",
            "a/b",
            "a:b",
        ] {
            assert_eq!(Host::parse(text), Err(Blocked::Spelling), "{text}");
        }
        assert_eq!(Host::parse(&"a".repeat(254)), Err(Blocked::Spelling));
    }

    #[test]
    fn a_plain_name_and_a_plain_address_are_read_as_what_they_are() {
        for name in [
            "example.com",
            "localhost",
            "a_b.1x.example",
            "xn--bcher-kva.example",
            "h.",
        ] {
            assert_eq!(Host::parse(name), Ok(Host::Name(name.to_owned())));
        }
        let address = |text: &str| Ok(Host::Address(text.parse().unwrap()));
        assert_eq!(Host::parse("127.0.0.1"), address("127.0.0.1"));
        assert_eq!(Host::parse("[::ffff:7f00:1]"), address("::ffff:127.0.0.1"));
    }

    #[track_caller]
    fn check(address: &str, expected: Option<&str>) {
        let checked = Guard::default().check_address(address.parse().unwrap());
        let range = checked.err().map(|blocked| match blocked {
            Blocked::Address { range, .. } | Blocked::Name { range } => range,
            Blocked::Spelling => "spelling",
        });
        assert_eq!(range, expected, "{address}");
    }
}
