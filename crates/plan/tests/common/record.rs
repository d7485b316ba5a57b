//! Digests of what was decided in thousands of generated histories, one for each hundred. A
//! change of any step, status or Event in any of them changes its digest.
//!
//! `make test` runs the first hundred of each kind. To run all that were recorded:
//!
//! ```sh
//! HISTORIES=10000 cargo test --profile bench -p flux-operator-plan -- recorded
//! ```
//!
//! `HISTORIES_TO=DIRECTORY` writes all decisions in full, one history per line, so that two
//! versions can be compared.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// The number of histories in one digest.
const BLOCK: usize = 100;

/// Replays histories, and compares all decisions with the recorded digests.
#[expect(clippy::disallowed_methods, reason = "the number of histories is not part of a decision")]
pub fn compare<S: Strategy>(kind: &str, recorded: &str, histories: S, live: fn(S::Value) -> Value) {
    let recorded: Vec<&str> = recorded.lines().collect();
    let count = std::env::var("HISTORIES").ok().and_then(|count| count.parse().ok());
    let blocks = count.unwrap_or(BLOCK).div_ceil(BLOCK);
    let to = std::env::var_os("HISTORIES_TO").map(|to| PathBuf::from(to).join(kind));
    let mut to = to.map(|to| BufWriter::new(File::create(to).unwrap()));
    let mut runner = TestRunner::deterministic();
    let mut digests = Vec::new();
    for _ in 0..blocks {
        // FNV-1a, which needs no dependency and does not change.
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for _ in 0..BLOCK {
            let line = live(histories.new_tree(&mut runner).unwrap().current()).to_string();
            for byte in line.bytes() {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            if let Some(to) = &mut to {
                writeln!(to, "{line}").unwrap();
            }
        }
        digests.push(format!("{digest:016x}"));
    }
    let expected = &recorded[..blocks.min(recorded.len())];
    assert_eq!(digests, expected, "{kind}: it decides\n{}", digests.join("\n"));
}
