//! Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`.
//!
//! The signature covers the id, the time and the body. [`hapax::signature`] verifies it.

use hapax::signature::{
    ID_HEADER, Received, SIGNATURE_HEADER, TIMESTAMP_HEADER, Verifier, VerifyError, verify,
};
use serde::Deserialize;

use super::{Presented, Refusal, TimeBound, Verified, identity};

/// Requests that are signed as Standard Webhooks.
#[derive(Debug)]
pub struct StandardWebhooks {
    keys: Vec<Verifier>,
}

/// The member of a body that the specification recommends.
#[derive(Deserialize)]
struct Body {
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl StandardWebhooks {
    /// Creates the scheme with keys `whsec_...` or `whpk_...`.
    pub const fn new(keys: Vec<Verifier>) -> Self {
        Self { keys }
    }

    pub(super) fn verify(
        &self,
        presented: &Presented<'_>,
        time: TimeBound,
    ) -> Result<Verified, Refusal> {
        let received = Received {
            id: presented.header(ID_HEADER)?,
            timestamp: presented.header(TIMESTAMP_HEADER)?,
            signature: presented.header(SIGNATURE_HEADER)?,
            body: presented.body,
        };
        verify(&received, &self.keys, time.now, time.tolerance).map_err(|error| refusal(&error))?;
        let body: Option<Body> = serde_json::from_slice(presented.body).ok();
        let kind = body.and_then(|body| body.kind);
        Ok(Verified::one(identity(received.id, ID_HEADER)?, kind))
    }
}

fn refusal(error: &VerifyError) -> Refusal {
    match error {
        VerifyError::Malformed { header } => Refusal::Malformed { part: header },
        VerifyError::Stale => Refusal::Stale,
        _ => Refusal::Signature,
    }
}

#[cfg(test)]
mod tests {
    use hapax::{
        Timestamp,
        signature::{Signer, TOLERANCE, sign},
    };
    use http::HeaderMap;

    use super::*;
    use crate::ingest::signature::presented::tests::{check_header, headers};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const OTHER: &str = "whsec_AAKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = br#"{"type":"a.b","data":{}}"#;
    const AT: i64 = 1_614_265_330;

    #[test]
    fn a_signed_request_is_one_event_with_its_id_and_type() {
        let event = Verified::one("msg_1".to_owned(), Some("a.b".to_owned()));
        assert_eq!(judge(&[OTHER, SECRET], &good(), BODY, 0), Ok(event));
    }

    #[test]
    fn every_header_must_occur_once() {
        for name in [ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER] {
            let good = good();
            check_header(name, &good, |it| judge(&[SECRET], it, BODY, 0));
        }
    }

    #[test]
    fn what_is_changed_or_old_is_refused() {
        let good = good();
        assert_eq!(judge(&[OTHER], &good, BODY, 0), Err(Refusal::Signature));
        assert_eq!(judge(&[SECRET], &good, b"", 0), Err(Refusal::Signature));
        assert_eq!(judge(&[SECRET], &good, BODY, 301), Err(Refusal::Stale));
        assert_eq!(judge(&[SECRET], &good, BODY, -301), Err(Refusal::Stale));
    }

    fn good() -> HeaderMap {
        let signer: Signer = SECRET.parse().unwrap();
        let signature = sign("msg_1", AT, BODY, [&signer]);
        headers(&[
            (ID_HEADER, "msg_1"),
            (TIMESTAMP_HEADER, "1614265330"),
            (SIGNATURE_HEADER, &signature),
        ])
    }

    fn judge(
        keys: &[&str],
        headers: &HeaderMap,
        body: &[u8],
        passed: i64,
    ) -> Result<Verified, Refusal> {
        let keys = keys.iter().map(|key| key.parse().unwrap()).collect();
        let now = Timestamp::from_millis((AT + passed) * 1000);
        let time = TimeBound {
            now,
            tolerance: TOLERANCE,
        };
        let query = None;
        let presented = Presented {
            headers,
            query,
            body,
        };
        StandardWebhooks::new(keys).verify(&presented, time)
    }
}
