//! `PayPal`: `PAYPAL-TRANSMISSION-SIG`, verified by a certificate.
//!
//! The signature is RSA with SHA-256, in base64, over `ID|TIME|WEBHOOK|CRC`: two headers, the id of
//! the webhook from the settings, and the CRC-32 of the body. The certificates are files that the
//! operator has downloaded; the header `PAYPAL-CERT-URL` is ignored, so nothing is fetched from an
//! address that a request names. Whether a certificate has expired is not checked: it is trusted
//! because it is configured.
//!
//! A checksum does not have the properties of a hash: an attacker who has recorded a request can
//! find another body with the same checksum, and send it within the tolerance. TLS has to keep
//! requests from being read.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::Timestamp;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use rustls::{pki_types::CertificateDer, server::ParsedCertificate};
use serde::Deserialize;

use super::{Presented, Refusal, TimeBound, Verified, crc32::crc32, identity};

const ID: &str = "paypal-transmission-id";
const TIME: &str = "paypal-transmission-time";
const SIGNATURE: &str = "paypal-transmission-sig";
const ALGORITHM: &str = "paypal-auth-algo";
/// `rsaEncryption`, 1.2.840.113549.1.1.1.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// Maximum length of a signature in base64: that of a key with 8192 bits.
const SIGNATURE_TEXT_MAX: usize = 1368;

/// Requests that `PayPal` has signed.
pub struct PayPal {
    webhook_id: String,
    /// The public keys of the certificates, as `RSAPublicKey`.
    keys: Vec<Vec<u8>>,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    id: String,
    event_type: Option<String>,
}

impl PayPal {
    /// Creates the scheme for a webhook with this id, signed by one of the certificates.
    ///
    /// # Errors
    /// Fails if a certificate cannot be read or has no RSA key. The text continues a sentence that
    /// begins with the certificate.
    pub fn new(
        webhook_id: impl Into<String>,
        certificates: &[CertificateDer<'_>],
    ) -> Result<Self, &'static str> {
        let keys = certificates.iter().map(key);
        Ok(Self {
            webhook_id: webhook_id.into(),
            keys: keys.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn verify(
        &self,
        presented: &Presented<'_>,
        time: TimeBound,
    ) -> Result<Verified, Refusal> {
        let (id, sent_at) = (presented.header(ID)?, presented.header(TIME)?);
        let signature = presented.header(SIGNATURE)?;
        let algorithm = presented.optional_header(ALGORITHM)?;
        if algorithm.is_some_and(|it| !it.eq_ignore_ascii_case("SHA256withRSA")) {
            return Err(Refusal::Malformed { part: ALGORITHM });
        }
        for (part, text) in [(ID, id), (TIME, sent_at)] {
            if text.contains('|') {
                return Err(Refusal::Malformed { part });
            }
        }
        let malformed = Refusal::Malformed { part: SIGNATURE };
        let signature = decoded(signature).ok_or(malformed)?;
        let sent: Result<Timestamp, _> = sent_at.parse();
        time.check(
            sent.map_err(|_| Refusal::Malformed { part: TIME })?
                .as_secs(),
        )?;
        let (webhook, sum) = (&self.webhook_id, crc32(presented.body));
        let signed = format!("{id}|{sent_at}|{webhook}|{sum}");
        let fits = |key: &Vec<u8>| {
            let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key);
            key.verify(signed.as_bytes(), &signature).is_ok()
        };
        if !self.keys.iter().any(fits) {
            return Err(Refusal::Signature);
        }
        let body: Result<Body, _> = serde_json::from_slice(presented.body);
        let body = body.map_err(|_| Refusal::Malformed { part: "body" })?;
        Ok(Verified::one(identity(&body.id, "id")?, body.event_type))
    }
}

impl fmt::Debug for PayPal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayPal").finish_non_exhaustive()
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || text.len() > SIGNATURE_TEXT_MAX {
        return None;
    }
    STANDARD.decode(text).ok()
}

/// The `RSAPublicKey` of a certificate.
fn key(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, &'static str> {
    let parsed = ParsedCertificate::try_from(certificate);
    let parsed = parsed.map_err(|_| "is not a valid X.509 certificate")?;
    let key = rsa_key(&parsed.subject_public_key_info());
    key.ok_or("has no RSA key")
}

/// The key in a `SubjectPublicKeyInfo`: a sequence of the algorithm and a bit string.
fn rsa_key(info: &[u8]) -> Option<Vec<u8>> {
    let (info, _) = element(info, 0x30)?;
    let (algorithm, info) = element(info, 0x30)?;
    let (name, _) = element(algorithm, 0x06)?;
    let (bits, _) = element(info, 0x03)?;
    // The first byte counts the unused bits of the last one.
    let key = bits.strip_prefix(&[0])?;
    (name == RSA).then(|| key.to_vec())
}

/// The content of the element of this tag with which the DER begins, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = der.strip_prefix(&[tag])?;
    let (&first, rest) = rest.split_first()?;
    if first < 0x80 {
        return rest.split_at_checked(usize::from(first));
    }
    let digits = usize::from(first & 0x7f);
    let (digits, rest) = rest.split_at_checked(digits).filter(|_| digits <= 4)?;
    let length = digits
        .iter()
        .fold(0, |sum, digit| (sum << 8) | usize::from(*digit));
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderMap;
    use rustls::pki_types::pem::PemObject as _;
    use serde_json::Value;

    use super::*;
    use crate::ingest::signature::presented::tests::{check_header, headers};

