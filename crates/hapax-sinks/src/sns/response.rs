//! Responses of SNS, which are XML.
//!
//! Only the elements that matter are read. A response that lacks them, or that was cut off, says
//! nothing about any message. The text of an error tells what an invalid parameter concerns; it is
//! not repeated, except in the stored response.

use http::StatusCode;

use crate::{
    api::{Failure, Response},
    aws::{
        code, error_type as usual_type,
        messages::{Entry, Refusal},
        refused,
    },
};

/// The outcome of the message with this index, in the response to `Publish`.
pub(super) fn published(response: &Response, index: usize) -> Option<Vec<Entry>> {
    let text = String::from_utf8_lossy(&response.head);
    let result = element(&text, "PublishResult")?;
    let is_stored = !element(result, "MessageId")?.is_empty();
    is_stored.then(|| {
        vec![Entry {
            index,
            refusal: None,
        }]
    })
}

/// The outcomes in the response to `PublishBatch`.
pub(super) fn entries(response: &Response) -> Option<Vec<Entry>> {
    let text = String::from_utf8_lossy(&response.head);
    let result = element(&text, "PublishBatchResult")?;
    // An element without members is `<Failed/>`.
    let members = |name| members(element(result, name).unwrap_or_default());
    let stored = members("Successful").filter_map(|member| {
        Some(Entry {
            index: index(member)?,
            refusal: None,
        })
    });
    let failed = members("Failed").filter_map(|member| {
        Some(Entry {
            index: index(member)?,
            refusal: Some(refusal(member)),
        })
    });
    Some(stored.chain(failed).collect())
}

/// The failure that a response without success reports.
pub(super) fn failure(response: &Response) -> Failure {
    let code = code(response);
    let text = String::from_utf8_lossy(&response.head);
    let text = element(&text, "Message").unwrap_or_default();
    let error_type = error_type(response.status, code.as_deref().unwrap_or_default(), text);
    refused(response, error_type, code.as_deref())
}

fn refusal(member: &str) -> Refusal {
    let is_of_sender = element(member, "SenderFault") == Some("true");
    let status = if is_of_sender {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let code = element(member, "Code").unwrap_or_default();
    let text = element(member, "Message").unwrap_or_default();
    Refusal {
        is_of_sender,
        code: code.to_owned(),
        error_type: error_type(status, code, text),
    }
}

/// The kind of failure. The code of an invalid parameter is the same for a message that is too long
/// and for a topic of another region, and only the text tells them apart.
fn error_type(status: StatusCode, code: &str, text: &str) -> &'static str {
    match code {
        "NotFound" | "ResourceNotFound" => "no_topic",
        "InvalidParameter"
        | "InvalidParameterValue"
        | "ParameterValueInvalid"
        | "ValidationError"
        | "ValidationException" => {
            if text.contains("TopicArn") {
                "no_topic"
            } else if text.contains("Message too long") {
                "too_large"
            } else {
                "invalid"
            }
        }
        _ => usual_type(status, code),
    }
}

fn index(member: &str) -> Option<usize> {
    element(member, "Id")?.parse().ok()
}

/// The contents of the elements `member`, which contain no elements of this name.
fn members(text: &str) -> impl Iterator<Item = &str> {
    let members = text.split("<member>").skip(1);
    members.filter_map(|rest| Some(rest.split_once("</member>")?.0))
}

