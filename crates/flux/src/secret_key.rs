//! The keys of CURVE (ZeroMQ RFC 26): a secret key, and the public key that belongs to it.
//!
//! A key pair is an X25519 pair: 32 random bytes, and the base point multiplied by them. The text
//! of either key is 40 characters of Z85.
//!
//! A secret key is never printed: it has no `Display` and no serde, `Debug` prints `<redacted>`,
//! errors contain positions but no content, and the bytes are zeroed when it is dropped. It is only
//! returned as part of a certificate's text.

use std::fmt;
use std::str::FromStr;

use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};
use zeroize::Zeroizing;

pub use crate::z85::KeyError;
use crate::z85::{self, KEY_LENGTH, TEXT_LENGTH};

/// A CURVE secret key.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<[u8; KEY_LENGTH]>);

/// A CURVE public key, which may be printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_LENGTH]);

/// The operating system returned no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("failed to get random bytes from the operating system")]
pub struct RandomnessError {
    source: getrandom::Error,
}

impl SecretKey {
    /// Creates a key from `bytes`, which must come from a cryptographically secure source.
    pub fn from_bytes(bytes: [u8; KEY_LENGTH]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Generates a key with the operating system's random number generator.
    ///
    /// This is the only function of this crate that is not deterministic. It is here so that
    /// callers do not have to handle the bytes of a key.
    pub fn from_os() -> Result<Self, RandomnessError> {
        let mut bytes = Zeroizing::new([0; KEY_LENGTH]);
        getrandom::fill(bytes.as_mut()).map_err(|source| RandomnessError { source })?;
        Ok(Self(bytes))
    }

    /// Parses a key in Z85.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        z85::decode(text).map(Self)
    }

    /// The public key that belongs to this key.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(x25519(*self.0, X25519_BASEPOINT_BYTES))
    }

    /// Appends the key in Z85 to `secret`, which the caller must keep secret, and which must have
    /// enough capacity: a `String` that grows leaves a copy in memory.
    pub(crate) fn write_secret_text(&self, secret: &mut Zeroizing<String>) {
        debug_assert!(secret.capacity() - secret.len() >= TEXT_LENGTH);
        z85::encode(&self.0, secret);
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("<redacted>")
    }
}

impl PublicKey {
    /// The key as bytes.
    pub fn as_bytes(&self) -> &[u8; KEY_LENGTH] {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        z85::decode(text).map(|key| Self(*key))
    }
}

impl fmt::Display for PublicKey {
    /// The key in Z85.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(TEXT_LENGTH);
        z85::encode(&self.0, &mut text);
        formatter.write_str(&text)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the hexadecimal numbers of RFC 7748.
    fn bytes(hexadecimal: &str) -> [u8; KEY_LENGTH] {
        let byte = |index| u8::from_str_radix(&hexadecimal[2 * index..][..2], 16).unwrap();
        std::array::from_fn(byte)
    }

    #[test]
    fn public_keys_are_those_of_rfc_7748() {
        for (secret, public) in [
            (
                "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
                "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            ),
            (
                "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
                "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            ),
        ] {
            let key = SecretKey::from_bytes(bytes(secret));
            assert_eq!(*key.public_key().as_bytes(), bytes(public));
        }
    }

    #[test]
    fn public_keys_are_those_of_libzmq() {
        // The key pairs of libzmq's documentation and tests.
        for (secret, public) in [
            (
                "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs",
                "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",
            ),
            (
                "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6",
                "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7",
            ),
        ] {
            let key = SecretKey::parse(secret).unwrap();
            assert_eq!(key.public_key().to_string(), public);
            assert_eq!(public.parse(), Ok(key.public_key()));
        }
    }

    #[test]
    fn a_secret_key_is_not_printed() {
        let key = SecretKey::from_bytes([7; KEY_LENGTH]);
        assert_eq!(format!("{key:?} {:#?}", Some(&key)), "<redacted> Some(\n    <redacted>,\n)");
    }

    #[test]
    fn keys_from_the_operating_system_differ() {
        let keys = [SecretKey::from_os().unwrap(), SecretKey::from_os().unwrap()];
        assert_ne!(keys[0].public_key(), keys[1].public_key());
    }
}
