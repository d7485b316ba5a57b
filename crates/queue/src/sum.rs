//! What several jobs take together.

use std::collections::BTreeMap;

use crate::{Resource, Resources};

/// A sum of amounts that are added and later taken away again.
///
/// Its numbers are so wide that no number of jobs reaches their end. A sum that stopped at
/// the largest amount would be too small once something is taken away, and the quota would
/// be given a second time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum(BTreeMap<Resource, i128>);

impl Sum {
    /// Adds amounts.
    pub(crate) fn add(&mut self, more: &Resources) {
        more.iter().for_each(|(resource, amount)| self.change(resource, i128::from(amount)));
    }

    /// Takes amounts away that were added before.
    pub(crate) fn subtract(&mut self, less: &Resources) {
        less.iter().for_each(|(resource, amount)| self.change(resource, -i128::from(amount)));
    }

    /// How much there is of a resource, or the largest amount if it is more than that.
    pub(crate) fn amount(&self, resource: &Resource) -> i64 {
        self.0.get(resource).map_or(0, |amount| nearest(*amount))
    }

    /// Whether nothing is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is within limits.
    pub(crate) fn fits(&self, limits: &Resources) -> bool {
        self.0.iter().all(|(resource, amount)| {
            *amount <= 0 || limits.get(resource).is_none_or(|limit| *amount <= i128::from(limit))
        })
    }

    /// The amounts, as far as they can be told.
    pub(crate) fn resources(&self) -> Resources {
        Resources::of(self.0.iter().map(|(resource, amount)| (resource.clone(), nearest(*amount))))
    }

    fn change(&mut self, resource: &Resource, by: i128) {
        let amount = self.0.get(resource).copied().unwrap_or_default().saturating_add(by);
        match amount {
            0 => drop(self.0.remove(resource)),
            _ => drop(self.0.insert(resource.clone(), amount)),
        }
    }
}

impl From<&Resources> for Sum {
    fn from(amounts: &Resources) -> Sum {
        let mut sum = Sum::default();
        sum.add(amounts);
        sum
    }
}

fn nearest(amount: i128) -> i64 {
    let end = if amount < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(amount).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::nodes_of;

    #[test]
    fn what_was_added_can_be_taken_away_however_large_it_was() {
        let mut sum = Sum::default();
        sum.add(&nodes_of(i64::MAX));
        sum.add(&nodes_of(i64::MAX));
        assert_eq!(sum.resources(), nodes_of(i64::MAX));
        assert!(!sum.fits(&nodes_of(i64::MAX)));
        sum.subtract(&nodes_of(i64::MAX));
        assert_eq!(sum.resources(), nodes_of(i64::MAX));
        assert!(sum.fits(&nodes_of(i64::MAX)));
        sum.subtract(&nodes_of(i64::MAX));
        assert!(sum.is_empty());
    }

    #[test]
    fn a_limit_counts_for_its_own_resource() {
        let sum = Sum::from(&nodes_of(3));
        assert!(sum.fits(&Resources::of([(Resource::Gpus, 0)])));
        assert!(sum.fits(&nodes_of(3)) && !sum.fits(&nodes_of(2)));
        assert!(!Sum::from(&nodes_of(-1)).is_empty());
        assert!(Sum::from(&nodes_of(-1)).fits(&nodes_of(-2)), "nothing is not too much");
    }
}
