//! Reads idsets: printing and parsing agree, and set operations are consistent.

#![no_main]

use flux_operator_flux::IdSet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (left, right) = text.split_once(';').unwrap_or((text, ""));
    let (Ok(left), Ok(right)) = (left.parse::<IdSet>(), right.parse::<IdSet>()) else {
        return;
    };
    assert_eq!(left.to_string().parse::<IdSet>().as_ref(), Ok(&left));
    let union = left.union(&right);
    assert!(left.is_subset(&union) && right.is_subset(&union));
    let difference = left.difference(&right);
    assert_eq!(difference.union(&right), union);
    assert_eq!(difference.len() + right.len(), union.len());
    for id in left.iter().take(100) {
        assert!(left.contains(id));
    }
});
