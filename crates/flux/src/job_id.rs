//! Job IDs: `ƒ2bGzJKq`. Follows Flux RFC 19, where they are called FLUIDs.
//!
//! An ID is a 64-bit number that Flux prints in several encodings. All of them can be parsed except
//! words and emoji, which need large tables.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The digits of base58, which has no characters that look alike.
const ALPHABET: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// flux-core accepts at most this many base58 digits; 64 bits need 11.
const MAX_F58_DIGITS: usize = 12;

/// The ID of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(u64);

/// An encoding of a job ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `60565749760`
    Decimal,
    /// `0xe1a000000`
    Hexadecimal,
    /// `0000.000e.1a00.0000`, as in the key-value store
    DottedHexadecimal,
    /// `ƒ2bGzJKq` or `f2bGzJKq`
    F58,
    /// `academy-academy-academy--academy-academy-academy`
    Words,
    /// `😳🏪🍖🍸`
    Emoji,
}

/// Why a text is not a job ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobIdError {
    /// Empty, or nothing after the prefix.
    #[error("job id is empty")]
    Empty,
    /// A character that the encoding does not have.
    #[error("job id has the character {character:?}, which is not {encoding}")]
    Character {
        /// The encoding that was assumed.
        encoding: Encoding,
        /// The first such character.
        character: char,
    },
    /// More than 64 bits.
    #[error("job id in {encoding} is larger than 64 bits")]
    Overflow {
        /// The encoding that was assumed.
        encoding: Encoding,
    },
    /// Not four groups of one to four digits.
    #[error("job id in dotted hexadecimal is not four groups of one to four digits")]
    Groups,
    /// Words or emoji.
    #[error("job ids in {encoding} are not supported")]
    Unsupported {
        /// The encoding that was recognised.
        encoding: Encoding,
    },
}

impl JobId {
    /// The ID as a number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// F58 with the ASCII prefix `f`, for places that are not UTF-8.
    pub fn to_f58_plain(self) -> String {
        format!("f{}", self.base58())
    }

    /// The encoding that is used in the key-value store.
    pub fn to_dotted_hexadecimal(self) -> String {
        let group = |shift: u32| (self.0 >> shift) & 0xffff;
        format!("{:04x}.{:04x}.{:04x}.{:04x}", group(48), group(32), group(16), group(0))
    }

    fn base58(self) -> String {
        let mut digits = Vec::new();
        let mut rest = self.0;
        loop {
            // The remainder is below 58, so it fits and is in the alphabet.
            digits.push(char::from(ALPHABET[(rest % 58) as usize]));
            rest /= 58;
            if rest == 0 {
                return digits.iter().rev().collect();
            }
        }
    }
}

impl From<u64> for JobId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for JobId {
    /// F58, as Flux prints IDs by default.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ƒ{}", self.base58())
    }
}

impl FromStr for JobId {
    type Err = JobIdError;

    /// Parses an ID in any supported encoding, by the rules and in the order of RFC 19.
    fn from_str(text: &str) -> Result<Self, JobIdError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(JobIdError::Empty);
        }
        let encoding = Encoding::detect(text);
        let number = match encoding {
            Encoding::Decimal => parse_digits(text, 10, encoding),
            Encoding::Hexadecimal => parse_digits(&text[2..], 16, encoding),
            Encoding::DottedHexadecimal => parse_groups(text),
            Encoding::F58 => parse_base58(text),
            Encoding::Words | Encoding::Emoji => Err(JobIdError::Unsupported { encoding }),
        };
        number.map(Self)
    }
}

impl Encoding {
    /// Detects the encoding of `text`; by RFC 19 it is unambiguous.
    fn detect(text: &str) -> Self {
        if text.contains('.') {
            Self::DottedHexadecimal
        } else if text.contains('-') {
            Self::Words
        } else if text.starts_with(['ƒ', 'f']) {
            Self::F58
        } else if text.as_bytes().starts_with(&[0xf0, 0x9f]) {
            Self::Emoji
        } else if text.starts_with("0x") {
            Self::Hexadecimal
        } else {
            Self::Decimal
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Decimal => "decimal",
            Self::Hexadecimal => "hexadecimal",
            Self::DottedHexadecimal => "dotted hexadecimal",
            Self::F58 => "F58",
            Self::Words => "words",
            Self::Emoji => "emoji",
        })
    }
}

fn parse_digits(text: &str, base: u32, encoding: Encoding) -> Result<u64, JobIdError> {
    if text.is_empty() {
        return Err(JobIdError::Empty);
    }
    // Checked here because Rust's own parser also accepts a sign.
    if let Some(character) = text.chars().find(|character| !character.is_digit(base)) {
        return Err(JobIdError::Character { encoding, character });
    }
    u64::from_str_radix(text, base).map_err(|_| JobIdError::Overflow { encoding })
}

fn parse_groups(text: &str) -> Result<u64, JobIdError> {
    let groups: Vec<&str> = text.splitn(5, '.').collect();
    let proper = |group: &&str| (1..=4).contains(&group.len());
    if groups.len() != 4 || !groups.iter().all(proper) {
        return Err(JobIdError::Groups);
    }
    groups.iter().try_fold(0, |number, group| {
        let group = parse_digits(group, 16, Encoding::DottedHexadecimal)?;
        Ok(number << 16 | group)
    })
}

