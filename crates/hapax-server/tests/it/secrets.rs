//! Tests of `hapax secrets`.

use hapax::{keyring::Keyring, signature::Secret};

use crate::hapax::run;

#[test]
fn a_new_secret_signs_webhooks_and_is_another_one_each_time() {
    let new = || run(&["secrets", "new"]).ended(0).stdout;
    let (one, other) = (new(), new());
    assert_ne!(one, other);
    for text in [one, other] {
        assert!(text.starts_with("whsec_"), "{text}");
        text.trim_end().parse::<Secret>().unwrap();
    }
    let json = run(&["secrets", "new", "--json"]).ended(0).json();
    assert!(json["secret"].as_str().unwrap().starts_with("whsec_"));
}

#[test]
fn a_new_encryption_key_is_one_for_the_configuration() {
    let key = run(&["secrets", "new", "--encryption-key"]).ended(0).stdout;
    Keyring::parse([key.trim_end()]).unwrap();
}
