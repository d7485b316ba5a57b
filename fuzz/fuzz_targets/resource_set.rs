//! Reads R: accepted values are consistent, and printing and parsing agree.

#![no_main]

use flux_operator_flux::ResourceSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(resources) = ResourceSet::parse(text) else {
        return;
    };
    assert_eq!(resources.ranks().len(), resources.hosts().len() as u64);
    for rank in resources.ranks().iter().take(100) {
        assert!(resources.host(rank).is_some());
    }
    let _ = (resources.core_count(), resources.gpu_count());
    let printed = resources.to_string();
    let read = ResourceSet::parse(&printed).expect("what was printed");
    assert_eq!(read.to_string(), printed);
});