fn parse_base58(text: &str) -> Result<u64, JobIdError> {
    let encoding = Encoding::F58;
    let digits = text.strip_prefix(['ƒ', 'f']).unwrap_or(text);
    if digits.is_empty() {
        return Err(JobIdError::Empty);
    }
    let mut number: u64 = 0;
    for character in digits.chars() {
        let digit = ALPHABET.iter().position(|letter| char::from(*letter) == character);
        let digit = digit.ok_or(JobIdError::Character { encoding, character })?;
        number = number
            .checked_mul(58)
            .and_then(|number| number.checked_add(digit as u64))
            .ok_or(JobIdError::Overflow { encoding })?;
    }
    // A number that fits can be this long only with leading zeros.
    if digits.len() > MAX_F58_DIGITS {
        return Err(JobIdError::Overflow { encoding });
    }
    Ok(number)
}

impl Serialize for JobId {
    /// A string, because JSON numbers are not safe beyond 53 bits (RFC 19).
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobId {
    /// Parses a string in any encoding, or the number that `flux job list` prints.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = JobId;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a job id")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<JobId, E> {
                Ok(JobId(number))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<JobId, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_the_f58_vectors() {
        for (number, f58) in [
            (0, "ƒ1"),
            (1, "ƒ2"),
            (57, "ƒz"),
            (1234, "ƒNH"),
            (3363, "ƒzz"),
            (3364, "ƒ211"),
            (65535, "ƒLUv"),
            (4_294_967_295, "ƒ7YXq9G"),
            (633_528_662, "ƒxyzzy"),
            (60_565_749_760, "ƒ2bGzJKq"),
            (6_731_191_091_817_518, "ƒuZZybuNNy"),
            (u64::MAX - 1, "ƒjpXCZedGfVP"),
            (u64::MAX, "ƒjpXCZedGfVQ"),
        ] {
            let id = JobId::from(number);
            let plain = f58.replace('ƒ', "f");
            assert_eq!(id.to_string(), f58);
            assert_eq!(id.to_f58_plain(), plain);
            assert_eq!(f58.parse(), Ok(id));
            assert_eq!(plain.parse(), Ok(id));
        }
    }

    #[test]
    fn recognises_the_encoding() {
        for (text, number) in [
            ("6731191091817518", 6_731_191_091_817_518),
            ("0x17e9fb8df16c2e", 6_731_191_091_817_518),
            ("0017.e9fb.8df1.6c2e", 6_731_191_091_817_518),
            ("0xedaf97d000000", 0x000e_daf9_7d00_0000),
            ("000e.daf9.7d00.0000", 0x000e_daf9_7d00_0000),
            ("0.0.0.0", 0),
            ("a.b.c.d", 2_814_797_012_533_261),
            ("ffff.0000.0000.0000", 18_446_462_598_732_840_960),
            ("18446744073709551615", u64::MAX),
            ("0xffffffffffffffff", u64::MAX),
            ("0xFF", 255),
            ("f111", 0),
            (" \t0xffff   ", 65535),
            ("ƒ2\n", 1),
        ] {
            assert_eq!(text.parse(), Ok(JobId::from(number)), "{text}");
        }
        let id = JobId::from(0x0017_e9fb_8df1_6c2e);
        assert_eq!(id.to_dotted_hexadecimal(), "0017.e9fb.8df1.6c2e");
    }

    #[test]
    fn invalid_ids_are_rejected() {
        use Encoding::*;
        let not = |encoding, character| JobIdError::Character { encoding, character };
        for (text, error) in [
            ("", JobIdError::Empty),
            ("  ", JobIdError::Empty),
            ("f", JobIdError::Empty),
            ("ƒ", JobIdError::Empty),
            ("0x", JobIdError::Empty),
            ("boo", not(Decimal, 'b')),
            ("+1", not(Decimal, '+')),
            ("1 2", not(Decimal, ' ')),
            ("0xfg", not(Hexadecimal, 'g')),
            ("f1230", not(F58, '0')),
            ("flux", not(F58, 'l')),
            ("ff€", not(F58, '€')),
            ("18446744073709551616", JobIdError::Overflow { encoding: Decimal }),
            ("0x10000000000000000", JobIdError::Overflow { encoding: Hexadecimal }),
            ("ƒjpXCZedGfVR", JobIdError::Overflow { encoding: F58 }),
            ("f1111111111111", JobIdError::Overflow { encoding: F58 }),
            ("0.0.0", JobIdError::Groups),
            ("0.0.0.0.0", JobIdError::Groups),
            ("0.0.0.", JobIdError::Groups),
            (".0.0.0", JobIdError::Groups),
            ("0.0.0.00000", JobIdError::Groups),
            ("0.0.0.g", not(DottedHexadecimal, 'g')),
            ("-1", JobIdError::Unsupported { encoding: Words }),
            (
                "reform-remote-galileo--heart-package-academy",
                JobIdError::Unsupported { encoding: Words },
            ),
            ("🚹💂🙌😳💱🏃", JobIdError::Unsupported { encoding: Emoji }),
        ] {
            assert_eq!(text.parse::<JobId>(), Err(error), "{text}");
        }
    }

    #[test]
    fn json_has_a_string_and_flux_may_print_a_number() {
        let id = JobId::from(60_565_749_760);
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"ƒ2bGzJKq\"");
        for json in ["60565749760", "\"ƒ2bGzJKq\"", "\"f2bGzJKq\""] {
            assert_eq!(serde_json::from_str::<JobId>(json).unwrap(), id, "{json}");
        }
        assert!(serde_json::from_str::<JobId>("-1").is_err());
    }
}
