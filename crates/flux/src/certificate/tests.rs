//! Tests of [`Certificate`]: its text, invalid input, and that no secret is printed.

use std::error::Error;

use super::*;

// The key pair of libzmq's documentation.
const PUBLIC: &str = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
const SECRET: &str = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";

fn demo() -> Certificate {
    let keygen = Keygen {
        hostname: Some("host"),
        time: Some("2026-11-15T04:47:33"),
        userid: Some(0),
        flux_core_version: Some("0.88.0"),
        zmq_version: Some("4.3.4"),
    };
    let metadata = Metadata::new("demo").unwrap().with_keygen(&keygen).unwrap();
    Certificate::new(SecretKey::parse(SECRET).unwrap(), metadata)
}

/// A certificate with other lines in its curve section.
fn with_curve(lines: &str) -> String {
    format!("metadata\n    name = \"demo\"\ncurve\n{lines}")
}

#[test]
fn the_text_is_what_flux_keygen_writes() {
    let text = demo().to_secret_text();
    assert_eq!(
        *text,
        format!(
            "\
#  ZeroMQ CURVE **Secret** Certificate
#  DO NOT DISTRIBUTE

metadata
    name = \"demo\"
    keygen.flux-core-version = \"0.88.0\"
    keygen.hostname = \"host\"
    keygen.time = \"2026-11-15T04:47:33\"
    keygen.userid = \"0\"
    keygen.zmq-version = \"4.3.4\"
curve
    public-key = \"{PUBLIC}\"
    secret-key = \"{SECRET}\"
"
        )
    );
    let read = Certificate::parse(&text).unwrap();
    assert_eq!(read.to_secret_text(), text);
    assert_eq!(read.metadata(), demo().metadata());
    assert_eq!(read.public_key().to_string(), PUBLIC);
}

#[test]
fn reads_the_certificates_of_the_go_operator() {
    let text = format!(
        "#   ****  Generated on 2023-04-26 22:54:42 by CZMQ  ****\r\n\
         #   ZeroMQ CURVE **Secret** Certificate\n\
         #   DO NOT PROVIDE THIS FILE TO OTHER USERS nor change its permissions.\n    \n\
         metadata\n    name = \"flux-cert-generator\"\n    keygen.hostname = \"flux-sample-0\"\n\
         curve\n    public-key = \"{PUBLIC}\"\n\tsecret-key=\"{SECRET}\""
    );
    let certificate = Certificate::parse(&text).unwrap();
    assert_eq!(certificate.metadata().get("keygen.hostname"), Some("flux-sample-0"));
}

#[test]
fn rejects_what_flux_rejects_without_printing_it() {
    use CertificateError as E;
    let public = format!("    public-key = \"{PUBLIC}\"\n");
    let secret = format!("    secret-key = \"{SECRET}\"\n");
    let other = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
    let key = |source| E::Key { line: 4, source };
    for (text, error) in [
        (String::new(), E::NoName),
        (SECRET.to_owned(), E::InvalidLine { line: 1 }),
        (format!("    secret-key = \"{SECRET}\""), E::InvalidLine { line: 1 }),
        (format!("curve\n{public}{secret}"), E::NoName),
        (with_curve(&public), E::NoSecretKey),
        (with_curve(&secret), E::NoPublicKey),
        (with_curve(&format!("{public}{secret}{secret}")), E::Duplicate { line: 6 }),
        (with_curve(&format!("    public-key = \"{other}\"\n{secret}")), E::Mismatch),
        (with_curve(&format!("secret-key = \"{SECRET}\"\n")), E::InvalidLine { line: 4 }),
        (with_curve(&format!("    {SECRET} = \"x\"\n")), E::InvalidLine { line: 4 }),
        (with_curve(&format!("    secret-key = {SECRET}\n")), E::Value { line: 4 }),
        (with_curve(&format!("    secret-key = \"{SECRET}\n")), E::Value { line: 4 }),
        (with_curve(&format!("    secret-key = \"{SECRET}x\"\n")), key(KeyError::Length)),
        (
            with_curve(&format!("    secret-key = \"{}~\"\n", &SECRET[..39])),
            key(KeyError::Character { position: 39 }),
        ),
        (with_curve("    secret-key = \"\n"), E::Value { line: 4 }),
        (format!("# {}\n", "x".repeat(253)), E::LineTooLong { line: 1 }),
        (
            format!("metadata\n    name = \"{SECRET}\"{SECRET}\"\n"),
            E::Metadata { line: 2, source: MetadataError::Value },
        ),
        (
            "metadata\n    name = \"a\"\n    name = \"a\"\n".to_owned(),
            E::Metadata { line: 3, source: MetadataError::Duplicate },
        ),
    ] {
        let found = Certificate::parse(&text).unwrap_err();
        assert_eq!(found, error, "{text}");
        assert_prints_no_secret(&found);
    }
}

/// Neither the error nor any cause of it contains five characters in a row of the secret.
fn assert_prints_no_secret(error: &CertificateError) {
    let mut shown = format!("{error:?}");
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        shown.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    for start in 0..SECRET.len() - 5 {
        assert!(!shown.contains(&SECRET[start..start + 5]), "{shown}");
    }
}

#[test]
fn debug_prints_only_the_public_key() {
    let shown = format!("{:?} {:#?}", demo(), demo());
    assert!(shown.contains("<redacted>") && shown.contains(PUBLIC));
    assert!(!shown.contains(SECRET));
    let bytes = format!("{:?}", *crate::z85::decode(SECRET).unwrap());
    assert!(!shown.contains(&bytes[1..20]));
}

#[test]
fn a_generated_certificate_is_parsed_back() {
    let key = SecretKey::from_os().unwrap();
    let public_key = key.public_key();
    let certificate = Certificate::new(key, Metadata::new("fs").unwrap());
    let read = Certificate::parse(&certificate.to_secret_text()).unwrap();
    assert_eq!(read.public_key(), public_key);
}
