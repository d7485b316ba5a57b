use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn filtered(text: &str, piece: usize) -> String {
    let mut filter = FieldSetFilter::default();
    let kept = text.as_bytes().chunks(piece).flat_map(|piece| filter.filter(piece)).collect();
    assert_eq!((filter.open.len(), filter.skipped), (0, 0), "{text}");
    String::from_utf8(kept).unwrap()
}

/// The same by way of a tree.
fn expected(value: &mut Value) {
    if let Some(managers) =
        value.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut)
    {
        for manager in managers {
            if let Some(fields) =
                manager.get_mut("fieldsV1").filter(|it| it.is_object() || it.is_array())
            {
                *fields = if fields.is_object() { json!({}) } else { json!([]) };
            }
        }
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(expected),
        Value::Object(members) => members.values_mut().for_each(expected),
        _ => {}
    }
}

#[test]
fn field_sets_are_removed_and_nothing_else() {
    let object = |fields: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","managedFields":[{{"manager":"m","fieldsV1":{fields},"time":"t"}}],"uid":"u"}},"spec":{{"fieldsV1":{{"x":[1]}}}}}}"#
        )
    };
    let fields = r#"{"f:spec":{"k:{\"a\":\"}]\"}":{".":{},"f:b\\":["{"]}}}"#;
    let list = |fields| format!(r#"{{"items":[{},{}]}}"#, object(fields), object("null"));
    for piece in [1, 2, 7, 10_000] {
        assert_eq!(filtered(&object(fields), piece), object("{}"));
        assert_eq!(filtered(&list(fields), piece), list("{}"));
    }
}

/// As a watch sends them.
#[test]
fn values_one_after_the_other_are_filtered() {
    let event = |fields: &str| {
        format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"managedFields":[{{"fieldsV1":{fields}}}]}}}}}}"#
        )
    };
    let text = |fields: &str| format!("{}\n{}\n", event(fields), event(fields));
    assert_eq!(filtered(&text(r#"{"f:a":{}}"#), 5), text("{}"));
}

#[test]
fn the_depth_of_a_field_set_does_not_matter() {
    let deep = format!("{}{{}}{}", r#"{"f:a":"#.repeat(9000), "}".repeat(9000));
    let text =
        |fields: &str| format!(r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{fields}}}]}}}}"#);
    assert_eq!(filtered(&text(&deep), 1000), text("{}"));
}

#[test]
fn a_response_that_is_not_json_stays_as_it_is() {
    let text = r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]}}"#;
    for (kind, is_changed) in [("application/json", true), ("text/plain", false)] {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
        assert_eq!(removed_from(&headers, Bytes::from(text)) != text, is_changed, "{kind}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "metadata",
        "managedFields",
        "fieldsV1",
        "a",
        "\"",
        "\\",
        "{",
        "]",
        "é",
        ",",
        ":",
    ]);
    let leaf = prop_oneof![Just(json!(null)), Just(json!(1.5)), key.clone().prop_map(Value::from)];
    leaf.prop_recursive(8, 64, 4, move |inner| {
        let members = prop::collection::vec((key.clone(), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|all| all
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

/// A value with managers around another value.
fn object() -> impl Strategy<Value = Value> {
    (value(), value(), value()).prop_map(|(fields, spec, other)| {
        let managers = json!([{ "manager": "m", "fieldsV1": fields }, other]);
        json!({ "metadata": { "managedFields": managers }, "spec": spec })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_kept_except_field_sets(
        values in prop::collection::vec(prop_oneof![object(), value()], 1..3),
        piece in 1..20_usize,
    ) {
        let mut tree = Value::from(values);
        let text = filtered(&tree.to_string(), piece);
        expected(&mut tree);
        prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), tree);
    }
}
