//! What several jobs use together.

use std::collections::BTreeMap;

use crate::{Resource, Resources};

/// A sum of amounts that are added and later subtracted again.
///
/// Its numbers are wide enough for any number of jobs. A sum that saturated at the largest amount
/// would be too small after a subtraction, and the same quota would be granted twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceSum(BTreeMap<Resource, i128>);

impl ResourceSum {
    /// Adds amounts.
    pub(crate) fn add(&mut self, more: &Resources) {
        more.iter().for_each(|(resource, amount)| self.change(resource, i128::from(amount)));
    }

    /// Subtracts amounts that were added before.
    pub(crate) fn subtract(&mut self, less: &Resources) {
        less.iter().for_each(|(resource, amount)| self.change(resource, -i128::from(amount)));
    }

    /// The amount of a resource, saturated at the largest `i64`.
    pub(crate) fn amount(&self, resource: &Resource) -> i64 {
        self.0.get(resource).map_or(0, |amount| saturate(*amount))
    }

    /// Whether all amounts are 0.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the amounts are within limits.
    pub(crate) fn fits(&self, limits: &Resources) -> bool {
        self.0.iter().all(|(resource, amount)| {
            *amount <= 0 || limits.get(resource).is_none_or(|limit| *amount <= i128::from(limit))
        })
    }

    /// The amounts, saturated.
    pub(crate) fn resources(&self) -> Resources {
        Resources::of(self.0.iter().map(|(resource, amount)| (resource.clone(), saturate(*amount))))
    }

    fn change(&mut self, resource: &Resource, by: i128) {
        let amount = self.0.get(resource).copied().unwrap_or_default().saturating_add(by);
        match amount {
            0 => drop(self.0.remove(resource)),
            _ => drop(self.0.insert(resource.clone(), amount)),
        }
    }
}

impl From<&Resources> for ResourceSum {
    fn from(amounts: &Resources) -> ResourceSum {
        let mut sum = ResourceSum::default();
        sum.add(amounts);
        sum
    }
}

fn saturate(amount: i128) -> i64 {
    let end = if amount < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(amount).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::nodes_of;

    #[test]
    fn any_amount_that_was_added_can_be_subtracted() {
        let mut sum = ResourceSum::default();
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
        let sum = ResourceSum::from(&nodes_of(3));
        assert!(sum.fits(&Resources::of([(Resource::Gpus, 0)])));
        assert!(sum.fits(&nodes_of(3)) && !sum.fits(&nodes_of(2)));
        assert!(!ResourceSum::from(&nodes_of(-1)).is_empty());
        assert!(
            ResourceSum::from(&nodes_of(-1)).fits(&nodes_of(-2)),
            "a negative amount always fits"
        );
    }
}
