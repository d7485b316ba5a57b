//! Reads broker configurations: printing and parsing agree, and resolved values are bounded.

#![no_main]

use flux_operator_flux::BrokerConfig;
use flux_operator_flux::bootstrap::MAX_RANKS;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(config) = BrokerConfig::parse(text) else {
        return;
    };
    if let Some(Ok(hosts)) = config.bootstrap.as_ref().map(|bootstrap| bootstrap.ranks()) {
        assert!(hosts.len() <= MAX_RANKS);
    }
    // The texts are compared and not the values, because a TOML float may be NaN.
    let printed = config.to_toml().expect("what was read can be printed");
    let read = BrokerConfig::parse(&printed).expect("what was printed");
    assert_eq!(read.to_toml().expect("printed before"), printed);
});
