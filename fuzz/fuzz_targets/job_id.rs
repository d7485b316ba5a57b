//! Reads job ids in any encoding; every printed form is the same id.

#![no_main]

use flux_operator_flux::JobId;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(id) = text.parse::<JobId>() else {
        return;
    };
    for text in
        [id.to_string(), id.to_f58_plain(), id.to_dotted_hexadecimal(), id.number().to_string()]
    {
        assert_eq!(text.parse(), Ok(id));
    }
});
