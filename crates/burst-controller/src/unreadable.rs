//! Objects that exist and cannot be read. They must not be taken for deleted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use flux_operator_service::lock::lock;
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store};

/// An object, as far as it is known.
#[derive(Debug)]
pub(crate) enum Found<K> {
    /// It exists.
    Readable(Arc<K>),
    /// It exists, and cannot be read.
    Unreadable,
    /// It does not exist.
    Missing,
}

/// Those of all kinds. One is added before the store loses it, and removed after the store shows it, or after
/// a list without it.
#[derive(Clone, Default)]
pub(crate) struct Unreadable(Arc<Mutex<HashMap<String, UnreadableOfKind>>>);

/// Those of one kind, by namespace and name.
#[derive(Default)]
struct UnreadableOfKind {
    known: HashSet<(String, String)>,
    /// Those of the list that is being received.
    listed: HashSet<(String, String)>,
}

impl Unreadable {
    /// Looks for an object of a store. It is not missing while it becomes unreadable, or readable again.
    pub(crate) fn find<K>(&self, store: &Store<K>, object: &ObjectRef<K>) -> Found<K>
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        // It is added here before the store loses it, and removed after the store shows it.
        if self.contains(object) {
            return Found::Unreadable;
        }
        match store.get(object) {
            Some(found) => Found::Readable(found),
            None if self.contains(object) => Found::Unreadable,
            None => Found::Missing,
        }
    }

    /// Whether there is such an object in a namespace.
    pub(crate) fn has_any<K: Resource<DynamicType = ()>>(&self, namespace: &str) -> bool {
        self.with::<K, _>(|objects| objects.known.iter().any(|(of, _)| of == namespace))
    }

    pub(crate) fn contains<K: Resource<DynamicType = ()>>(&self, object: &ObjectRef<K>) -> bool {
        let key = key(object);
        self.with::<K, _>(|objects| objects.known.contains(&key))
    }

    pub(crate) fn insert<K: Resource<DynamicType = ()>>(&self, object: &ObjectRef<K>) {
        self.with::<K, _>(|objects| objects.known.insert(key(object)));
    }

    pub(crate) fn insert_listed<K: Resource<DynamicType = ()>>(&self, object: &ObjectRef<K>) {
        self.with::<K, _>(|objects| {
            objects.known.insert(key(object));
            objects.listed.insert(key(object));
        });
    }

    pub(crate) fn remove<K: Resource<DynamicType = ()>>(&self, object: &ObjectRef<K>) {
        self.with::<K, _>(|objects| objects.known.remove(&key(object)));
    }

    pub(crate) fn begin_list<K: Resource<DynamicType = ()>>(&self) {
        self.with::<K, _>(|objects| objects.listed.clear());
    }

    /// The list is complete, and the store shows it.
    pub(crate) fn end_list<K: Resource<DynamicType = ()>>(&self) {
        self.with::<K, _>(|objects| objects.known = std::mem::take(&mut objects.listed));
    }

    fn with<K: Resource<DynamicType = ()>, T>(
        &self,
        act: impl FnOnce(&mut UnreadableOfKind) -> T,
    ) -> T {
        act(lock(&self.0).entry(K::kind(&()).into_owned()).or_default())
    }
}

fn key<K: Resource<DynamicType = ()>>(object: &ObjectRef<K>) -> (String, String) {
    (object.namespace.clone().unwrap_or_default(), object.name.clone())
}
