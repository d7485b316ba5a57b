//! Reads host lists: results are bounded, and printing and parsing agree.

#![no_main]

use flux_operator_flux::HostList;
use flux_operator_flux::hostlist::{MAX_HOSTS, MAX_NAME_LENGTH};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(list) = text.parse::<HostList>() else {
        return;
    };
    assert!(list.len() <= MAX_HOSTS);
    let printed = list.to_string();
    let read: HostList = printed.parse().expect("what was printed");
    assert_eq!(read.to_string(), printed);
    // Only a part of long lists is compared, because the fuzzer would do little else otherwise.
    assert_eq!(read.len(), list.len());
    assert!(read.iter().take(1000).eq(list.iter().take(1000)));
    for host in list.iter().take(20) {
        assert!(host.len() <= MAX_NAME_LENGTH);
        let index = list.find(&host).expect("a host of the list");
        assert_eq!(list.nth(index), Some(host));
    }
});
