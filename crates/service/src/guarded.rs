//! Objects of a list or a watch, of which one that cannot be parsed does not stop the others.

use std::borrow::Cow;

use kube::Resource;
use kube::core::ObjectMeta;
use kube::core::error_boundary::InvalidObject;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The longest error of an object. It quotes the object, which may have one long text.
const MAX_ERROR: usize = 1024;

/// An object, or its metadata and the error if it cannot be parsed.
///
/// As kube's `DeserializeGuard`, but the object is parsed from its text. kube parses a tree of values
/// first and copies it, which takes 700 times the memory of the text for a list of small objects: one
/// user's object of 1 MB would take more than a program may have.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, InvalidObject>);

/// The part of an object that the API server has validated, whatever its kind.
#[derive(Deserialize)]
struct OnlyMetadata {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// From JSON, as its text is needed. An event of a watch must have its type before its object, as API servers
/// send it: otherwise serde keeps the object as a tree.
impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Guarded<K>, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let error = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Guarded(Ok(object))),
            Err(error) => error,
        };
        let OnlyMetadata { metadata } = serde_json::from_str(text.get()).map_err(Error::custom)?;
        Ok(Guarded(Err(InvalidObject { error: message(&error), metadata })))
    }
}

/// What is wrong with an object. The position is left out: the object is one line of JSON.
fn message(error: &serde_json::Error) -> String {
    let mut message = error.to_string();
    if let Some(end) = message.rfind(" at line ") {
        message.truncate(end);
    }
    message.truncate(message.floor_char_boundary(MAX_ERROR));
    message.shrink_to_fit();
    message
}

impl<K: Resource> Resource for Guarded<K> {
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
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(invalid) => &mut invalid.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::Value;

    use super::*;

    fn object(name: &str, data: &str) -> String {
        let metadata = format!(r#"{{"name":"{name}","namespace":"ns"}}"#);
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata},"data":{data}}}"#)
    }

    #[test]
    fn an_object_that_cannot_be_parsed_is_known_by_its_name_and_does_not_stop_the_others() {
        let items = [object("a", r#"{"x":"1"}"#), object("b", r#""many""#), object("c", "{}")];
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMapList","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
            items.join(",")
        );
        let list: ObjectList<Guarded<ConfigMap>> = serde_json::from_str(&list).unwrap();
        let names: Vec<String> = list.items.iter().map(|it| it.name_any()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let lengths = list
            .items
            .iter()
            .map(|it| it.0.as_ref().ok().map(|it| it.data.iter().flatten().count()));
        assert_eq!(lengths.collect::<Vec<_>>(), [Some(1), None, Some(0)]);
        let error = &list.items[1].0.as_ref().unwrap_err().error;
        assert_eq!(error, "invalid type: string \"many\", expected a map");
    }

    #[test]
    fn events_of_a_watch_are_parsed() {
        for (data, is_valid) in [("{}", true), ("[]", false)] {
            let event = format!(r#"{{"type":"ADDED","object":{}}}"#, object("a", data));
            let event: WatchEvent<Guarded<ConfigMap>> = serde_json::from_str(&event).unwrap();
            let WatchEvent::Added(found) = event else { panic!("it is added") };
            assert_eq!((found.name_any().as_str(), found.0.is_ok()), ("a", is_valid));
        }
    }

    #[test]
    fn an_error_that_quotes_a_long_text_is_cut() {
        let long = Value::from("é".repeat(10_000)).to_string();
        let found: Guarded<ConfigMap> = serde_json::from_str(&object("a", &long)).unwrap();
        let error = found.0.unwrap_err().error;
        assert!(error.len() <= MAX_ERROR && error.starts_with("invalid type"), "{error}");
    }
}
