//! A run: consecutive hosts that differ by one number, such as `node[08-11]-eth0`.
//!
//! Runs make a host list cheap: a run of a million hosts is two numbers. A host without a usable
//! number is a run of one.

use std::fmt;

/// More digits than any host number has, and few enough that they fit into a `u64`.
pub(super) const MAX_DIGITS: usize = 18;

/// Hosts that share everything but one ascending number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) prefix: String,
    /// `None` for a name that does not end in a number; then `prefix` is the whole name.
    pub(super) numbers: Option<Numbers>,
    pub(super) suffix: String,
}

/// Consecutive numbers, and how they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) low: u64,
    pub(super) high: u64,
    /// The number of digits to pad to with zeros. 0 where `low` needs no padding, so that numbers
    /// that are printed the same are equal.
    width: usize,
}

/// One number with its padding.
struct PaddedNumber {
    number: u64,
    width: usize,
}

impl Run {
    /// A single host. Its number is its trailing digits, as in libhostlist.
    pub(super) fn single(name: &str) -> Self {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = name.split_at(name.len() - digits);
        let numbers = match number.parse() {
            Ok(low) if digits <= MAX_DIGITS => Some(Numbers::new(low, low, digits)),
            _ => None,
        };
        let prefix = if numbers.is_some() { prefix } else { name };
        Self { prefix: prefix.to_owned(), numbers, suffix: String::new() }
    }

    pub(super) fn len(&self) -> u64 {
        self.numbers.map_or(1, |numbers| numbers.len())
    }

    /// The `length` hosts from `offset` on, which must be hosts of the run.
    pub(super) fn slice(&self, offset: u64, length: u64) -> Self {
        let numbers = self.numbers.map(|numbers| {
            let low = numbers.low + offset;
            Numbers::new(low, low + length.saturating_sub(1), numbers.width)
        });
        Self { prefix: self.prefix.clone(), numbers, suffix: self.suffix.clone() }
    }

    /// The name of the host at `offset`, which must be less than `len`.
    pub(super) fn name(&self, offset: u64) -> String {
        match self.numbers {
            None => self.prefix.clone(),
            Some(numbers) => numbers.name(&self.prefix, offset, &self.suffix),
        }
    }

    /// The offset of `name` in the run, without expanding any other name.
    pub(super) fn find(&self, name: &str) -> Option<u64> {
        let middle = name.strip_prefix(self.prefix.as_str())?.strip_suffix(self.suffix.as_str())?;
        let Some(numbers) = self.numbers else {
            return middle.is_empty().then_some(0);
        };
        // The length distinguishes `7` from `07`; the parser alone would also accept `+7`.
        let number: u64 = middle.parse().ok()?;
        let written = middle.bytes().all(|byte| byte.is_ascii_digit())
            && middle.len() == digits(number).max(numbers.width);
        (written && (numbers.low..=numbers.high).contains(&number)).then(|| number - numbers.low)
    }

    /// Whether both runs can be printed in one pair of brackets that starts with this one.
    pub(super) fn shares_brackets_with(&self, next: &Self) -> bool {
        match (self.numbers, next.numbers) {
            (Some(first), Some(second)) => {
                self.prefix == next.prefix
                    && self.suffix == next.suffix
                    && first.has_same_padding(&second)
            }
            _ => false,
        }
    }
}

impl Numbers {
    /// `low` to `high`, padded with zeros to `width` digits.
    pub(super) fn new(low: u64, high: u64, width: usize) -> Self {
        let width = if width <= digits(low) { 0 } else { width };
        Self { low, high, width }
    }

    pub(super) fn len(&self) -> u64 {
        self.high - self.low + 1
    }

    /// The length of the longest number.
    pub(super) fn longest(&self) -> usize {
        digits(self.high).max(self.width)
    }

    /// Appends `next`, if it continues these numbers and has the same padding. Returns whether it
    /// did.
    pub(super) fn extend(&mut self, next: &Self) -> bool {
        let follows = self.high + 1 == next.low && self.has_same_padding(next);
        if follows {
            self.high = next.high;
        }
        follows
    }

    /// The name at `offset` between `prefix` and `suffix`.
    pub(super) fn name(&self, prefix: &str, offset: u64, suffix: &str) -> String {
        format!("{prefix}{}{suffix}", self.padded(self.low + offset))
    }

    /// Whether the numbers of `next` would be printed the same with the width of these.
    fn has_same_padding(&self, next: &Self) -> bool {
        self.width == next.width || (next.width == 0 && digits(next.low) >= self.width)
    }

    fn padded(&self, number: u64) -> PaddedNumber {
        let width = self.width;
        PaddedNumber { number, width }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.padded(self.low).fmt(formatter)?;
        if self.low < self.high {
            write!(formatter, "-{}", self.padded(self.high))?;
        }
        Ok(())
    }
}

impl fmt::Display for PaddedNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:0width$}", self.number, width = self.width)
    }
}

/// The number of digits of `number` without padding.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_its_last_number() {
        for (name, prefix, number) in [
            ("foo12", "foo", Some("12")),
            ("foo012", "foo", Some("012")),
            ("14636", "", Some("14636")),
            ("foo-1a-2", "foo-1a-", Some("2")),
            ("fooi", "fooi", None),
            ("foo0-eth", "foo0-eth", None),
            // Nineteen digits are too many for a number.
            ("a1234567890123456789", "a1234567890123456789", None),
        ] {
            let run = Run::single(name);
            assert_eq!(run.prefix, prefix, "{name}");
            assert_eq!(run.numbers.map(|n| n.to_string()).as_deref(), number, "{name}");
            assert_eq!(run.name(0), name);
        }
    }

    #[test]
    fn numbers_extend_only_when_padding_agrees() {
        for (first, second, extends) in [
            ((8, 9, 2), (10, 11, 0), true),
            ((8, 9, 2), (10, 10, 2), true),
            ((8, 9, 0), (10, 10, 0), true),
            ((8, 9, 0), (10, 10, 3), false),
            ((8, 9, 3), (10, 10, 0), false),
            ((1, 2, 0), (4, 4, 0), false),
            ((1, 2, 0), (2, 3, 0), false),
        ] {
            let mut numbers = Numbers::new(first.0, first.1, first.2);
            let next = Numbers::new(second.0, second.1, second.2);
            assert_eq!(numbers.extend(&next), extends, "{first:?} {second:?}");
        }
    }

    #[test]
    fn find_requires_the_same_padding() {
        let run = Run {
            prefix: "i".to_owned(),
            numbers: Some(Numbers::new(0, 12, 2)),
            suffix: "-e".to_owned(),
        };
        for (name, offset) in [
            ("i00-e", Some(0)),
            ("i12-e", Some(12)),
            ("i13-e", None),
            ("i0-e", None),
            ("i000-e", None),
            ("i+1-e", None),
            ("i01", None),
            ("i-e", None),
            ("-e", None),
        ] {
            assert_eq!(run.find(name), offset, "{name}");
        }
    }
}
