//! Adyen: `additionalData.hmacSignature` of each notification of a standard webhook.
//!
//! A request has one or more notifications, each with its signature: HMAC-SHA256 in
//! base64, under a hexadecimal key, over eight of its fields, joined by colons. Adyen's libraries
//! do not escape colons in these fields. To keep the joined text unambiguous, only the merchant's
//! own reference may contain one. All other members of a notification are not signed.
//!
//! Repeated deliveries have the same event code, reference and success. The request is accepted
//! only if every notification in it is signed.

use ring::hmac;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Presented, ProviderEvent, Refusal, Verified, identity,
    keys::{HmacKeys, from_base64},
};

/// Maximum number of notifications in a request. Adyen sends at most six.
const ITEMS_MAX: usize = 64;
const BODY: Refusal = Refusal::Malformed { part: "body" };
const SIGNATURE: &str = "additionalData.hmacSignature";
const ID: &str = "pspReference";

/// Requests that Adyen has signed.
#[derive(Debug)]
pub struct Adyen {
    keys: HmacKeys,
}

#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(borrow)]
    live: Option<&'a RawValue>,
    #[serde(borrow, rename = "notificationItems")]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "NotificationRequestItem")]
    notification: Notification,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notification {
    psp_reference: String,
    original_reference: Option<String>,
    merchant_account_code: String,
    merchant_reference: Option<String>,
    amount: Amount,
    event_code: String,
    success: Success,
    #[serde(default)]
    additional_data: AdditionalData,
}

