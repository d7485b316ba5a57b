//! Values that have the right type, and otherwise anything.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// The number of optional fields of one object.
const FIELDS: usize = 5;

/// Numbers at the limits of their type, and some in between.
pub fn numbers() -> BoxedStrategy<Value> {
    let limits = [i32::MIN, i32::MIN + 1, -1, 0, 1, 2, 63, 100_000, 100_001, i32::MAX];
    prop_oneof![proptest::sample::select(limits.to_vec()), any::<i32>()]
        .prop_map(Value::from)
        .boxed()
}

/// Times at the limits of their type, beyond them, and in between; one is not a time.
pub fn times() -> BoxedStrategy<Value> {
    proptest::sample::select(vec![
        "9999-12-30T22:00:00.999999999Z",
        "9999-12-30T22:00:00Z",
        "9999-12-30T21:59:00Z",
        "9999-12-31T23:59:59Z",
        "2026-01-01T00:59:59Z",
        "2026-01-01T01:00:01Z",
        "1970-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "-009999-01-02T01:59:59Z",
        "soon",
    ])
    .prop_map(Value::from)
    .boxed()
}

/// Texts of all sorts.
pub fn texts() -> BoxedStrategy<Value> {
    let known = proptest::sample::select(vec![
        "",
        "0",
        "-1",
        "fs",
        "True",
        "Running",
        "Failed",
        "OOMKilled",
        "a[",
        "a[0-4294967295]",
        "a-[0-3]",
        "é",
        "[a]\nb = 1",
        "\"",
        "'",
        "\\",
        "<<EOF",
        "/",
        "{",
        "{}",
        "1Gi",
        "-9e99",
        "4294967296",
        "\n\n",
        "\0",
        "Never",
        "tag-noble",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => ".{0,8}"].prop_map(Value::from).boxed()
}

/// Values of the type of a schema, within its limits or not: all required fields,
/// because otherwise it cannot be decoded, and a few of the others.
pub fn of_type(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return proptest::sample::select(words.clone()).boxed();
    }
    if schema["format"] == "date-time" {
        return times();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer" | "number") => numbers(),
        Some("array") => {
            let items = of_type(&schema["items"]);
            proptest::collection::vec(items, 0..3).prop_map(Value::from).boxed()
        }
        Some("object") if schema["properties"].is_object() => object(schema),
        Some("object") => {
            let entry = of_type(&schema["additionalProperties"]);
            let name = texts().prop_map(|text| text.as_str().unwrap_or_default().to_owned());
            proptest::collection::btree_map(name, entry, 0..3).prop_map(|map| json!(map)).boxed()
        }
        _ => texts(),
    }
}

fn object(schema: &Value) -> BoxedStrategy<Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let (always, others): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(name, _)| required.iter().any(|it| it == name));
    let most = FIELDS.min(others.len());
    let some = proptest::sample::subsequence(others, 0..=most);
    some.prop_flat_map(move |some| {
        let field = |(name, schema): &(String, Value)| (Just(name.clone()), of_type(schema));
        always.iter().chain(&some).map(field).collect::<Vec<_>>()
    })
    .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
    .boxed()
}
