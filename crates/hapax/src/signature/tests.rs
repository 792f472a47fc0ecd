//! Tests of signatures: the published vectors, and attacks by hostile senders.

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PAIR: &str =
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const BODY: &[u8] = br#"{"test": 2432232314}"#;
const AT: i64 = 1_614_265_330;
const V1: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const V1A: &str =
    "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==";

#[test]
fn the_published_vectors_come_out_byte_for_byte() {
    assert_eq!(sign(ID, AT, BODY, &[v1()]), V1);
    assert_eq!(sign(ID, AT, BODY, &[v1a()]), V1A);
}

#[test]
fn the_request_of_the_webhook_contract_is_signed_with_the_secret_on_the_page() {
    let page = include_str!("../../../../docs/guides/webhook-contract.md");
    let value = |header: &str| {
        page.lines()
            .find_map(|line| line.strip_prefix(header))
            .unwrap()
    };
    let (id, at) = (value("webhook-id: "), value("webhook-timestamp: "));
    let body = page.lines().find(|line| line.starts_with('{')).unwrap();
    assert!(page.contains(SECRET));
    let signature = sign(id, at.parse().unwrap(), body.as_bytes(), &[v1()]);
    assert_eq!(signature, value("webhook-signature: "));
}

#[test]
fn a_sender_with_two_keys_signs_with_both() {
    assert_eq!(sign(ID, AT, BODY, &[v1(), v1a()]), format!("{V1} {V1A}"));
    assert_eq!(sign(ID, AT, BODY, &[]), "");
}

#[test]
fn any_listed_signature_by_any_key_suffices() {
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    check(V1, &[SECRET], Ok(()));
    check(V1A, &[&public()], Ok(()));
    check(&format!("v1,AAAA v2,x {V1}"), &[other, SECRET], Ok(()));
    check(&format!("{V1A} {V1}"), &[&public()], Ok(()));
    check(V1, &[other], Err(VerifyError::Signature));
    check(V1, &[&public()], Err(VerifyError::Signature));
    check(V1, &[], Err(VerifyError::Signature));
    check("", &[SECRET], Err(VerifyError::Signature));
}

#[test]
fn a_signature_of_one_scheme_is_not_taken_for_the_other() {
    let as_v1a = V1.replace("v1,", "v1a,");
    let as_v1 = V1A.replace("v1a,", "v1,");
    check(&as_v1a, &[SECRET, &public()], Err(VerifyError::Signature));
    check(&as_v1, &[SECRET, &public()], Err(VerifyError::Signature));
}

