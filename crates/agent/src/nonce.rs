//! Values that are used once, so that an answer cannot be replayed.

/// Returns a new nonce: 16 random bytes in hexadecimal, like the operator's.
pub fn fresh() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
