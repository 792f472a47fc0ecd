//! A request that is rendered once; only the key changes from one send to the next.
//!
//! Keys look like UUIDs of version 4 and form a sequence: the n-th key of a seed is always the
//! same, so that a second run with the same numbers uses the same keys.

use std::{fmt::Write as _, ops::Range};

/// Length of a key in characters.
const KEY_LENGTH: usize = 36;

/// A request that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    key: Option<Range<usize>>,
    seed: u64,
}

impl Request {
    /// A GET request for `path`.
    pub(crate) fn get(path: &str, token: Option<&str>) -> Self {
        let mut text = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n");
        if let Some(token) = token {
            let _ = write!(text, "authorization: Bearer {token}\r\n");
        }
        text.push_str("\r\n");
        Self {
            bytes: text.into_bytes(),
            key: None,
            seed: 0,
        }
    }

    /// A POST request with a JSON body to `path`, under a key of the sequence `seed`.
    pub(crate) fn post(path: &str, token: &str, body: &str, seed: u64) -> Self {
        let mut text = format!(
            "POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\nidempotency-key: ",
            body.len()
        );
        let at = text.len();
        let _ = write!(text, "{:KEY_LENGTH$}\r\n\r\n{body}", "");
        let mut request = Self {
            bytes: text.into_bytes(),
            key: Some(at..at + KEY_LENGTH),
            seed,
        };
        request.take_key(0);
        request
    }

    /// Puts the key of this number into the request, if it has one.
    pub(crate) fn take_key(&mut self, number: u64) {
        if let Some(place) = self.key.clone() {
            write_key(&mut self.bytes[place], self.seed, number);
        }
    }

    /// The bytes to send.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The current key.
    #[cfg(test)]
    pub(crate) fn key(&self) -> Option<&str> {
        self.key
            .clone()
            .and_then(|place| str::from_utf8(&self.bytes[place]).ok())
    }
}

fn write_key(place: &mut [u8], seed: u64, number: u64) {
    let high = scatter(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let low = scatter(high ^ number);
    let digits = (u128::from(high) << 64) | u128::from(low);
    let mut shift = 128;
    for (index, byte) in place.iter_mut().enumerate() {
        *byte = match index {
            8 | 13 | 18 | 23 => b'-',
            _ => {
                shift -= 4;
                let digit = usize::try_from((digits >> shift) & 0xf).unwrap_or(0);
                b"0123456789abcdef"[digit]
            }
        };
    }
    place[14] = b'4';
    place[19] = b'a';
}

/// The finalizer of splitmix64: different numbers stay different, and close numbers become distant.
pub(super) fn scatter(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_post_is_whole_and_carries_its_key_in_place() {
        let mut request = Request::post("/orders", "bench", "{}", 7);
        request.take_key(1);
        let key = request.key().expect("a POST has a key").to_owned();
        let text = String::from_utf8(request.bytes().to_vec()).unwrap();
        assert_eq!(
            text,
            format!(
                "POST /orders HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer bench\r\n\
                 content-type: application/json\r\ncontent-length: 2\r\n\
                 idempotency-key: {key}\r\n\r\n{{}}"
            )
        );
    }

    #[test]
    fn a_key_is_a_uuid_that_its_number_and_seed_alone_decide() {
        let mut seen = HashSet::new();
        for seed in 0..4 {
            let mut request = Request::post("/", "t", "", seed);
            for number in 0..1_000 {
                request.take_key(number);
                assert!(seen.insert(request.key().unwrap().to_owned()));
            }
            request.take_key(0);
            assert!(!seen.insert(request.key().unwrap().to_owned()));
        }
        assert!(seen.iter().all(|key| key.len() == 36 && key.is_ascii()));
    }
}
