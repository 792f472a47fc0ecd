//! PROXY protocol, versions 1 and 2: the address of the client, sent by a proxy that passes bytes.
//!
//! The header is read before TLS, and nothing after it is read. Its size is bounded, and the caller
//! limits the time. Additions (TLVs) are skipped. After `LOCAL` the client is the proxy itself. After
//! `UNKNOWN`, and families without an address of the internet, the client is not known: the address of
//! the connection stays, but the client does not count as the proxy. The format is that of
//! <https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The beginning of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The beginning of a header of version 1.
const WORD: &[u8] = b"PROXY ";
/// Longest header of version 1 in bytes, with its end of line.
const LINE_BYTES_MAX: usize = 107;
/// Longest addresses and additions of version 2, in bytes.
const REST_BYTES_MAX: usize = 2048;
/// The length of two addresses of IPv4 with their ports, in bytes.
const TWO_V4: usize = 12;
/// The length of two addresses of IPv6 with their ports, in bytes.
const TWO_V6: usize = 36;

/// From whom a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// From the client with this address.
    Client(SocketAddr),
    /// From the proxy itself, such as its health check.
    Proxy,
    /// From a client whose address the proxy does not say.
    Unidentified,
}

/// Why a connection has no valid header.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyError {
    /// The connection has failed, or has ended within the header.
    #[error("the PROXY header is not complete")]
    Incomplete(#[from] io::Error),
    /// The first bytes are not a header.
    #[error("the connection does not begin with a PROXY header")]
    Missing,
    /// The header is longer than allowed.
    #[error("the PROXY header is too long")]
    TooLong,
    /// The header is not valid.
    #[error("the PROXY header is not valid")]
    Invalid,
}

/// Reads the header at the beginning of a connection. Returns from whom the connection is.
///
/// # Errors
/// Fails if there is no valid header. The connection then has to be closed.
pub(super) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Source, ProxyError> {
    let mut begin = [0; SIGNATURE.len()];
    // The shortest header of version 1 is longer than this.
    stream.read_exact(&mut begin).await?;
    if begin == *SIGNATURE {
        return read_binary(stream).await;
    }
    if begin.starts_with(WORD) {
        return read_line(stream, &begin).await;
    }
    Err(ProxyError::Missing)
}

/// Reads the rest of a header of version 1, byte by byte, because its length is not known.
async fn read_line<S: AsyncRead + Unpin>(
    stream: &mut S,
    begin: &[u8],
) -> Result<Source, ProxyError> {
    let mut line = Vec::with_capacity(LINE_BYTES_MAX);
    line.extend_from_slice(begin);
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE_BYTES_MAX {
            return Err(ProxyError::TooLong);
        }
        line.push(stream.read_u8().await?);
    }
    let line = line.strip_suffix(b"\r\n").unwrap_or(&line);
    let line = line.strip_prefix(WORD).ok_or(ProxyError::Missing)?;
    let line = std::str::from_utf8(line).map_err(|_| ProxyError::Invalid)?;
    let mut words = line.split(' ');
    let family = words.next().unwrap_or_default();
    // What follows is to be ignored.
    if family == "UNKNOWN" {
        return Ok(Source::Unidentified);
    }
    let mut next = || words.next().ok_or(ProxyError::Invalid);
    let (source, destination) = (next()?, next()?);
    let (source_port, destination_port) = (port(next()?)?, port(next()?)?);
    if words.next().is_some() {
        return Err(ProxyError::Invalid);
    }
    let _destination = (address(family, destination)?, destination_port);
    let client = (address(family, source)?, source_port);
    Ok(Source::Client(client.into()))
}

fn address(family: &str, text: &str) -> Result<IpAddr, ProxyError> {
    let parsed = match family {
        "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
        "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        _ => None,
    };
    parsed.ok_or(ProxyError::Invalid)
}

fn port(text: &str) -> Result<u16, ProxyError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = text.parse().ok().filter(|_| is_number);
    parsed.ok_or(ProxyError::Invalid)
}

