//! Signatures of the requests to S3, SQS and SNS, compared with those that botocore computes.

use std::{fs, process::Command};

use hapax::event::NewEvent;
use hapax_sinks::{s3::S3Settings, sqs::SqsSettings};
use hapax_testkit::{
    http::{HttpReceiver, Received},
    moto::REGION,
    program::{packages, run_to_end},
};
use serde_json::{Map, Value, json};

use crate::{
    events::{deliver, offer},
    sinks::{self, ACCESS_KEY, ACCESS_KEY_ID},
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verify/signature.py");

#[tokio::test]
async fn botocore_computes_the_same_signatures() {
    let receiver = HttpReceiver::start().await;
    let with_token = |it: &mut S3Settings| {
        it.prefix = Some("a b$/é".to_owned());
        it.session_token = Some("a/token+of=temporary".into());
    };
    let queue = receiver.url("/123456789012/events.fifo");
    let s3 = sinks::s3(&receiver.url(""), sinks::destination(), with_token);
    let plain = sinks::s3(&receiver.url(""), sinks::destination(), |_| {});
    let sqs = sinks::sqs(&queue, sinks::destination(), |_: &mut SqsSettings| {});
    let topic = format!("arn:aws:sns:{REGION}:123456789012:events");
    let sns = sinks::sns(&receiver.url(""), &topic, sinks::destination(), |_| {});
    let event = || NewEvent::json("order.created", &"é€😀").about("order", "o 1");
    deliver(&s3, offer(1, event())).await.unwrap();
    deliver(&plain, offer(2, event())).await.unwrap();
    // The response is that of no queue and of no topic, but the request has been sent.
    let _unknown = deliver(&sqs, offer(3, event())).await;
    let _unknown = deliver(&sns, offer(4, event())).await;

    let requests = receiver.received_at_least(4).await;
    let services = ["s3", "s3", "sqs", "sns"];
    let lines: Vec<_> = requests.iter().zip(services).map(of_botocore).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("requests");
    fs::write(&file, lines.join("\n")).unwrap();
    let mut command = Command::new("python3");
    let modules = packages(env!("CARGO_TARGET_TMPDIR"), "moto");
    command.arg(SCRIPT).arg(&file).env("PYTHONPATH", modules);
    let computed = run_to_end(command).ended(0).stdout;
    let sent: Vec<_> = requests.iter().map(signature).collect();
    assert_eq!(computed.lines().collect::<Vec<_>>(), sent);
}

/// The request for the script: its signed headers, and its body as text.
fn of_botocore((request, service): (&Received, &str)) -> String {
    let authorization = request.header("authorization").unwrap();
    let (_, signed) = authorization.split_once("SignedHeaders=").unwrap();
    let names = signed.split(',').next().unwrap().split(';');
    let headers = names.map(|name| (name.to_owned(), json!(request.header(name).unwrap())));
    let headers: Map<String, Value> = headers.collect();
    let host = request.header("host").unwrap();
    let line = json!({
        "service": service,
        "region": REGION,
        "key": ACCESS_KEY_ID,
        "secret": ACCESS_KEY,
        "method": request.method.as_str(),
        "url": format!("http://{host}{}", request.path),
        "headers": headers,
        "body": String::from_utf8(request.body.to_vec()).unwrap(),
    });
    line.to_string()
}

fn signature(request: &Received) -> &str {
    let authorization = request.header("authorization").unwrap();
    authorization.split_once("Signature=").unwrap().1
}