    /// Signed by OpenSSL (`tests/vectors/make.mjs`).
    const VECTOR: &str = include_str!("../../../tests/vectors/paypal.json");

    #[test]
    fn a_signed_request_is_one_event_with_its_id_and_type() {
        let vector = Vector::read();
        let event = Verified::one(
            "WH-1".to_owned(),
            Some("PAYMENT.CAPTURE.COMPLETED".to_owned()),
        );
        assert_eq!(vector.judge(&vector.headers, 0), Ok(event.clone()));
        // Certificates are rotated too.
        let both = ["other", "certificate"];
        assert_eq!(vector.judge_by(&both, &vector.headers, 300), Ok(event));
    }

    #[test]
    fn every_header_must_occur_once() {
        let vector = Vector::read();
        for name in [ID, TIME, SIGNATURE] {
            check_header(name, &vector.headers, |it| vector.judge(it, 0));
        }
    }

    #[test]
    fn what_is_changed_or_old_is_refused() {
        let mut vector = Vector::read();
        let headers = vector.headers.clone();
        let signature = Err(Refusal::Signature);
        assert_eq!(vector.judge_by(&["other"], &headers, 0), signature);
        assert_eq!(vector.judge_by(&[], &headers, 0), signature);
        assert_eq!(vector.judge(&headers, 301), Err(Refusal::Stale));
        assert_eq!(vector.judge(&headers, -301), Err(Refusal::Stale));
        let mut other = headers.clone();
        other.insert(ID, "other".parse().unwrap());
        assert_eq!(vector.judge(&other, 0), signature);
        vector.webhook_id = "other".to_owned();
        assert_eq!(vector.judge(&headers, 0), signature);
        let mut vector = Vector::read();
        vector.body.push(' ');
        assert_eq!(vector.judge(&headers, 0), signature);
        vector.body.clear();
        assert_eq!(vector.judge(&headers, 0), signature);
    }

    #[test]
    fn malformed_headers_are_refused() {
        let vector = Vector::read();
        for (part, value) in [
            (SIGNATURE, ""),
            (SIGNATURE, "%"),
            (SIGNATURE, "AAAA="),
            (TIME, "yesterday"),
            (TIME, "1700000000"),
            (ID, "a|b"),
            (ALGORITHM, "MD5withRSA"),
        ] {
            let mut headers = vector.headers.clone();
            headers.insert(part, value.parse().unwrap());
            let malformed = Err(Refusal::Malformed { part });
            assert_eq!(vector.judge(&headers, 0), malformed, "{part}: {value}");
        }
        let mut short = vector.headers.clone();
        short.insert(SIGNATURE, "AAAA".parse().unwrap());
        assert_eq!(vector.judge(&short, 0), Err(Refusal::Signature));
    }

    #[test]
    fn what_is_no_certificate_with_an_rsa_key_is_refused() {
        let vector = Vector::read();
        let nonsense = CertificateDer::from(&b"nonsense"[..]);
        assert!(PayPal::new("id", &[nonsense]).is_err());
        let ecdsa = vector.certificate("ecdsa");
        assert_eq!(PayPal::new("id", &[ecdsa]).err(), Some("has no RSA key"));
    }

    #[test]
    fn hostile_der_is_never_a_panic() {
        for der in [
            &[][..],
            &[0x30],
            &[0x30, 0x85, 1, 1, 1, 1, 1],
            &[0x30, 0x84, 0xff],
        ] {
            assert_eq!(rsa_key(der), None);
        }
        assert_eq!(
            element(&[0x30, 0x81, 1, 7, 8], 0x30),
            Some((&[7][..], &[8][..]))
        );
        assert_eq!(element(&[0x30, 2, 7], 0x30), None);
    }

    struct Vector {
        json: Value,
        headers: HeaderMap,
        webhook_id: String,
        body: String,
    }

    impl Vector {
        fn read() -> Self {
            let json: Value = serde_json::from_str(VECTOR).unwrap();
            let text = |name: &str| json[name].as_str().unwrap();
            let headers = headers(&[
                (ID, text("id")),
                (TIME, text("time")),
                (SIGNATURE, text("signature")),
                (ALGORITHM, "SHA256withRSA"),
                ("paypal-cert-url", "https://attacker.example/cert.pem"),
            ]);
            let (webhook_id, body) = (text("webhook_id").to_owned(), text("body").to_owned());
            Self {
                json,
                headers,
                webhook_id,
                body,
            }
        }

        fn certificate(&self, name: &str) -> CertificateDer<'static> {
            let pem = self.json[name].as_str().unwrap();
            CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
        }

        fn judge(&self, headers: &HeaderMap, passed: i64) -> Result<Verified, Refusal> {
            self.judge_by(&["certificate"], headers, passed)
        }

        fn judge_by(
            &self,
            certificates: &[&str],
            headers: &HeaderMap,
            passed: i64,
        ) -> Result<Verified, Refusal> {
            let certificates = certificates.iter().map(|name| self.certificate(name));
            let certificates: Vec<_> = certificates.collect();
            let paypal = PayPal::new(self.webhook_id.as_str(), &certificates).unwrap();
            let sent: Timestamp = self.json["time"].as_str().unwrap().parse().unwrap();
            let now = Timestamp::from_millis(sent.as_millis() + passed * 1000);
            let presented = Presented {
                headers,
                query: None,
                body: self.body.as_bytes(),
            };
            let tolerance = Duration::from_mins(5);
            paypal.verify(&presented, TimeBound { now, tolerance })
        }
    }
}
