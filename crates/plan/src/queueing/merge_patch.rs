//! What has changed between two values, as a merge patch.

use serde::Serialize;
use serde_json::{Map, Value};

/// The JSON merge patch (RFC 7386) that changes `before` to `now`: a removed key is null.
/// None if they are the same.
pub fn merge_patch(before: &impl Serialize, now: &impl Serialize) -> Option<Value> {
    let value = |result: Result<Value, _>| result.expect("an object is JSON");
    difference(&value(serde_json::to_value(before)), &value(serde_json::to_value(now)))
}

fn difference(before: &Value, now: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, now) else {
        return (before != now).then(|| now.clone());
    };
    let deleted = old.keys().filter(|name| !new.contains_key(*name));
    let mut patch: Map<String, Value> = deleted.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        let change = match old.get(name) {
            Some(before) => difference(before, value),
            None => Some(value.clone()),
        };
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_testkit::merge;
    use serde_json::json;

    #[test]
    fn a_patch_changes_one_value_to_the_other_and_is_minimal() {
        for (before, now, patch) in [
            (json!({}), json!({}), None),
            (json!({ "a": 1 }), json!({ "a": 1 }), None),
            (json!({ "a": 1 }), json!({ "a": 2, "b": 3 }), Some(json!({ "a": 2, "b": 3 }))),
            (json!({ "a": 1, "b": 2 }), json!({ "b": 2 }), Some(json!({ "a": null }))),
            (
                json!({ "a": { "b": 1, "c": 2 } }),
                json!({ "a": { "b": 1, "d": [1] } }),
                Some(json!({ "a": { "c": null, "d": [1] } })),
            ),
            (json!({ "a": [1, 2] }), json!({ "a": [2] }), Some(json!({ "a": [2] }))),
        ] {
            assert_eq!(merge_patch(&before, &now), patch);
            let mut patched = before;
            merge(&mut patched, &patch.unwrap_or(json!({})));
            assert_eq!(patched, now);
        }
    }
}
