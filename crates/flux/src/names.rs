//! The names of Flux's states, parsed into types.
//!
//! Every state type has the same needs: print Flux's name, parse it, and parse the number that
//! Flux's JSON sometimes has instead. This module is what they share.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserializer, de};

/// How much of an unknown name an error contains: enough to recognise it, but bounded.
const MAX_QUOTED: usize = 40;

/// A name or number that Flux does not have for this type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} {name:?}")]
pub struct UnknownName {
    /// What was expected, such as `job state`.
    pub kind: &'static str,
    /// What was found instead, truncated.
    pub name: String,
}

/// One of a few values that Flux has a name for.
pub(crate) trait Named: Copy + 'static {
    /// What the values are, for errors.
    const KIND: &'static str;
    /// All values.
    const ALL: &'static [Self];

    /// Flux's names for this value.
    fn spellings(self) -> &'static [&'static str];

    /// The number that represents this value in Flux's JSON, if it has one.
    fn number(self) -> Option<u64> {
        None
    }
}

/// Finds the value that `text` names. Flux prints most names in upper case and accepts them in
/// lower case too.
pub(crate) fn parse<T: Named>(text: &str) -> Result<T, UnknownName> {
    let is = |word: &&str| *word == text || word.to_ascii_lowercase() == text;
    let found = T::ALL.iter().find(|value| value.spellings().iter().any(is));
    found
        .copied()
        .ok_or_else(|| UnknownName { kind: T::KIND, name: text.chars().take(MAX_QUOTED).collect() })
}

/// Parses a value from its name or, if it has one, from its number.
pub(crate) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Named + FromStr<Err = UnknownName>,
{
    struct Visitor<T>(PhantomData<T>);

    impl<T: Named + FromStr<Err = UnknownName>> de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "a {}", T::KIND)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            let found = T::ALL.iter().find(|value| value.number() == Some(number));
            found
                .copied()
                .ok_or_else(|| E::custom(UnknownName { kind: T::KIND, name: number.to_string() }))
        }
    }

    deserializer.deserialize_any(Visitor(PhantomData))
}

/// Implements the traits that every state has for a [`Named`] type: `Display`, `FromStr` and
/// serde.
macro_rules! impl_named {
    ($type:ty) => {
        impl std::fmt::Display for $type {
            /// Flux's name.
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::names::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::names::parse(text)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::names::deserialize(deserializer)
            }
        }
    };
}

pub(crate) use impl_named;

#[cfg(test)]
mod tests {
    use crate::JobState;

    #[test]
    fn an_unknown_name_is_quoted_but_truncated() {
        let error = "x".repeat(1_000_000).parse::<JobState>().unwrap_err();
        assert_eq!(error.to_string().len(), r#"unknown job state """#.len() + 40);
        let error = serde_json::from_str::<JobState>("3").unwrap_err();
        assert!(error.to_string().starts_with(r#"unknown job state "3""#), "{error}");
    }

    #[test]
    fn names_are_parsed_only_in_upper_or_lower_case() {
        assert_eq!("RUN".parse(), Ok(JobState::Run));
        assert_eq!("run".parse(), Ok(JobState::Run));
        assert!("Run".parse::<JobState>().is_err());
        assert!(" RUN".parse::<JobState>().is_err());
        assert!("".parse::<JobState>().is_err());
    }
}
