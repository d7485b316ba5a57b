//! From which values of a spec's fields an object was created, short enough for an annotation.
//!
//! A Job's template cannot change, so a change of the spec must be detected and
//! reported by field. The annotation has a hash for every field that went into the Job. The
//! template itself cannot be compared, because the next version of the operator
//! renders it differently and must leave a running Job alone.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A hash for every field that is fixed once an object was created from it, by its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(BTreeMap<String, String>);

impl Fingerprint {
    /// The fingerprint of a spec, without the fields that are `free` to change. Fields are
    /// distinguished to this depth.
    pub(crate) fn of(spec: &impl Serialize, free: &[&str], depth: usize) -> Fingerprint {
        let value = serde_json::to_value(spec).expect("a spec is JSON");
        let mut fields = BTreeMap::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            if !free.contains(&name.as_str()) {
                walk(name, value, depth.saturating_sub(1), &mut fields);
            }
        }
        Fingerprint(fields)
    }

    /// The value of the annotation.
    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(&self.0).expect("text is JSON")
    }

    /// Parses the value of an annotation; `None` if it is not one of ours.
    pub(crate) fn parse(text: &str) -> Option<Fingerprint> {
        serde_json::from_str(text).ok().map(Fingerprint)
    }

    /// The fields in which two specs differ.
    pub(crate) fn differences(&self, other: &Fingerprint) -> Vec<String> {
        let names = self.0.keys().chain(other.0.keys());
        let mut differing: Vec<String> = names
            .filter(|name| self.0.get(*name) != other.0.get(*name))
            .map(|name| format!("spec.{name}"))
            .collect();
        differing.sort();
        differing.dedup();
        differing
    }
}

fn walk(path: &str, value: &Value, depth: usize, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) if depth > 0 => {
            for (name, value) in map {
                walk(&format!("{path}.{name}"), value, depth.saturating_sub(1), fields);
            }
        }
        // An index does not count as a level.
        Value::Array(list) if depth > 0 => {
            for (index, value) in list.iter().enumerate() {
                walk(&format!("{path}[{index}]"), value, depth, fields);
            }
        }
        value => {
            fields.insert(path.to_owned(), hash(&value.to_string()));
        }
    }
}

/// Enough to distinguish two values, without revealing a secret value.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(spec: Value) -> Fingerprint {
        Fingerprint::of(&spec, &["size"], 2)
    }

    #[test]
    fn a_change_is_named_by_its_field() {
        let before = of(json!({ "containers": [{ "image": "a" }, { "name": "b" }] }));
        let after = of(json!({
            "containers": [{ "image": "c" }, { "name": "b" }],
            "pod": { "nodeSelector": { "a": "b" } },
            "flux": { "container": { "image": "d" } },
        }));
        let differences =
            ["spec.containers[0].image", "spec.flux.container", "spec.pod.nodeSelector"];
        assert_eq!(before.differences(&after), differences);
    }

    #[test]
    fn mutable_fields_are_not_compared() {
        let before = of(json!({ "containers": [{}] }));
        let after = of(json!({ "containers": [{}], "size": 3 }));
        assert_eq!(before.differences(&after), [""; 0]);
    }

    #[test]
    fn fields_are_distinguished_to_the_given_depth() {
        let of = |image: &str, depth| {
            Fingerprint::of(&json!({ "a": { "b": { "c": { "image": image } } } }), &[], depth)
        };
        assert_eq!(of("x", 1).differences(&of("y", 1)), ["spec.a"]);
        assert_eq!(of("x", 3).differences(&of("y", 3)), ["spec.a.b.c"]);
    }

    #[test]
    fn it_round_trips_and_its_hashes_are_stable() {
        let fingerprint = of(json!({ "containers": [{ "image": "a" }], "tasks": 3 }));
        assert_eq!(Fingerprint::parse(&fingerprint.to_text()), Some(fingerprint));
        assert_eq!(hash("abc"), "ba7816bf8f01cfea", "the vector of FIPS 180");
        assert_eq!(Fingerprint::parse("{"), None);
    }
}
