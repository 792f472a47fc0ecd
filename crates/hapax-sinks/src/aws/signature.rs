//! Signature Version 4 of AWS, for requests with a signed body and without a query.
//!
//! The signature covers the method, the path, the given headers and the hash of the body. The key is
//! derived from the secret for one day, region and service. The secret is never printed.

use std::{collections::BTreeMap, fmt};

use hapax::{Timestamp, key::hex};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::format::civil;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The signer, with its region and service.
pub(super) struct Signer {
    pub(super) access_key_id: String,
    pub(super) secret: SecretString,
    pub(super) region: String,
    pub(super) service: &'static str,
}

/// The signed parts of a request.
pub(super) struct Signable<'a> {
    pub(super) method: &'a str,
    /// The path, percent-encoded as it is sent.
    pub(super) path: &'a str,
    /// The headers by their names in lower case.
    pub(super) headers: BTreeMap<&'a str, &'a str>,
    /// The [`hash`] of the body.
    pub(super) body_hash: &'a str,
}

impl Signer {
    /// The value of the header `authorization`. `time` is that of the header `x-amz-date`.
    pub(super) fn authorization(&self, request: &Signable<'_>, time: &str) -> String {
        let date = time.split('T').next().unwrap_or_default();
        let (region, service) = (&self.region, self.service);
        let scope = format!("{date}/{region}/{service}/aws4_request");
        let names: Vec<&str> = request.headers.keys().copied().collect();
        let names = names.join(";");
        let hashed = hash(request.canonical(&names).as_bytes());
        let text = format!("{ALGORITHM}\n{time}\n{scope}\n{hashed}");
        let signature = hex(&tag(&self.key(date), &text));
        let id = &self.access_key_id;
        format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
    }

    fn key(&self, date: &str) -> Vec<u8> {
        let secret = format!("AWS4{}", self.secret.expose_secret());
        let parts = [date, self.region.as_str(), self.service, "aws4_request"];
        let parts = parts.into_iter();
        parts.fold(secret.into_bytes(), |key, part| tag(&key, part).to_vec())
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("access_key_id", &self.access_key_id)
            .field("region", &self.region)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl Signable<'_> {
    /// The canonical request: a line for each part, and an empty one for the query.
    fn canonical(&self, names: &str) -> String {
        let mut text = format!("{}\n{}\n\n", self.method, self.path);
        for (name, value) in &self.headers {
            for piece in [name, ":", value.trim(), "\n"] {
                text.push_str(piece);
            }
        }
        for piece in ["\n", names, "\n", self.body_hash] {
            text.push_str(piece);
        }
        text
    }
}

/// SHA-256 in lower-case hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    let hash: [u8; 32] = Sha256::digest(bytes).into();
    hex(&hash)
}

/// The time as in the header `x-amz-date`: `20130524T000000Z`.
pub(super) fn basic_time(now: Timestamp) -> String {
    civil(now).strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn tag(key: &[u8], text: &str) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    /// "GET Object" in "Signature Calculations for the Authorization Header" of the S3 documentation.
    #[test]
    fn the_published_example_of_a_get_has_its_signature() {
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", "20130524T000000Z"),
        ];
        assert_eq!(
            signed(&s3(), "GET", "/test.txt", &headers, EMPTY),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    /// "PUT Object" on the same page.
    #[test]
    fn the_published_example_of_a_put_has_its_signature() {
        let body_hash = hash(b"Welcome to Amazon S3.");
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("host", "examplebucket.s3.amazonaws.com"),
            ("x-amz-content-sha256", &body_hash),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let signed = signed(&s3(), "PUT", "/test%24file.text", &headers, &body_hash);
        let expected = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        assert!(signed.ends_with(expected), "{signed}");
    }

    /// `get-vanilla` and `post-vanilla` of the published test suite of Signature Version 4.
    #[test]
    fn the_vanilla_requests_of_the_test_suite_have_their_signatures() {
        let signer = Signer {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            region: "us-east-1".to_owned(),
            service: "service",
        };
        let headers = [
            ("host", "example.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
        ];
        for (method, signature) in [
            (
                "GET",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "POST",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
        ] {
            let header = signed(&signer, method, "/", &headers, EMPTY);
            assert!(header.ends_with(signature), "{header}");
        }
    }

    #[test]
    fn the_time_is_written_without_separators() {
        let now = Timestamp::from_millis(1_369_353_600_999);
        assert_eq!(basic_time(now), "20130524T000000Z");
    }

    #[test]
    fn debug_shows_no_secret() {
        let text = format!("{:?}", s3());
        assert!(!text.contains("wJalr"), "{text}");
    }

    fn s3() -> Signer {
        Signer {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            region: "us-east-1".to_owned(),
            service: "s3",
        }
    }

    fn signed(
        signer: &Signer,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body_hash: &str,
    ) -> String {
        let request = Signable {
            method,
            path,
            headers: headers.iter().copied().collect(),
            body_hash,
        };
        let time = request.headers["x-amz-date"];
        signer.authorization(&request, time)
    }
}
