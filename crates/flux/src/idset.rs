//! Idsets: `0-3,7`. Follows Flux RFC 22 and, where the RFC is silent, flux-core's libidset.
//!
//! IDs are ranks, cores or GPUs. The set is stored as ascending ranges, so `0-4294967295` costs as
//! much as `0`, and a set takes at most a few times the memory of the text it was parsed from.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An ordered set of unique, non-negative IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IdSet {
    /// Ascending, disjoint, and never adjacent: `0-3` and `4-5` are one range. So equal sets have
    /// equal ranges, and printing is straightforward.
    ranges: Vec<Range>,
}

/// A range of IDs, including both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Range {
    low: u32,
    high: u32,
}

/// Why a text is not an idset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdSetError {
    /// A bracket that is not part of a surrounding pair.
    #[error("idset has mismatched or nested brackets")]
    Brackets,
    /// Something other than a number or a range between two commas.
    #[error("idset element {element} is not a number or a range")]
    Element {
        /// Position among the comma-separated elements, from 0.
        element: usize,
    },
    /// RFC 22 forbids `01`.
    #[error("idset element {element} has a leading zero")]
    LeadingZero {
        /// Position among the comma-separated elements, from 0.
        element: usize,
    },
    /// Larger than the maximum ID.
    #[error("idset element {element} is larger than {}", u32::MAX)]
    TooLarge {
        /// Position among the comma-separated elements, from 0.
        element: usize,
    },
    /// `3-0`, and also `3-3`, which libidset rejects.
    #[error("idset element {element} is a range that does not ascend")]
    Descending {
        /// Position among the comma-separated elements, from 0.
        element: usize,
    },
    /// Not greater than every ID before it, as in `3,2` or `2,2`.
    #[error("idset element {element} is out of order")]
    OutOfOrder {
        /// Position among the comma-separated elements, from 0.
        element: usize,
    },
}

impl IdSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The IDs `0..count`: the ranks of `count` brokers, or the cores of one node.
    pub fn first_n(count: u32) -> Self {
        let ranges = count.checked_sub(1).map(|high| Range { low: 0, high }).into_iter().collect();
        Self { ranges }
    }

    /// The number of IDs.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(Range::len).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The smallest ID.
    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|range| range.low)
    }

    /// The largest ID.
    pub fn last(&self) -> Option<u32> {
        self.ranges.last().map(|range| range.high)
    }

    /// Whether `id` is in the set.
    pub fn contains(&self, id: u32) -> bool {
        self.position(id).is_some()
    }

    /// The number of IDs in the set that are smaller than `id`, if `id` is in it. R maps ranks to
    /// its node list this way.
    pub fn position(&self, id: u32) -> Option<u64> {
        let index = self.ranges.partition_point(|range| range.high < id);
        let range = self.ranges.get(index).filter(|range| range.low <= id)?;
        let before: u64 = self.ranges[..index].iter().map(Range::len).sum();
        Some(before + u64::from(id - range.low))
    }

    /// Adds `id`. Returns whether it was new.
    pub fn insert(&mut self, id: u32) -> bool {
        if self.contains(id) {
            return false;
        }
        *self = self.union(&Self { ranges: vec![Range { low: id, high: id }] });
        true
    }

    /// The IDs that are in either set.
    pub fn union(&self, other: &Self) -> Self {
        Self::union_all([self, other])
    }

    /// The IDs that are in any of the sets. Faster than repeated unions.
    pub fn union_all<'a>(sets: impl IntoIterator<Item = &'a Self>) -> Self {
        let all = sets.into_iter().flat_map(|set| set.ranges.iter().copied());
        Self::from_ranges(all.collect())
    }

    /// The IDs of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut ranges = Vec::new();
        let mut holes = other.ranges.iter().peekable();
        for range in &self.ranges {
            // The start of the rest of `range`, above the holes already cut; may exceed u32::MAX.
            let mut low = u64::from(range.low);
            while holes.next_if(|hole| u64::from(hole.high) < low).is_some() {}
            let mut cuts = holes.clone();
            while let Some(hole) = cuts.next_if(|hole| hole.low <= range.high) {
                ranges.extend(Range::between(low, u64::from(hole.low)));
                low = u64::from(hole.high) + 1;
            }
            ranges.extend(Range::between(low, u64::from(range.high) + 1));
        }
        Self { ranges }
    }

    /// The IDs that are in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    /// Whether every ID of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// An iterator over the IDs, ascending. Lazy: ranges are not expanded.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|range| range.low..=range.high)
    }

    /// Sorts and joins ranges that may overlap.
    fn from_ranges(mut all: Vec<Range>) -> Self {
        all.sort_unstable_by_key(|range| range.low);
        let mut ranges: Vec<Range> = Vec::new();
        for range in all {
            match ranges.last_mut() {
                Some(last) if range.low <= last.high.saturating_add(1) => {
                    last.high = last.high.max(range.high);
                }
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }
}

impl Range {
    fn len(&self) -> u64 {
        u64::from(self.high - self.low) + 1
    }

    /// The range from `low` to `end`, excluding `end`, unless it is empty.
    fn between(low: u64, end: u64) -> Option<Self> {
        (low < end).then(|| Self {
            low: u32::try_from(low).expect("an end of an existing range"),
            high: u32::try_from(end - 1).expect("an end of an existing range"),
        })
    }
}

impl FromIterator<u32> for IdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let ranges = ids.into_iter().map(|id| Range { low: id, high: id });
        Self::from_ranges(ranges.collect())
    }
}

