//! Identifies the build: a digest of the sources that determine what a cluster's objects look
//! like and what its agents read. Two builds of one release may differ in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Crates whose sources count.
const CRATES: [&str; 4] = ["api", "flux", "plan", "wire"];

fn main() -> io::Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // FNV-1a: it only has to distinguish builds.
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for name in CRATES {
        let sources = crates.join(name).join("src");
        println!("cargo::rerun-if-changed={}", sources.display());
        for file in files(&sources)? {
            for byte in fs::read(file)? {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    println!("cargo::rustc-env=BUILD={digest:016x}");
    Ok(())
}

/// All files below a directory, in an order that does not depend on the machine.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
