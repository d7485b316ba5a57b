//! Ranks in an order of their own: `4-5,2`. Printed like an idset, but the order is kept.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::IdSet;

/// Different ranks, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RankList(Vec<u32>);

/// The largest number of ranks in a list.
const MAX_RANKS: usize = 1 << 17;

/// Why a text is not a list of ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a list of different ranks, such as 4-5,2")]
pub struct RankListError;

impl RankList {
    /// The number of ranks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rank at a position.
    pub fn nth(&self, index: usize) -> Option<u32> {
        self.0.get(index).copied()
    }

    /// The ranks, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The ranks as a set.
    pub fn to_set(&self) -> IdSet {
        self.iter().collect()
    }

    /// The first `count` ranks, and the others.
    pub fn split_at(&self, count: usize) -> (RankList, RankList) {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        (RankList(first.to_vec()), RankList(rest.to_vec()))
    }

    /// This list with another after it. Ranks that are already in it are left out.
    pub fn followed_by(&self, other: &RankList) -> RankList {
        self.iter().chain(other.iter()).collect()
    }
}

/// A rank that occurs again is left out.
impl FromIterator<u32> for RankList {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> RankList {
        let mut known = std::collections::HashSet::new();
        RankList(ranks.into_iter().filter(|rank| known.insert(*rank)).collect())
    }
}

impl fmt::Display for RankList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut separator = "";
        while let Some(first) = rest.first() {
            let is_next = |(rank, offset): (&u32, u32)| first.checked_add(offset) == Some(*rank);
            let run = rest.iter().zip(0..).take_while(|it| is_next(*it)).count();
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", rest[run - 1])?,
            }
            rest = &rest[run..];
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for RankList {
    type Err = RankListError;

    fn from_str(text: &str) -> Result<RankList, RankListError> {
        let mut ranks = Vec::new();
        for element in text.split(',').filter(|_| !text.is_empty()) {
            let (low, high) = element.split_once('-').unwrap_or((element, element));
            let number = |digits: &str| digits.parse::<u32>().map_err(|_| RankListError);
            let (low, high) = (number(low)?, number(high)?);
            let count = high.checked_sub(low).ok_or(RankListError)? as usize;
            if ranks.len().saturating_add(count) >= MAX_RANKS {
                return Err(RankListError);
            }
            ranks.extend(low..=high);
        }
        let count = ranks.len();
        let list: RankList = ranks.into_iter().collect();
        if list.len() == count { Ok(list) } else { Err(RankListError) }
    }
}

impl Serialize for RankList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RankList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<RankList, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_order_is_kept() {
        let list: RankList = [4, 5, 2, 7, 6].into_iter().collect();
        assert_eq!(list.to_string(), "4-5,2,7,6");
        assert_eq!("4-5,2,7,6".parse(), Ok(list.clone()));
        assert_eq!(list.to_set().to_string(), "2,4-7");
        let (first, rest) = list.split_at(3);
        assert_eq!((first.to_string(), rest.to_string()), ("4-5,2".into(), "7,6".into()));
        assert_eq!(rest.followed_by(&first).to_string(), "7,6,4-5,2");
    }

    #[test]
    fn invalid_texts_are_rejected() {
        for text in [",", "1,", "3-1", "1,1", "x", "-1", "0-4294967295", "1-2-3"] {
            assert_eq!(text.parse::<RankList>(), Err(RankListError), "{text}");
        }
        assert_eq!("".parse(), Ok(RankList::default()));
    }

    proptest! {
        #[test]
        fn parsing_and_printing_agree(ranks in proptest::collection::vec(0_u32..50, 0..30)) {
            let list: RankList = ranks.into_iter().collect();
            prop_assert_eq!(list.to_string().parse(), Ok(list));
        }
    }
}