/// The content of the first element of this name, without the spaces around it.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_of_a_batch_has_its_own_entry() {
        let entries = entries(&Response::sample(
            200,
            "<PublishBatchResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\">\
             <PublishBatchResult>\n<Successful>\n<member><MessageId>m</MessageId><Id>0</Id>\
             <SequenceNumber>1</SequenceNumber></member></Successful>\
             <Failed><member><Id>1</Id><Code>InvalidParameter</Code>\
             <Message>Invalid parameter: Message too long</Message>\
             <SenderFault>true</SenderFault></member>\
             <member><Id>2</Id><Code>InternalError</Code><SenderFault>false</SenderFault></member>\
             <member><Id>3</Id><Code>Other</Code><SenderFault>true</SenderFault></member>\
             <member><Id>x</Id><Code>Other</Code><SenderFault>true</SenderFault></member>\
             <member><Id>4</Id></member></Failed></PublishBatchResult></PublishBatchResponse>",
        ));
        let of: Vec<_> = entries.unwrap().into_iter().map(kind).collect();
        let expected = [
            (0, None),
            (1, Some((true, "too_large"))),
            (2, Some((false, "status_5xx"))),
            (3, Some((true, "status_4xx"))),
            (4, Some((false, "status_5xx"))),
        ];
        assert_eq!(of, expected);
    }

    #[test]
    fn a_single_message_is_stored_if_it_has_an_id() {
        let stored = "<PublishResponse><PublishResult><MessageId>m</MessageId></PublishResult>\
                      </PublishResponse>";
        let of = |text: &'static str| published(&Response::sample(200, text), 7);
        assert_eq!(
            of(stored).unwrap().into_iter().map(kind).next(),
            Some((7, None))
        );
        for other in [
            "",
            "<html>it works</html>",
            "<PublishResult></PublishResult>",
            "<PublishResult><MessageId></MessageId></PublishResult>",
            "<PublishResult><MessageId>m</MessageId>",
            "<MessageId>m</MessageId>",
        ] {
            assert!(of(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_response_that_was_cut_off_says_nothing_of_any_message() {
        for text in [
            "",
            "{}",
            "<PublishBatchResult>",
            "<PublishBatchResult><Successful><member><Id>0</Id></member></Successful>",
        ] {
            assert!(entries(&Response::sample(200, text)).is_none(), "{text}");
        }
        let empty = "<PublishBatchResult><Successful/><Failed/></PublishBatchResult>";
        assert!(entries(&Response::sample(200, empty)).unwrap().is_empty());
        let half = "<PublishBatchResult><Successful><member><Id>0</Id></Successful>\
                    </PublishBatchResult>";
        assert!(entries(&Response::sample(200, half)).unwrap().is_empty());
    }

    #[test]
    fn the_text_of_an_invalid_parameter_tells_what_it_concerns() {
        for (status, code, text, expected) in [
            (404, "NotFound", "Topic does not exist", "no_topic"),
            (
                400,
                "InvalidParameter",
                "Invalid parameter: TopicArn",
                "no_topic",
            ),
            (
                400,
                "InvalidParameter",
                "Invalid parameter: Message too long",
                "too_large",
            ),
            (
                400,
                "InvalidParameter",
                "Invalid parameter: MessageGroupId",
                "invalid",
            ),
            (400, "ParameterValueInvalid", "", "invalid"),
            (400, "BatchRequestTooLong", "", "too_large"),
            (403, "AuthorizationError", "", "login"),
            (403, "InvalidSecurity", "", "login"),
            (403, "SignatureDoesNotMatch", "", "login"),
            (400, "KMSDisabled", "", "status_4xx"),
            (429, "Throttled", "", "throttled"),
            (400, "Throttling", "Rate exceeded", "throttled"),
            (500, "InternalError", "", "status_5xx"),
            (503, "", "", "throttled"),
        ] {
            let body = format!(
                "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code>\
                 <Message>{text} hunter2</Message></Error></ErrorResponse>"
            );
            let failure = failure(&Response::sample(status, &body));
            assert_eq!(failure.error_type, expected, "{code} {text}");
            assert!(!failure.cause.to_string().contains("hunter2"));
        }
    }

    fn kind(entry: Entry) -> (usize, Option<(bool, &'static str)>) {
        let refusal = entry.refusal.map(|it| (it.is_of_sender, it.error_type));
        (entry.index, refusal)
    }
}