impl FromStr for IdSet {
    type Err = IdSetError;

    /// Parses an idset with or without surrounding brackets. Empty elements are skipped, as in
    /// libidset, so `""`, `"[]"` and `","` are all the empty set.
    fn from_str(text: &str) -> Result<Self, IdSetError> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if inner.contains(['[', ']']) {
            return Err(IdSetError::Brackets);
        }
        let mut ranges: Vec<Range> = Vec::new();
        for (element, text) in inner.split(',').enumerate() {
            if text.is_empty() {
                continue;
            }
            let range = parse_range(text, element)?;
            match ranges.last_mut() {
                Some(last) if range.low <= last.high => {
                    return Err(IdSetError::OutOfOrder { element });
                }
                // Not an overflow: `range.low` is above `last.high`.
                Some(last) if range.low == last.high + 1 => last.high = range.high,
                _ => ranges.push(range),
            }
        }
        Ok(Self { ranges })
    }
}

fn parse_range(text: &str, element: usize) -> Result<Range, IdSetError> {
    let Some((low, high)) = text.split_once('-') else {
        let id = parse_id(text, element)?;
        return Ok(Range { low: id, high: id });
    };
    let (low, high) = (parse_id(low, element)?, parse_id(high, element)?);
    if high <= low {
        return Err(IdSetError::Descending { element });
    }
    Ok(Range { low, high })
}

fn parse_id(text: &str, element: usize) -> Result<u32, IdSetError> {
    // Rust's own parser would also accept `+1`.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(IdSetError::Element { element });
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(IdSetError::LeadingZero { element });
    }
    text.parse().map_err(|_| IdSetError::TooLarge { element })
}

impl fmt::Display for IdSet {
    /// The canonical form: adjacent IDs as ranges, no brackets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if range.low == range.high {
                write!(formatter, "{comma}{}", range.low)?;
            } else {
                write!(formatter, "{comma}{}-{}", range.low, range.high)?;
            }
        }
        Ok(())
    }
}

