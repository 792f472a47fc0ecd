//! Errors of AWS: the code is read from XML (S3, SNS) or JSON (SQS).

use http::StatusCode;
use serde::Deserialize;

use crate::api::{Failure, Response, type_of_status};

/// Maximum length of an error code in bytes. Known codes have at most 60.
const CODE_BYTES_MAX: usize = 100;

/// The code of an error, if the body contains one.
pub(crate) fn code(response: &Response) -> Option<String> {
    let code = if response.head.starts_with(b"{") {
        json_code(&response.head)?
    } else {
        xml_code(&String::from_utf8_lossy(&response.head))?.to_owned()
    };
    // Some services write `com.amazonaws.sqs#Code` or `AWS.SimpleQueueService.Code`.
    let code = code.rsplit('#').next().unwrap_or_default();
    let code = code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_code = (1..=CODE_BYTES_MAX).contains(&code.len()) && code.bytes().all(plain);
    is_code.then(|| code.to_owned())
}

/// The failure that a response reports.
pub(crate) fn failure(response: &Response) -> Failure {
    let code = code(response);
    let error_type = error_type(response.status, code.as_deref().unwrap_or_default());
    refused(response, error_type, code.as_deref())
}

/// The failure of this type. A refused signature does not say whether the key or the clock is wrong,
/// so the text does.
pub(crate) fn refused(
    response: &Response,
    error_type: &'static str,
    code: Option<&str>,
) -> Failure {
    match code {
        Some(code @ ("SignatureDoesNotMatch" | "InvalidSignatureException")) => {
            response.refused_signature(error_type, code, "secret_access_key and the region")
        }
        _ => response.refused(error_type, code),
    }
}

/// The kind of failure, by the code if it is a known one, otherwise by the status.
pub(crate) fn error_type(status: StatusCode, code: &str) -> &'static str {
    match code {
        "SlowDown"
        | "RequestThrottled"
        | "KMSThrottling"
        | "Throttled"
        | "Throttling"
        | "ThrottlingException"
        | "TooManyRequestsException" => return "throttled",
        "NoSuchBucket" => return "no_bucket",
        "QueueDoesNotExist" | "NonExistentQueue" => return "no_queue",
        "EntityTooLarge" | "BatchRequestTooLong" | "MessageTooLong" => return "too_large",
        "InvalidMessageContents" => return "content",
        "InvalidParameterValue" | "InvalidAttributeName" | "InvalidAttributeValue" => {
            return "invalid";
        }
        "RequestTimeTooSkewed" => return "clock",
        "AccessDenied"
        | "AccessDeniedException"
        | "AuthorizationError"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSecurity"
        | "InvalidSignatureException"
        | "InvalidToken"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => return "login",
        _ => {}
    }
    type_of_status(status)
}

/// The content of the first element `Code`.
fn xml_code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    Some(rest.split_once("</Code>")?.0.trim())
}

fn json_code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(rename = "__type")]
        kind: String,
    }
    let body: Body = serde_json::from_slice(body).ok()?;
    Some(body.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_an_error_is_read_from_xml_and_from_json() {
        check(
            "<?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code><Message>x</Message></Error>",
            Some("NoSuchBucket"),
        );
        check(
            "{\"__type\":\"com.amazonaws.sqs#QueueDoesNotExist\",\"message\":\"x\"}",
            Some("QueueDoesNotExist"),
        );
        check(
            "<Error><Code>AWS.SimpleQueueService.NonExistentQueue</Code></Error>",
            Some("NonExistentQueue"),
        );
        for other in [
            "",
            "<Error><Code>",
            "<Code></Code>",
            "<Code>a <b> c</Code>",
            "<html>503</html>",
            "{\"__type\": 7}",
            "{\"message\": \"x\"}",
        ] {
            check(other, None);
        }
        check(&format!("<Code>{}</Code>", "x".repeat(101)), None);
    }

    #[test]
    fn the_type_of_a_failure_is_that_of_its_code_before_that_of_its_status() {
        let of = |status: u16, code| error_type(StatusCode::from_u16(status).unwrap(), code);
        assert_eq!(of(503, "SlowDown"), "throttled");
        assert_eq!(of(404, "NoSuchBucket"), "no_bucket");
        assert_eq!(of(400, "QueueDoesNotExist"), "no_queue");
        assert_eq!(of(400, "ExpiredToken"), "login");
        assert_eq!(of(400, "AuthorizationError"), "login");
        assert_eq!(of(400, "Throttled"), "throttled");
        assert_eq!(of(400, "KMSThrottling"), "throttled");
        assert_eq!(of(400, "Other"), "status_4xx");
        assert_eq!(of(307, ""), "redirect");
        assert_eq!(of(500, ""), "status_5xx");
        assert_eq!(of(101, ""), "status_other");
    }

    #[track_caller]
    fn check(body: &str, expected: Option<&str>) {
        let response = Response::sample(400, body);
        assert_eq!(code(&response).as_deref(), expected, "{body}");
    }
}