#[derive(Deserialize)]
struct Amount {
    value: i64,
    currency: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Success {
    Text(String),
    Bool(bool),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdditionalData {
    hmac_signature: Option<String>,
}

impl Adyen {
    /// Creates the scheme with the HMAC keys of the webhook, decoded from hexadecimal.
    pub fn new<'s>(keys: impl IntoIterator<Item = &'s [u8]>) -> Self {
        let keys = HmacKeys::new(hmac::HMAC_SHA256, keys);
        Self { keys }
    }

    /// Decodes an HMAC key as Adyen shows it. Returns `None` if it is not hexadecimal.
    pub fn decode_key(text: &str) -> Option<Vec<u8>> {
        let bytes = text.len() / 2;
        super::keys::from_hex(text, bytes).filter(|key| !key.is_empty())
    }

    pub(super) fn verify(&self, presented: &Presented<'_>) -> Result<Verified, Refusal> {
        let batch: Batch<'_> = serde_json::from_slice(presented.body).map_err(|_| BODY)?;
        if batch.items.is_empty() || batch.items.len() > ITEMS_MAX {
            return Err(BODY);
        }
        let is_single = batch.items.len() == 1;
        let mut events = Vec::with_capacity(batch.items.len());
        for item in batch.items {
            let parsed: Item = serde_json::from_str(item.get()).map_err(|_| BODY)?;
            let mut event = self.event(&parsed.notification)?;
            event.part = (!is_single).then(|| single(batch.live, item));
            events.push(event);
        }
        Ok(Verified::Events(events))
    }

    fn event(&self, it: &Notification) -> Result<ProviderEvent, Refusal> {
        let success: &str = match &it.success {
            Success::Text(text) => text,
            Success::Bool(true) => "true",
            Success::Bool(false) => "false",
        };
        let value = it.amount.value.to_string();
        let fields = [
            it.psp_reference.as_str(),
            it.original_reference.as_deref().unwrap_or_default(),
            &it.merchant_account_code,
            it.merchant_reference.as_deref().unwrap_or_default(),
            &value,
            &it.amount.currency,
            &it.event_code,
            success,
        ];
        // The merchant's reference is between fields without colons.
        let mut others = fields.iter().enumerate().filter(|(place, _)| *place != 3);
        if others.any(|(_, field)| field.contains(':')) {
            return Err(BODY);
        }
        let text = it.additional_data.hmac_signature.as_deref();
        let text = text.ok_or(Refusal::Missing { part: SIGNATURE })?;
        let malformed = Refusal::Malformed { part: SIGNATURE };
        let tag = from_base64(text, 32).ok_or(malformed)?;
        if !self.keys.fit(&[fields.join(":").as_bytes()], &[&tag]) {
            return Err(Refusal::Signature);
        }
        if it.psp_reference.is_empty() {
            return Err(Refusal::NoId { part: ID });
        }
        let id = format!("{}:{}:{success}", it.event_code, it.psp_reference);
        Ok(ProviderEvent {
            id: identity(&id, ID)?,
            kind: Some(it.event_code.clone()),
            part: None,
        })
    }
}

/// A request with this notification only, whose text is unchanged.
fn single(live: Option<&RawValue>, item: &RawValue) -> String {
    let live = live.map_or("null", RawValue::get);
    let item = item.get();
    format!("{{\"live\":{live},\"notificationItems\":[{item}]}}")
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use http::HeaderMap;
    use serde_json::{Value, json};

    use super::*;

    // The example of Adyen's documentation.
    const KEY: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
    const TAG: &str = "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=";

    #[test]
    fn the_documented_notification_is_verified() {
        let verified = judge(&batch([notification()]));
        assert_eq!(
            verified,
            Ok(Verified::one(
                "AUTHORISATION:7914073381342284:true".to_owned(),
                Some("AUTHORISATION".to_owned())
            ))
        );
        let mut typed = notification();
        typed["success"] = json!(true);
        assert_eq!(judge(&batch([typed])), verified);
    }

    #[test]
    fn every_notification_of_a_request_is_an_event_of_its_own() {
        let mut second = notification();
        second["pspReference"] = json!("second");
        second["merchantReference"] = json!("a:b\\c");
        second["originalReference"] = json!("first");
        sign(&mut second, "first:TestMerchant:a:b\\c");
        let request = batch([notification(), second.clone()]);
        let Ok(Verified::Events(events)) = judge(&request) else {
            panic!("{:?}", judge(&request));
        };
        assert_eq!(events[1].id, "AUTHORISATION:second:true");
        let part: Value = serde_json::from_str(events[1].part.as_ref().unwrap()).unwrap();
        assert_eq!(part["live"], "false");
        assert_eq!(
            part["notificationItems"],
            json!([{ "NotificationRequestItem": second }])
        );
        // What was taken apart can be verified again.
        let alone = judge(events[0].part.as_ref().unwrap());
        assert!(alone.is_ok());
    }

    #[test]
    fn one_wrong_notification_refuses_the_whole_request() {
        let mut wrong = notification();
        wrong["amount"]["value"] = json!(1131);
        let refused = judge(&batch([notification(), wrong]));
        assert_eq!(refused, Err(Refusal::Signature));
    }

    #[test]
    fn every_signed_field_is_noticed() {
        for (pointer, value) in [
            ("/pspReference", json!("7914073381342285")),
            ("/originalReference", json!("x")),
            ("/merchantAccountCode", json!("Other")),
            ("/merchantReference", json!("Other")),
            ("/amount/value", json!(-1130)),
            ("/amount/currency", json!("USD")),
            ("/eventCode", json!("CAPTURE")),
            ("/success", json!("false")),
        ] {
            let mut changed = notification();
            if pointer == "/originalReference" {
                changed["originalReference"] = value;
            } else {
                *changed.pointer_mut(pointer).unwrap() = value;
            }
            let refused = judge(&batch([changed]));
            assert_eq!(refused, Err(Refusal::Signature), "{pointer}");
        }
        let other = Adyen::new([&[1_u8; 32][..]]);
        let body = batch([notification()]);
        assert_eq!(judge_by(&other, &body), Err(Refusal::Signature));
    }

    #[test]
    fn fields_that_could_be_read_in_two_ways_are_refused() {
        let mut shifted = notification();
        shifted["pspReference"] = json!("7914073381342284:");
        shifted.as_object_mut().unwrap().remove("originalReference");
        shifted["merchantAccountCode"] = json!("TestMerchant");
        assert_eq!(judge(&batch([shifted])), Err(BODY));
    }

    #[test]
    fn a_malformed_request_is_refused() {
        let mut unsigned = notification();
        unsigned.as_object_mut().unwrap().remove("additionalData");
        let missing = Refusal::Missing { part: SIGNATURE };
        assert_eq!(judge(&batch([unsigned])), Err(missing));
        for tag in ["", "AAAA", &TAG[1..], &TAG.replace('/', "-")] {
            let mut wrong = notification();
            wrong["additionalData"]["hmacSignature"] = json!(tag);
            let malformed = Refusal::Malformed { part: SIGNATURE };
            assert_eq!(judge(&batch([wrong])), Err(malformed), "{tag}");
        }
        let many = batch(vec![notification(); ITEMS_MAX + 1]);
        for body in [
            "",
            "nonsense",
            "[]",
            "{}",
            r#"{"notificationItems":[]}"#,
            r#"{"notificationItems":[{}]}"#,
            r#"{"notificationItems":[],"notificationItems":[]}"#,
            &"[".repeat(10_000),
            &many,
        ] {
            assert_eq!(judge(body), Err(BODY), "{}", &body[..body.len().min(60)]);
        }
    }

    #[test]
    fn a_key_is_hexadecimal() {
        assert_eq!(Adyen::decode_key(KEY).map(|key| key.len()), Some(32));
        for text in ["", "4", "44782", "xx"] {
            assert_eq!(Adyen::decode_key(text), None, "{text}");
        }
    }

    fn notification() -> Value {
        json!({
            "additionalData": { "hmacSignature": TAG, "planted": "unsigned" },
            "amount": { "currency": "EUR", "value": 1130 },
            "eventCode": "AUTHORISATION",
            "eventDate": "2026-11-28T10:00:00+01:00",
            "merchantAccountCode": "TestMerchant",
            "merchantReference": "TestPayment-1407325143704",
            "pspReference": "7914073381342284",
            "success": "true",
        })
    }

    /// Signs the second notification, with the text of its second to fourth field.
    fn sign(notification: &mut Value, middle: &str) {
        let key = Adyen::decode_key(KEY).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let text = format!("second:{middle}:1130:EUR:AUTHORISATION:true");
        let tag = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
        notification["additionalData"]["hmacSignature"] = json!(tag);
    }

    fn batch(notifications: impl IntoIterator<Item = Value>) -> String {
        let notifications = notifications.into_iter();
        let items = notifications.map(|it| json!({ "NotificationRequestItem": it }));
        let items: Vec<_> = items.collect();
        json!({ "live": "false", "notificationItems": items }).to_string()
    }

    fn judge(body: &str) -> Result<Verified, Refusal> {
        let key = Adyen::decode_key(KEY).unwrap();
        judge_by(&Adyen::new([&[0_u8; 32][..], &key]), body)
    }

    fn judge_by(adyen: &Adyen, body: &str) -> Result<Verified, Refusal> {
        let headers = HeaderMap::new();
        let presented = Presented {
            headers: &headers,
            query: None,
            body: body.as_bytes(),
        };
        adyen.verify(&presented)
    }
}