impl Serialize for IdSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IdSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> IdSet {
        text.parse().unwrap()
    }

    #[test]
    fn parses_and_prints_the_vectors_of_rfc_22_and_libidset() {
        for (text, printed, ids) in [
            ("1,2,3,5,6,42", "1-3,5-6,42", &[1, 2, 3, 5, 6, 42][..]),
            ("1-3,5-6,42", "1-3,5-6,42", &[1, 2, 3, 5, 6, 42]),
            ("[1-3,5-6,42]", "1-3,5-6,42", &[1, 2, 3, 5, 6, 42]),
            ("2", "2", &[2]),
            ("7-9", "7-9", &[7, 8, 9]),
            ("1,7-9,14,16", "1,7-9,14,16", &[1, 7, 8, 9, 14, 16]),
            ("2,3,4,5", "2-5", &[2, 3, 4, 5]),
            ("1048576", "1048576", &[1_048_576]),
            ("[0]", "0", &[0]),
            ("", "", &[]),
            ("[]", "", &[]),
            (",1,,3,", "1,3", &[1, 3]),
        ] {
            let read = set(text);
            assert_eq!(read.to_string(), printed, "{text}");
            assert_eq!(read.iter().collect::<Vec<_>>(), ids, "{text}");
            assert_eq!(read.len(), ids.len() as u64, "{text}");
        }
    }

    #[test]
    fn rejects_what_libidset_rejects() {
        use IdSetError::*;
        for (text, error) in [
            ("4.2", Element { element: 0 }),
            ("1-2x", Element { element: 0 }),
            ("+1", Element { element: 0 }),
            ("0-", Element { element: 0 }),
            ("[-5]", Element { element: 0 }),
            ("1, 2", Element { element: 1 }),
            ("1,02", LeadingZero { element: 1 }),
            ("00", LeadingZero { element: 0 }),
            ("3,2", OutOfOrder { element: 1 }),
            ("2,2,2,2", OutOfOrder { element: 1 }),
            ("0-4,4-5", OutOfOrder { element: 1 }),
            ("3-0", Descending { element: 0 }),
            ("3-3", Descending { element: 0 }),
            ("4294967296", TooLarge { element: 0 }),
            ("[0", Brackets),
            ("0]", Brackets),
            ("[[0]]", Brackets),
            ("0]2", Brackets),
            ("[", Brackets),
        ] {
            assert_eq!(text.parse::<IdSet>(), Err(error), "{text}");
        }
    }

    #[test]
    fn the_largest_set_costs_one_range() {
        let everything = set("0-4294967295");
        assert_eq!(everything.len(), 1 << 32);
        assert_eq!(everything.last(), Some(u32::MAX));
        assert_eq!(everything.ranges.len(), 1);
        assert_eq!(everything.difference(&set("0-4294967294")), set("4294967295"));
        assert_eq!(everything.union(&everything), everything);
    }

    #[test]
    fn inserting_joins_ranges() {
        let mut ids = set("0-3,5");
        assert!(ids.insert(4));
        assert!(!ids.insert(4));
        assert!(ids.insert(u32::MAX));
        assert_eq!(ids, set("0-5,4294967295"));
        assert_eq!([3, 1, 2, 2].into_iter().collect::<IdSet>(), set("1-3"));
    }

    #[test]
    fn difference_cuts_holes() {
        for (from, hole, left) in [
            ("0-9", "3-4,7", "0-2,5-6,8-9"),
            ("0-3,8-9", "2-8", "0-1,9"),
            ("0-3", "0-3", ""),
            ("5", "", "5"),
            ("1,5", "0-9", ""),
        ] {
            assert_eq!(set(from).difference(&set(hole)), set(left), "{from} - {hole}");
        }
        assert!(set("2-3").is_subset(&set("0-9")));
        assert!(!set("2-10").is_subset(&set("0-9")));
    }

    #[test]
    fn position_counts_the_ids_below() {
        let ids = set("2-3,7");
        assert_eq!(
            [2, 3, 7, 4, 8].map(|id| ids.position(id)),
            [Some(0), Some(1), Some(2), None, None]
        );
        assert_eq!((IdSet::first_n(4), IdSet::first_n(0)), (set("0-3"), set("")));
    }
}
