//! The order of the waiting jobs, and the position of each.

use std::cmp::Reverse;

use crate::{Millis, Uid, Workload};

/// The sort key of a job: higher priority first, then the older job, then the
/// smaller uid, because Kubernetes' times are whole seconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey {
    pub(crate) priority: Reverse<i32>,
    pub(crate) since: Millis,
    pub(crate) uid: Uid,
}

impl SortKey {
    /// The sort key of a workload.
    pub(crate) fn of(workload: &Workload) -> SortKey {
        let Workload { priority, waiting_since: since, ref uid, .. } = *workload;
        SortKey { priority: Reverse(priority), since, uid: uid.clone() }
    }
}

/// A sorted list in chunks: an insertion or removal moves the keys of one chunk, and a position
/// is counted by chunks. A `BTreeSet` has no positions.
#[derive(Debug, Default)]
pub(crate) struct SortedKeys {
    /// No chunk is empty, and the chunks are in order.
    chunks: Vec<Vec<SortKey>>,
    length: usize,
}

/// A chunk that becomes longer is split in two. With 50,000 jobs there are some 200 chunks of
/// 10 kB, so that neither moving the keys of a chunk nor counting all chunks takes more than a
/// fraction of a microsecond.
const MAX_CHUNK: usize = 512;

impl SortedKeys {
    pub(crate) fn insert(&mut self, key: SortKey) {
        if self.chunks.is_empty() {
            self.chunks.push(Vec::new());
        }
        let number = self.chunk_of(&key).min(self.chunks.len() - 1);
        let chunk = &mut self.chunks[number];
        let Err(at) = chunk.binary_search(&key) else { return };
        chunk.insert(at, key);
        self.length += 1;
        if chunk.len() > MAX_CHUNK {
            let rest = chunk.split_off(MAX_CHUNK / 2);
            self.chunks.insert(number + 1, rest);
        }
    }

    pub(crate) fn remove(&mut self, key: &SortKey) {
        let number = self.chunk_of(key);
        let Some(piece) = self.chunks.get_mut(number) else { return };
        let Ok(at) = piece.binary_search(key) else { return };
        piece.remove(at);
        self.length -= 1;
        if piece.is_empty() {
            self.chunks.remove(number);
        }
    }

    /// The number of keys before this one, if it is in the list.
    pub(crate) fn position(&self, key: &SortKey) -> Option<usize> {
        let number = self.chunk_of(key);
        let at = self.chunks.get(number)?.binary_search(key).ok()?;
        Some(self.chunks[..number].iter().map(Vec::len).sum::<usize>() + at)
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SortKey> {
        self.chunks.iter().flatten()
    }

    /// The first chunk that does not end before the key.
    fn chunk_of(&self, key: &SortKey) -> usize {
        self.chunks.partition_point(|piece| piece.last().is_some_and(|last| last < key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn key(priority: i32, since: Millis, uid: &str) -> SortKey {
        SortKey { priority: Reverse(priority), since, uid: uid.into() }
    }

    #[test]
    fn q22_priority_comes_before_age_and_age_before_uid() {
        let mut order = SortedKeys::default();
        for key in [key(0, 5, "c"), key(0, 5, "b"), key(0, 4, "z"), key(1, 9, "y")] {
            order.insert(key);
        }
        let uids: Vec<&str> = order.iter().map(|key| &*key.uid.0).collect();
        assert_eq!(uids, ["y", "z", "b", "c"]);
    }

    #[test]
    fn positions_are_those_of_a_plain_list() {
        // More keys than fit into one chunk, in neither ascending nor descending order.
        let keys: Vec<SortKey> =
            (0..3000).map(|number| key(0, number * 7919 % 3000, &format!("{number}"))).collect();
        let (mut order, mut model) = (SortedKeys::default(), BTreeSet::new());
        for key in &keys {
            order.insert(key.clone());
            order.insert(key.clone());
            model.insert(key.clone());
        }
        for key in keys.iter().step_by(3) {
            order.remove(key);
            order.remove(key);
            model.remove(key);
        }
        assert!(order.chunks.len() > 2, "the test needs several chunks");
        assert_eq!(order.len(), model.len());
        assert!(order.iter().eq(model.iter()));
        for (position, key) in model.iter().enumerate() {
            assert_eq!(order.position(key), Some(position));
        }
        assert_eq!(order.position(&keys[0]), None);
    }
}