#[test]
fn one_changed_bit_anywhere_is_noticed() {
    let judge = |id: &str, timestamp: &str, body: &[u8]| {
        let signature = format!("{V1} {V1A}");
        let received = Received {
            id,
            timestamp,
            signature: &signature,
            body,
        };
        verify(
            &received,
            &verifiers(&[SECRET, &public()]),
            now(),
            TOLERANCE,
        )
    };
    assert_eq!(judge(ID, "1614265330", BODY), Ok(()));
    assert_eq!(
        judge("msg_p5jXN8AQM9LWM0D4loKWxJeK", "1614265330", BODY),
        Err(VerifyError::Signature)
    );
    assert_eq!(judge(ID, "1614265331", BODY), Err(VerifyError::Signature));
    assert_eq!(judge(ID, "01614265330", BODY), Err(VerifyError::Signature));
    assert_eq!(
        judge(ID, "1614265330", br#"{"test": 2432232315}"#),
        Err(VerifyError::Signature)
    );
}

#[test]
fn a_recording_and_a_clock_far_ahead_are_both_stale() {
    let judge = |now: i64| {
        let received = received(V1, "1614265330");
        verify(
            &received,
            &verifiers(&[SECRET]),
            Timestamp::from_millis(now * 1000),
            TOLERANCE,
        )
    };
    assert_eq!(judge(AT + 300), Ok(()));
    assert_eq!(judge(AT - 300), Ok(()));
    assert_eq!(judge(AT + 301), Err(VerifyError::Stale));
    assert_eq!(judge(AT - 301), Err(VerifyError::Stale));
}

#[test]
fn an_id_with_a_full_stop_is_refused_because_it_could_hide_a_timestamp() {
    let keys = [v1()];
    let shifted = sign("a", AT, b"1614265330.{}", &keys);
    let received = Received {
        id: "a.1614265330",
        timestamp: "1614265330",
        signature: &shifted,
        body: b"{}",
    };
    assert_eq!(
        verify(&received, &verifiers(&[SECRET]), now(), TOLERANCE),
        Err(VerifyError::Malformed { header: ID_HEADER })
    );
}

#[test]
fn malformed_headers_are_errors_and_never_a_panic() {
    let stamps = [
        "",
        "-1",
        "+1614265330",
        "1e9",
        " 1614265330",
        "99999999999999999999",
        "é",
    ];
    for timestamp in stamps {
        let judged = verify(
            &received(V1, timestamp),
            &verifiers(&[SECRET]),
            now(),
            TOLERANCE,
        );
        let header = TIMESTAMP_HEADER;
        assert_eq!(
            judged,
            Err(VerifyError::Malformed { header }),
            "{timestamp}"
        );
    }
    let long = "A".repeat(10_000);
    for signature in [
        "v1",
        "v1,",
        ",",
        "v1,%%%",
        "v1a,AA",
        "é,é",
        "v1,g0hM9",
        &format!("v1a,{long}"),
    ] {
        check(signature, &[SECRET, &public()], Err(VerifyError::Signature));
    }
}

#[test]
fn more_signatures_than_anyone_rotates_are_not_even_tried() {
    let many = vec![V1A; SIGNATURES_MAX + 1].join(" ");
    let header = SIGNATURE_HEADER;
    check(&many, &[&public()], Err(VerifyError::Malformed { header }));
    check(&vec![V1A; SIGNATURES_MAX].join(" "), &[&public()], Ok(()));
}

#[test]
fn a_key_reads_back_as_it_was_written() {
    let secret = Secret::mint([7; 32]);
    let pair = SigningKey::mint([7; 32]);
    let reread: SigningKey = pair.reveal().parse().unwrap();
    assert_eq!(
        secret.reveal().parse::<Secret>().unwrap().reveal(),
        secret.reveal()
    );
    assert_eq!(reread.reveal(), pair.reveal());
    assert_eq!(
        pair.verifying_key().to_string().parse(),
        Ok(pair.verifying_key())
    );
    assert_eq!(
        SECRET
            .trim_end_matches('=')
            .parse::<Secret>()
            .unwrap()
            .reveal(),
        SECRET
    );
}

#[test]
fn a_text_that_is_no_key_is_refused_without_repeating_it() {
    let refused = |text: &str| text.parse::<Signer>().unwrap_err().to_string();
    assert_eq!(
        refused("MfKQ9r8GKYqrTwjU"),
        "key does not begin with whsec_"
    );
    assert_eq!(refused("whsec_%"), "key is not base64 after its prefix");
    assert_eq!(refused("whsec_AAAA"), "key has 3 bytes, expected 24 to 64");
    let long = format!("whsec_{}", BASE64.encode([1; 65]));
    assert_eq!(refused(&long), "key has 65 bytes, expected 24 to 64");
    assert_eq!(refused("whsk_AAAA"), "key has 3 bytes, expected 64");
    let torn = format!("whsk_{}", BASE64.encode([1; 64]));
    assert_eq!(refused(&torn), "key is not a usable ed25519 key");
    let weak = format!("whpk_{}", BASE64.encode([0; 32]));
    assert_eq!(weak.parse::<Verifier>().unwrap_err(), KeyTextError::NotAKey);
}

#[test]
fn debug_never_prints_what_must_stay_secret() {
    let text = format!("{:?} {:?}", v1(), v1a());
    for secret in [&SECRET[6..], &PAIR[5..40], "49, 242", "31f2"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[track_caller]
#[expect(
    clippy::needless_pass_by_value,
    reason = "an expectation is easiest to read as a value"
)]
fn check(signature: &str, keys: &[&str], expected: Result<(), VerifyError>) {
    let received = received(signature, "1614265330");
    assert_eq!(
        verify(&received, &verifiers(keys), now(), TOLERANCE),
        expected
    );
}

fn received<'a>(signature: &'a str, timestamp: &'a str) -> Received<'a> {
    Received {
        id: ID,
        timestamp,
        signature,
        body: BODY,
    }
}

fn verifiers(keys: &[&str]) -> Vec<Verifier> {
    keys.iter().map(|key| key.parse().unwrap()).collect()
}

fn public() -> String {
    PAIR.parse::<SigningKey>()
        .unwrap()
        .verifying_key()
        .to_string()
}

fn v1() -> Signer {
    SECRET.parse().unwrap()
}

fn v1a() -> Signer {
    PAIR.parse().unwrap()
}

fn now() -> Timestamp {
    Timestamp::from_millis(AT * 1000)
}
