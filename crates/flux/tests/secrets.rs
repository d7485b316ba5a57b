//! Properties of all certificates: the text can be parsed back, and only the text contains the
//! secret.

use std::error::Error;

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use proptest::prelude::*;

/// How many consecutive characters of the secret are a leak. Fewer can occur by coincidence.
const LEAK: usize = 5;

fn certificate(key: [u8; 32], name: &str) -> Certificate {
    let metadata = Metadata::new(name).expect("a name");
    Certificate::new(SecretKey::from_bytes(key), metadata)
}

/// The secret key in the certificate's text.
fn secret_of(certificate: &Certificate) -> String {
    let text = certificate.to_secret_text();
    let (_, rest) = text.split_once("secret-key = \"").expect("a secret key");
    rest.trim_end_matches(['"', '\n']).to_owned()
}

fn contains_secret(shown: &str, secret: &str) -> bool {
    let windows = secret.as_bytes().windows(LEAK);
    windows.map(|part| std::str::from_utf8(part).expect("ASCII")).any(|part| shown.contains(part))
}

/// The error and all its causes, in every way they can be printed.
fn error_text(error: &dyn Error) -> String {
    let mut shown = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        shown.push_str(&format!("{error} {error:?} {error:#?} "));
        cause = error.source();
    }
    shown
}

proptest! {
    #[test]
    fn a_certificate_is_parsed_back(key: [u8; 32], name in "[A-Za-z0-9.:@ -]{0,40}") {
        let made = certificate(key, &name);
        let text = made.to_secret_text();
        let read = Certificate::parse(&text).unwrap();
        prop_assert_eq!(read.public_key(), made.public_key());
        prop_assert_eq!(read.metadata(), made.metadata());
        prop_assert_eq!(read.to_secret_text(), text);
    }

    #[test]
    fn debug_never_prints_the_secret(key: [u8; 32]) {
        let made = certificate(key, "demo");
        let shown = format!("{made:?} {made:#?}").replace(&made.public_key().to_string(), "");
        prop_assert!(!contains_secret(&shown, &secret_of(&made)), "{}", shown);
    }

    #[test]
    fn errors_about_a_damaged_certificate_never_contain_the_secret(
        key: [u8; 32],
        position: prop::sample::Index,
        damage in prop_oneof![Just(""), Just("\n"), Just("\""), Just(" "), Just("="), Just("é"), Just("\n    ")],
        cut in 0..3_usize,
    ) {
        let made = certificate(key, "demo");
        let text = made.to_secret_text();
        let start = position.index(text.len());
        let end = (start + cut).min(text.len());
        let damaged = format!("{}{damage}{}", &text[..start], &text[end..]);
        if let Err(error) = Certificate::parse(&damaged) {
            let shown = error_text(&error);
            prop_assert!(!contains_secret(&shown, &secret_of(&made)), "{}", shown);
        }
    }

    #[test]
    fn metadata_is_rejected_or_is_one_line(
        name in "[a-z =#]{0,6}", key in "[a-z.]{1,4}[\n= ]?", value in "[a-z =#]{0,6}[\"\n\r\\\\é]?",
    ) {
        let Ok(mut metadata) = Metadata::new(&name) else { return Ok(()) };
        let added = usize::from(metadata.set(&key, &value).is_ok());
        let made = Certificate::new(SecretKey::from_bytes([1; 32]), metadata);
        let text = made.to_secret_text();
        prop_assert_eq!(text.lines().count(), 8 + added);
        let read = Certificate::parse(&text).unwrap();
        prop_assert_eq!(read.metadata(), made.metadata());
    }
}
