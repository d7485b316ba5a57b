//! One namespace must not keep the others waiting, whatever its users create.

use std::collections::HashMap;
use std::time::Duration;

/// How long decisions about the MiniClusters of one namespace may take before it is the turn of the
/// others. One about 10,000 jobs takes some 20 ms.
const TIME_OF_NAMESPACE: Duration = Duration::from_millis(500);

/// What was spent on each namespace.
#[derive(Default)]
pub(crate) struct TimeSpent(HashMap<String, Duration>);

impl TimeSpent {
    /// Whether a namespace has had its time.
    pub(crate) fn is_over(&self, namespace: &str) -> bool {
        self.0.get(namespace).is_some_and(|spent| *spent >= TIME_OF_NAMESPACE)
    }

    /// Adds what was spent on a namespace.
    pub(crate) fn add(&mut self, namespace: &str, time: Duration) {
        let spent = self.0.entry(namespace.to_owned()).or_default();
        *spent = spent.saturating_add(time);
    }
}

/// The first items, at most so many of each namespace, and at most so many in total.
pub(crate) fn first_of_each<T>(
    items: Vec<T>,
    namespace: impl Fn(&T) -> String,
    of_each: usize,
    in_total: usize,
) -> Vec<T> {
    let mut taken: HashMap<String, usize> = HashMap::new();
    let may_take = |item: &T| {
        let count = taken.entry(namespace(item)).or_default();
        *count = count.saturating_add(1);
        *count <= of_each
    };
    items.into_iter().filter(may_take).take(in_total).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_takes_long_has_to_wait() {
        let mut spent = TimeSpent::default();
        spent.add("greedy", TIME_OF_NAMESPACE / 2);
        assert!(!spent.is_over("greedy"));
        spent.add("greedy", TIME_OF_NAMESPACE / 2);
        assert!(spent.is_over("greedy") && !spent.is_over("other"));
    }

    #[test]
    fn a_namespace_with_many_items_leaves_room_for_others() {
        let many = (0..100).map(|number| ("greedy", number));
        let items: Vec<_> = many.chain([("other", 0), ("third", 0)]).collect();
        let first = |items: Vec<(&'static str, i32)>, of_each, in_total| {
            first_of_each(items, |it| it.0.to_owned(), of_each, in_total)
        };
        let expected = [("greedy", 0), ("greedy", 1), ("other", 0), ("third", 0)];
        assert_eq!(first(items.clone(), 2, 10), expected);
        assert_eq!(first(items, 2, 3), expected[..3]);
    }
}