/// Reads the rest of a header of version 2.
async fn read_binary<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Source, ProxyError> {
    let mut fixed = [0; 4];
    stream.read_exact(&mut fixed).await?;
    let [command, family, high, low] = fixed;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > REST_BYTES_MAX {
        return Err(ProxyError::TooLong);
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    match (command, family) {
        (0x21, 0x11) => Ok(Source::Client(first_of_v4(&rest)?)),
        (0x21, 0x21) => Ok(Source::Client(first_of_v6(&rest)?)),
        // LOCAL, such as a health check of the proxy itself.
        (0x20, _) => Ok(Source::Proxy),
        // Unspecified, datagrams, and sockets of Unix.
        (0x21, 0x00..=0x02 | 0x10 | 0x12 | 0x20 | 0x22 | 0x30..=0x32) => Ok(Source::Unidentified),
        _ => Err(ProxyError::Invalid),
    }
}

fn first_of_v4(rest: &[u8]) -> Result<SocketAddr, ProxyError> {
    let [a, b, c, d, _, _, _, _, high, low, ..] = *at_least(rest, TWO_V4)? else {
        return Err(ProxyError::Invalid);
    };
    let port = u16::from_be_bytes([high, low]);
    Ok((Ipv4Addr::new(a, b, c, d), port).into())
}

fn first_of_v6(rest: &[u8]) -> Result<SocketAddr, ProxyError> {
    let both = at_least(rest, TWO_V6)?;
    let source: [u8; 16] = both[..16].try_into().map_err(|_| ProxyError::Invalid)?;
    let port = u16::from_be_bytes([both[32], both[33]]);
    Ok((Ipv6Addr::from(source), port).into())
}

/// The addresses, whose length is fixed. Additions may follow.
fn at_least(rest: &[u8], length: usize) -> Result<&[u8], ProxyError> {
    rest.get(..length).ok_or(ProxyError::Invalid)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    const AFTER: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    #[tokio::test]
    async fn a_line_names_the_client() {
        let v4 = b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n";
        accepted(v4, client("192.168.0.1:56324")).await;
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        let v6 = format!("PROXY TCP6 {longest} {longest} 65535 65535\r\n");
        accepted(v6.as_bytes(), client(&format!("[{longest}]:65535"))).await;
        accepted(
            b"PROXY TCP6 2001:db8::1 ::1 0 443\r\n",
            client("[2001:db8::1]:0"),
        )
        .await;
        accepted(b"PROXY UNKNOWN\r\n", Source::Unidentified).await;
        let longest = format!("PROXY UNKNOWN {longest} {longest} 65535 65535\r\n");
        assert_eq!(longest.len(), LINE_BYTES_MAX);
        accepted(longest.as_bytes(), Source::Unidentified).await;
    }

    #[tokio::test]
    async fn a_line_that_is_not_valid_is_refused() {
        for line in [
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 65536\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 +1 443\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443 1\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443 \r\n",
            "PROXY TCP4  192.168.0.1 192.168.0.11 56324 443\r\n",
            "PROXY TCP4 192.168.0.256 192.168.0.11 56324 443\r\n",
            "PROXY TCP4 192.168.00.1 192.168.0.11 56324 443\r\n",
            "PROXY TCP4 ::1 ::1 56324 443\r\n",
            "PROXY TCP6 192.168.0.1 192.168.0.11 56324 443\r\n",
            "PROXY UDP4 192.168.0.1 192.168.0.11 56324 443\r\n",
            "PROXY tcp4 192.168.0.1 192.168.0.11 56324 443\r\n",
            "PROXY TCP4\r\n192.168.0.1 192.168.0.11 56324 443\r\n",
            "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\n\r\n",
            "PROXY \u{e4}\u{f6}\u{fc} 192.168.0.1\r\n",
        ] {
            let refused = sent(line.as_bytes()).await.unwrap_err();
            assert!(
                matches!(refused, ProxyError::Invalid),
                "{line:?}: {refused}"
            );
        }
        for other in [
            "proxy TCP4 192.168.0.1",
            "GET / HTTP/1.1\r\n",
            "PROXYTCP4 192.",
        ] {
            let refused = sent(other.as_bytes()).await.unwrap_err();
            assert!(
                matches!(refused, ProxyError::Missing),
                "{other:?}: {refused}"
            );
        }
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE_BYTES_MAX - 15));
        let refused = sent(long.as_bytes()).await.unwrap_err();
        assert!(matches!(refused, ProxyError::TooLong), "{refused}");
    }

    #[tokio::test]
    async fn a_binary_header_names_the_client() {
        let v4 = [192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 0x01, 0xbb];
        accepted(&binary(0x21, 0x11, &v4), client("192.168.0.1:56324")).await;
        // An addition (PP2_TYPE_ALPN) is skipped, also one whose length is wrong.
        let with_more = [&v4[..], &[1, 0, 2, b'h', b'2', 1, 0xff, 0xff]].concat();
        accepted(&binary(0x21, 0x11, &with_more), client("192.168.0.1:56324")).await;
        let mut v6 = [0; TWO_V6];
        v6[..2].copy_from_slice(&[0x20, 0x01]);
        v6[15] = 1;
        v6[32..34].copy_from_slice(&[0x04, 0x00]);
        accepted(&binary(0x21, 0x21, &v6), client("[2001::1]:1024")).await;
        // LOCAL, also with addresses; unspecified; datagrams; a socket of Unix.
        accepted(&binary(0x20, 0x00, &[]), Source::Proxy).await;
        accepted(&binary(0x20, 0x11, &v4), Source::Proxy).await;
        accepted(&binary(0x21, 0x00, b"any"), Source::Unidentified).await;
        accepted(&binary(0x21, 0x12, &v4), Source::Unidentified).await;
        accepted(&binary(0x21, 0x31, &[0; 216]), Source::Unidentified).await;
        let longest = vec![0; REST_BYTES_MAX];
        accepted(&binary(0x21, 0x11, &longest), client("0.0.0.0:0")).await;
    }

    #[tokio::test]
    async fn a_binary_header_that_is_not_valid_is_refused() {
        for (command, family, rest) in [
            // Other versions, commands, families and kinds.
            (0x11, 0x11, &[0; TWO_V4][..]),
            (0x31, 0x11, &[0; TWO_V4][..]),
            (0x22, 0x11, &[0; TWO_V4][..]),
            (0x21, 0x13, &[0; TWO_V4][..]),
            (0x21, 0x41, &[0; TWO_V4][..]),
            // Addresses that are too short.
            (0x21, 0x11, &[0; TWO_V4 - 1][..]),
            (0x21, 0x21, &[0; TWO_V6 - 1][..]),
            (0x21, 0x21, &[0; TWO_V4][..]),
        ] {
            let refused = sent(&binary(command, family, rest)).await.unwrap_err();
            let case = format!("{command:#x} {family:#x}: {refused}");
            assert!(matches!(refused, ProxyError::Invalid), "{case}");
        }
        let long = binary(0x20, 0x00, &vec![0; REST_BYTES_MAX + 1]);
        let refused = sent(&long).await.unwrap_err();
        assert!(matches!(refused, ProxyError::TooLong), "{refused}");
    }

    #[tokio::test]
    async fn a_header_that_is_cut_off_is_refused() {
        let line = b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n";
        let binary = binary(0x21, 0x11, &[0; TWO_V4]);
        for header in [&line[..], &binary[..]] {
            for length in 0..header.len() {
                let (mut client, mut server) = duplex(256);
                client.write_all(&header[..length]).await.unwrap();
                drop(client);
                let refused = read(&mut server).await.unwrap_err();
                let is_cut = matches!(refused, ProxyError::Incomplete(_));
                assert!(is_cut, "{length}: {refused}");
            }
        }
    }

    fn client(address: &str) -> Source {
        Source::Client(address.parse().unwrap())
    }

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    /// Checks that a header is accepted, and that nothing after it is read.
    async fn accepted(header: &[u8], expected: Source) {
        assert_eq!(sent(header).await.unwrap(), expected, "{header:?}");
    }

    async fn sent(header: &[u8]) -> Result<Source, ProxyError> {
        let (mut client, mut server) = duplex(2 * REST_BYTES_MAX);
        client.write_all(header).await.unwrap();
        client.write_all(AFTER).await.unwrap();
        drop(client);
        let found = read(&mut server).await?;
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, AFTER);
        Ok(found)
    }
}
