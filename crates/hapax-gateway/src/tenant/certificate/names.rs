//! Names in a certificate: the common names, or the alternative names of one kind.
//!
//! rustls gives out the certificate in DER, and its verifier has no reader for subjects. The reader
//! here is `x509-cert`, which the PostgreSQL store needs for channel binding, so it adds nothing to
//! the tree: strict DER, no unsafe code. `x509-parser` comes only with the RabbitMQ sink and brings
//! `nom` and a big integer library; a reader of our own would be one more parser of untrusted
//! bytes.

use x509_cert::{
    Certificate,
    attr::AttributeTypeAndValue,
    der::{
        Decode as _,
        asn1::{Ia5StringRef, ObjectIdentifier, PrintableStringRef, Utf8StringRef},
    },
    ext::pkix::{SubjectAltName, name::GeneralName},
};

use super::{CertificateName, refusal::CertificateRefusal};

/// Maximum size of a certificate in bytes. Certificates have one or two kilobytes.
const CERTIFICATE_BYTES_MAX: usize = 64 * 1024;
/// `id-at-commonName`.
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Reads all names of this kind. DNS names are in lower case.
pub(super) fn read(der: &[u8], kind: CertificateName) -> Result<Vec<String>, CertificateRefusal> {
    if der.len() > CERTIFICATE_BYTES_MAX {
        return Err(CertificateRefusal::Malformed);
    }
    let certificate = Certificate::from_der(der).map_err(|_| CertificateRefusal::Malformed)?;
    let names = match kind {
        CertificateName::CommonName => common_names(&certificate)?,
        CertificateName::Uri | CertificateName::Dns | CertificateName::Email => {
            alternative_names(&certificate, kind)?
        }
    };
    // A name is written to logs, and NUL has cut names short in other readers.
    if names.iter().any(|name| name.chars().any(char::is_control)) {
        return Err(CertificateRefusal::Tenant);
    }
    Ok(names)
}

fn common_names(certificate: &Certificate) -> Result<Vec<String>, CertificateRefusal> {
    let subject = &certificate.tbs_certificate.subject;
    let attributes = subject.0.iter().flat_map(|part| part.0.iter());
    attributes
        .filter(|attribute| attribute.oid == COMMON_NAME)
        .map(|attribute| text(attribute).ok_or(CertificateRefusal::Malformed))
        .collect()
}

/// The text of an attribute. Forms that are not UTF-8 or ASCII are not read.
fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    let utf8 = Utf8StringRef::try_from(value);
    let utf8 = utf8.as_ref().map(|text| text.as_str());
    let printable = PrintableStringRef::try_from(value);
    let printable = printable.as_ref().map(|text| text.as_str());
    let ia5 = Ia5StringRef::try_from(value);
    let ia5 = ia5.as_ref().map(|text| text.as_str());
    utf8.or(printable).or(ia5).ok().map(str::to_owned)
}

fn alternative_names(
    certificate: &Certificate,
    kind: CertificateName,
) -> Result<Vec<String>, CertificateRefusal> {
    let extension = certificate.tbs_certificate.get::<SubjectAltName>();
    let extension = extension.map_err(|_| CertificateRefusal::Malformed)?;
    let Some((_, SubjectAltName(names))) = extension else {
        return Ok(Vec::new());
    };
    let of_kind = names.iter().filter_map(|name| match (kind, name) {
        (CertificateName::Uri, GeneralName::UniformResourceIdentifier(uri)) => {
            Some(uri.as_str().to_owned())
        }
        (CertificateName::Dns, GeneralName::DnsName(name)) => {
            Some(name.as_str().to_ascii_lowercase())
        }
        (CertificateName::Email, GeneralName::Rfc822Name(address)) => {
            Some(address.as_str().to_owned())
        }
        _ => None,
    });
    Ok(of_kind.collect())
}
