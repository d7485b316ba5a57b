//! Z85: 32 bytes of a key as 40 printable characters (ZeroMQ RFC 32).
//!
//! Implemented here because the `z85` crate is not suitable for secrets: it decodes into buffers
//! that are not zeroed, its errors contain the invalid byte, and it accepts a padding that ZeroMQ
//! does not have.

use zeroize::Zeroizing;

/// The number of bytes of a key.
pub(crate) const KEY_LENGTH: usize = 32;

/// The number of characters of a key.
pub(crate) const TEXT_LENGTH: usize = 40;

const ALPHABET: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// Why a text is not a key. Contains the position, never the text, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not 40 characters.
    #[error("key is not {TEXT_LENGTH} characters long")]
    Length,
    /// A character that Z85 does not have.
    #[error("key has a character that is not Z85 at position {position}")]
    Character {
        /// The position in the key, from 0.
        position: usize,
    },
    /// Five characters that represent more than four bytes.
    #[error("key has five characters that are not Z85 at position {position}")]
    Overflow {
        /// Their position in the key, from 0.
        position: usize,
    },
}

/// Appends `key` in Z85.
pub(crate) fn encode(key: &[u8; KEY_LENGTH], text: &mut String) {
    for chunk in key.as_chunks::<4>().0 {
        let value = u32::from_be_bytes(*chunk);
        for power in [85_u32.pow(4), 85_u32.pow(3), 85_u32.pow(2), 85, 1] {
            let digit = value / power % 85;
            text.push(char::from(ALPHABET[digit as usize]));
        }
    }
}

/// Parses a key in Z85.
pub(crate) fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_LENGTH]>, KeyError> {
    if text.len() != TEXT_LENGTH {
        return Err(KeyError::Length);
    }
    let mut key = Zeroizing::new([0; KEY_LENGTH]);
    let chunks = text.as_bytes().as_chunks::<5>().0;
    for (index, (chunk, bytes)) in chunks.iter().zip(key.as_chunks_mut::<4>().0).enumerate() {
        let mut value: u64 = 0;
        for (offset, byte) in chunk.iter().enumerate() {
            let position = index * 5 + offset;
            let digit = ALPHABET.iter().position(|letter| letter == byte);
            let digit = digit.ok_or(KeyError::Character { position })?;
            value = value * 85 + digit as u64;
        }
        let position = index * 5;
        *bytes = u32::try_from(value).map_err(|_| KeyError::Overflow { position })?.to_be_bytes();
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_the_vectors_of_zeromq() {
        // The vector of ZeroMQ RFC 32 has eight bytes; a key is four times that.
        let bytes = [0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b].repeat(4);
        let text = "HelloWorld".repeat(4);
        let key = decode(&text).unwrap();
        assert_eq!(key[..], bytes);
        let mut printed = String::new();
        encode(&key, &mut printed);
        assert_eq!(printed, text);
    }

    #[test]
    fn the_limits_of_the_range_are_parsed() {
        for (text, byte) in [("00000", 0x00), ("%nSc0", 0xff)] {
            assert_eq!(*decode(&text.repeat(8)).unwrap(), [byte; KEY_LENGTH]);
        }
    }

    #[test]
    fn errors_contain_the_position() {
        let zeros = "0".repeat(35);
        for (text, error) in [
            (String::new(), KeyError::Length),
            ("0".repeat(39), KeyError::Length),
            ("0".repeat(45), KeyError::Length),
            // 40 bytes, not 40 characters.
            ("é".repeat(20), KeyError::Character { position: 0 }),
            (format!("{zeros}00~00"), KeyError::Character { position: 37 }),
            (format!("{zeros}%nSc1"), KeyError::Overflow { position: 35 }),
            (format!("{zeros}#####"), KeyError::Overflow { position: 35 }),
        ] {
            assert_eq!(decode(&text), Err(error), "{text}");
        }
    }
}
