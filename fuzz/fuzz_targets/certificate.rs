//! Reads certificates, and creates them with hostile metadata.

#![no_main]

use flux_operator_flux::{Certificate, Metadata, SecretKey};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(certificate) = Certificate::parse(text) {
        check(&certificate);
    }
    let Ok(mut metadata) = Metadata::new("fuzz") else {
        return;
    };
    for line in text.split(';') {
        let (key, value) = line.split_once('=').unwrap_or(("key", line));
        let _ = metadata.set(key, value);
    }
    check(&Certificate::new(SecretKey::from_bytes([1; 32]), metadata));
});

fn check(certificate: &Certificate) {
    let text = certificate.to_secret_text();
    let entries = certificate.metadata().iter().count();
    assert_eq!(text.lines().count(), 7 + entries);
    let read = Certificate::parse(&text).expect("what was printed");
    assert_eq!(read.to_secret_text(), text);
}
