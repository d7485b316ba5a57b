//! Values that are used once, so that no answer fits a second question.

/// A nonce that was never used before: 16 random bytes, as the operator's.
pub fn fresh() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
