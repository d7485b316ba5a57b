//! "Empty means unset", for every optional field.
//!
//! Clients generated from the schema write `""`, `0` and `false` for fields
//! their user never set, so a field that is present and empty must mean the
//! same as one that is absent. Plain values with a default express this in the type,
//! where an `Option<String>` would have two ways to be empty.

/// Whether a field has its type's default, and is left out when written.
pub(crate) fn is_unset<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
