//! Names in client certificates that another implementation has made.

use std::{collections::BTreeMap, fs, path::Path};

use axum::response::IntoResponse as _;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use hapax_gateway::tenant::certificate::{
    CertificateName, CertificateRefusal, CertificateSettings, Certificates,
};
use hapax_http::Problem;
use http::header::WWW_AUTHENTICATE;
use serde_json::Value;

fn certificate(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/certificates.json");
    let content: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    BASE64_STANDARD
        .decode(content[name].as_str().unwrap())
        .unwrap()
}

fn read(
    file: &str,
    name: CertificateName,
    tenants: &[(&str, &str)],
) -> Result<String, CertificateRefusal> {
    let owned = |(name, tenant): &(&str, &str)| ((*name).to_owned(), (*tenant).to_owned());
    let settings = CertificateSettings {
        name,
        tenants: tenants.iter().map(owned).collect::<BTreeMap<_, _>>(),
    };
    let certificates = Certificates::new(&settings).unwrap();
    let tenant = certificates.tenant(Some(&certificate(file)))?;
    Ok(tenant.as_str().to_owned())
}

#[test]
fn each_kind_of_name_is_read() {
    for (name, expected) in [
        (CertificateName::CommonName, "acme"),
        (CertificateName::Uri, "spiffe://example.org/acme"),
        (CertificateName::Dns, "client.acme.example"),
        (CertificateName::Email, "ops@acme.example"),
    ] {
        assert_eq!(read("full", name, &[]).unwrap(), expected);
    }
    let other = read("other_script", CertificateName::CommonName, &[]);
    assert_eq!(other.unwrap(), "M\u{fc}ller \u{5f20}");
}

#[test]
fn a_name_that_is_missing_or_not_the_only_one_is_refused() {
    let refused = |file, name| read(file, name, &[]).unwrap_err();
    let common = CertificateName::CommonName;
    assert_eq!(
        refused("two_common_names", common),
        CertificateRefusal::Ambiguous
    );
    assert_eq!(
        refused("two_dns_names", CertificateName::Dns),
        CertificateRefusal::Ambiguous
    );
    assert_eq!(refused("no_names", common), CertificateRefusal::NoName);
    assert_eq!(
        refused("no_names", CertificateName::Dns),
        CertificateRefusal::NoName
    );
    assert_eq!(
        refused("two_dns_names", CertificateName::Uri),
        CertificateRefusal::NoName
    );
    assert_eq!(refused("nul", common), CertificateRefusal::Tenant);
}

#[test]
fn a_list_maps_names_to_tenants() {
    let dns = |tenants: &[(&str, &str)]| read("two_dns_names", CertificateName::Dns, tenants);
    assert_eq!(dns(&[("A.example", "one")]).unwrap(), "one");
    assert_eq!(
        dns(&[("a.example", "one"), ("b.example", "one")]).unwrap(),
        "one"
    );
    let two = dns(&[("a.example", "one"), ("b.example", "two")]);
    assert_eq!(two, Err(CertificateRefusal::Ambiguous));
    assert_eq!(
        dns(&[("c.example", "one")]),
        Err(CertificateRefusal::NotListed)
    );
    let settings = CertificateSettings {
        name: CertificateName::Uri,
        tenants: BTreeMap::from([("a".to_owned(), String::new())]),
    };
    assert!(
        Certificates::new(&settings)
            .unwrap_err()
            .contains("tenants")
    );
}

#[test]
fn a_certificate_that_is_cut_or_changed_never_panics() {
    let certificates = Certificates::new(&CertificateSettings::default()).unwrap();
    let good = certificate("full");
    assert_eq!(certificates.tenant(None), Err(CertificateRefusal::Missing));
    for length in 0..good.len() {
        let cut = certificates.tenant(Some(&good[..length]));
        assert_eq!(cut, Err(CertificateRefusal::Malformed), "{length}");
    }
    let longer = [&good[..], b"\0"].concat();
    assert_eq!(
        certificates.tenant(Some(&longer)),
        Err(CertificateRefusal::Malformed)
    );
    let large = vec![0x30; 64 * 1024 + 1];
    assert_eq!(
        certificates.tenant(Some(&large)),
        Err(CertificateRefusal::Malformed)
    );
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut changed = good.clone();
            changed[at] ^= 1 << bit;
            drop(certificates.tenant(Some(&changed)));
        }
    }
}

#[test]
fn a_refusal_is_a_401_with_a_challenge() {
    for refusal in [CertificateRefusal::Missing, CertificateRefusal::NotListed] {
        let response = Problem::from(refusal).into_response();
        assert_eq!(response.status(), 401);
        assert!(response.headers().contains_key(WWW_AUTHENTICATE));
    }
}
