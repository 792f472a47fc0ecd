//! Fuzz target for the network policy of the webhook sink: the host of every URL is an address, a
//! name, or rejected.
//!
//! If the resolver of this machine would read a text as an address, the text is not accepted as a
//! name. If an IPv4 address is blocked, the IPv6 addresses that contain it are blocked as well.
#![no_main]

#[path = "../../../crates/hapax-sinks/src/webhook/guard.rs"]
#[allow(dead_code, reason = "the sink uses the rest")]
mod guard;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use guard::{Blocked, Guard, Host};
use libfuzzer_sys::fuzz_target;
use url::{Host as Read, Url};

fuzz_target!(|text: &str| {
    let host = Host::parse(text);
    // The URL parser of browsers is the most lenient one.
    let read = Url::parse(&format!("http://{text}/")).ok();
    match (&host, read.as_ref().and_then(Url::host)) {
        (Ok(Host::Name(name)), Some(read)) => {
            assert!(
                matches!(read, Read::Domain(_)),
                "{name} is an address, and was accepted as a name"
            );
        }
        (Ok(Host::Address(IpAddr::V4(ours))), Some(read)) => {
            assert_eq!(read, Read::<&str>::Ipv4(*ours))
        }
        (Ok(Host::Address(IpAddr::V6(ours))), Some(read)) => {
            assert_eq!(read, Read::<&str>::Ipv6(*ours))
        }
        _ => {}
    }
    match host {
        Ok(Host::Address(address)) => judge(address),
        Ok(Host::Name(name)) => assert_eq!(name, text),
        Err(blocked) => assert_eq!(blocked, Blocked::Spelling),
    }
});

fn judge(address: IpAddr) {
    let guard = Guard::default();
    let judged = guard.check_address(address);
    assert!(
        Guard::allowing(vec![address.to_canonical().into()])
            .check_address(address)
            .is_ok()
    );
    let wrapped = match address {
        IpAddr::V4(inner) => inner,
        IpAddr::V6(outer) => {
            let [a, b] = [outer.segments()[6], outer.segments()[7]].map(u16::to_be_bytes);
            Ipv4Addr::new(a[0], a[1], b[0], b[1])
        }
    };
    let is_closed = wrapped.is_private()
        || wrapped.is_loopback()
        || wrapped.is_link_local()
        || wrapped.is_broadcast()
        || wrapped.is_documentation()
        || wrapped.is_unspecified()
        || wrapped.is_multicast();
    if address.is_ipv4() && is_closed {
        assert!(judged.is_err(), "{address}");
    }
    let [a, b, c, d] = wrapped.octets().map(u16::from);
    let (high, low) = (a << 8 | b, c << 8 | d);
    for outer in [
        [0, 0, 0, 0, 0, 0xffff, high, low],
        [0, 0, 0, 0, 0, 0, high, low],
        [0x64, 0xff9b, 0, 0, 0, 0, high, low],
        [0x2002, high, low, 0, 0, 0, 0, 1],
    ] {
        let outer = IpAddr::V6(Ipv6Addr::from(outer));
        assert!(
            guard.check_address(outer).is_err() || guard.check_address(wrapped.into()).is_ok(),
            "{outer}"
        );
    }
}
