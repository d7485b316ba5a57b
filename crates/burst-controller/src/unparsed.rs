//! Objects of a list or a watch, as text. They are parsed one at a time: a page of a list is in memory as a
//! whole, and parsed, an object may take many times the memory of its text.

use std::borrow::Cow;
use std::marker::PhantomData;

use flux_operator_service::guarded::Guarded;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::errors::cut;

/// An object that is not parsed yet.
#[derive(Clone, Debug)]
pub(crate) struct Unparsed<K> {
    /// Its name, its namespace and its version, which a watch needs.
    metadata: ObjectMeta,
    text: Box<RawValue>,
    kind: PhantomData<K>,
}

impl<K: DeserializeOwned> Unparsed<K> {
    /// Parses it. The error is what is wrong with it.
    pub(crate) fn parse(self) -> Result<K, String> {
        match serde_json::from_str(self.text.get()) {
            Ok(Guarded(object)) => object.map_err(|invalid| invalid.error),
            // Not even its metadata can be parsed.
            Err(error) => Err(cut(&error.to_string())),
        }
    }
}

/// The part of an object that is parsed at once.
#[derive(Deserialize)]
struct OnlyIdentity {
    metadata: Identity,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
}

/// From JSON, as its text is needed. An event of a watch must have its type before its object, as API servers
/// send it: otherwise serde keeps the object as a tree.
impl<'de, K> Deserialize<'de> for Unparsed<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unparsed<K>, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let identity = serde_json::from_str(text.get()).map_err(Error::custom)?;
        let OnlyIdentity { metadata: Identity { name, namespace, resource_version } } = identity;
        let metadata = ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() };
        Ok(Unparsed { metadata, text, kind: PhantomData })
    }
}

impl<K: Resource> Resource for Unparsed<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flux_operator_api::BurstPolicy;
    use kube::ResourceExt;
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::{Value, json};

    use super::*;

    fn policy(labels: usize, target: &Value) -> Value {
        let labels: BTreeMap<String, &str> =
            (0..labels).map(|number| (format!("l{number}"), "")).collect();
        json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
            "metadata": { "name": "p", "namespace": "ns", "resourceVersion": "7", "labels": labels },
            "spec": { "selector": {}, "limits": { "nodes": 4 }, "targets": [target] } })
    }

    fn mock() -> Value {
        json!({ "name": "t", "maxNodes": 4, "mock": {} })
    }

    /// 50 policies with 65,536 labels each would take half a gigabyte.
    #[test]
    fn objects_of_a_page_are_not_parsed_together() {
        let list = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicyList",
            "metadata": { "resourceVersion": "9" }, "items": [policy(1000, &mock()), policy(0, &json!(1))] });
        let list: ObjectList<Unparsed<BurstPolicy>> =
            serde_json::from_str(&list.to_string()).unwrap();
        for object in &list.items {
            let found = (object.name_any(), object.namespace(), object.resource_version());
            assert_eq!(found, ("p".into(), Some("ns".into()), Some("7".into())));
            assert!(object.labels().is_empty());
        }
        let [first, second] = list.items.try_into().unwrap();
        assert_eq!(first.parse().unwrap().labels().len(), 1000);
        let error = second.parse().unwrap_err();
        assert!(error.contains("invalid type: integer `1`"), "{error}");
    }

    /// kube's own guard cannot parse them, because they are kept as text.
    #[test]
    fn variables_of_a_target_are_parsed() {
        let target = json!({ "name": "t", "maxNodes": 4, "clusterAPI": {
            "class": { "name": "c", "workers": "w" }, "version": "v1.34.0",
            "variables": { "zone": [{ "a": 0 }] } } });
        let text = format!(r#"{{"type":"ADDED","object":{}}}"#, policy(0, &target));
        let event: WatchEvent<Unparsed<BurstPolicy>> = serde_json::from_str(&text).unwrap();
        let WatchEvent::Added(read) = event else { panic!("it is added") };
        let read = read.parse().unwrap().spec.targets[0].cluster_api.clone();
        assert_eq!(read.unwrap().variables.len(), 1);
    }
}
