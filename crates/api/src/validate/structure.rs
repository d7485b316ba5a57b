//! Types and limits of a structural schema, as the API server checks them.
//!
//! A structural schema is a small subset of JSON Schema (no references, no
//! alternatives but int-or-string), so this check is short, and its messages are
//! our own, with the path that `kubectl` would show.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use regex::Regex;
use serde_json::Value;

use super::Problem;
use super::pattern::in_words;

/// Fields that the schema does not have. The API server drops them, or refuses
/// the object under strict decoding, which is the default of `kubectl`.
pub(super) fn unknown_fields(schema: &Value, object: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    find_unknown(schema, object, "", &mut problems);
    problems
}

/// Violations of types and limits.
pub(super) fn check(schema: &Value, object: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_value(schema, object, "", &mut problems);
    problems
}

/// Removes nulls from fields, as the API server does before it validates.
pub(super) fn drop_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if schema["properties"].is_object() {
                fields.retain(|_, field| !field.is_null());
            }
            for (name, field) in fields {
                drop_nulls(field_schema(schema, name), field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls(&schema["items"], item)),
        _ => {}
    }
}

fn find_unknown(schema: &Value, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = join(path, name);
                let known = field_schema(schema, name);
                if known.is_null() && schema["type"] == "object" {
                    problems.push(unknown_field(schema, name, path));
                } else {
                    find_unknown(known, field, &path, problems);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_unknown(&schema["items"], item, &format!("{path}[{index}]"), problems);
            }
        }
        _ => {}
    }
}

fn unknown_field(schema: &Value, name: &str, path: String) -> Problem {
    let known = schema["properties"].as_object().into_iter().flat_map(|known| known.keys());
    let known: Vec<&str> = known.map(String::as_str).collect();
    let hint = match closest_name(name, known.iter().copied()) {
        Some(nearest) => format!(": did you mean {nearest:?}?"),
        None if (1..=MAX_LISTED).contains(&known.len()) => {
            format!(": expected {}", known.join(" or "))
        }
        None => String::new(),
    };
    Problem::new(path, format!("unknown field{hint}"))
}

/// How many fields a message lists: as many as can be read at a glance.
const MAX_LISTED: usize = 4;

/// The known name that is most similar to a misspelt one, if one is similar enough.
pub(super) fn closest_name<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let alike = known.map(|known| (similarity(name, known), known));
    let nearest = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
    nearest.filter(|(likeness, _)| *likeness >= MIN_SIMILARITY).map(|(_, known)| known)
}

/// Names above it have a wrong, doubled or missing letter; names below it
/// only begin alike.
const MIN_SIMILARITY: f64 = 0.9;

fn similarity(name: &str, known: &str) -> f64 {
    strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase())
}

fn check_value(schema: &Value, value: &Value, path: &str, problems: &mut Vec<Problem>) {
    let mut problem = |message: String| problems.push(Problem::new(display(path), message));
    if !has_type(schema, value) {
        return problem(format!("must be {}, not {}", expected_type(schema), type_of(value)));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        let words: Vec<_> = words.iter().filter(|word| *word != "").map(Value::to_string).collect();
        return problem(format!("is {value}: must be one of {}", words.join(", ")));
    }
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            let (lowest, highest) = bounds(schema);
            if number < lowest {
                problem(format!("is {value}: must be at least {lowest}"));
            }
            if number > highest {
                problem(format!("is {value}: must be at most {highest}"));
            }
        }
        Value::String(text) => {
            let length = text.chars().count();
            check_count(schema, "Length", length, "characters", &mut problem);
            if let Some(pattern) = schema["pattern"].as_str()
                && !matches(pattern, text)
            {
                problem(format!("is {value}: expected {}", in_words(pattern)));
            }
        }
        Value::Array(items) => {
            check_count(schema, "Items", items.len(), "entries", &mut problem);
            for (index, item) in items.iter().enumerate() {
                check_value(&schema["items"], item, &format!("{path}[{index}]"), problems);
            }
        }
        Value::Object(fields) => {
            check_count(schema, "Properties", fields.len(), "entries", &mut problem);
            for name in
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
            {
                if !fields.contains_key(name) {
                    problems.push(Problem::new(join(path, name), "is required"));
                }
            }
            for (name, field) in fields {
                let schema = field_schema(schema, name);
                if !schema.is_null() {
                    check_value(schema, field, &join(path, name), problems);
                }
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
}

fn check_count(
    schema: &Value,
    what: &str,
    count: usize,
    unit: &str,
    problem: &mut impl FnMut(String),
) {
    let limit = |side: &str| schema[format!("{side}{what}")].as_u64();
    if let Some(least) = limit("min").filter(|least| (count as u64) < *least) {
        problem(format!("has {count} {unit}: must have at least {least}"));
    }
    if let Some(most) = limit("max").filter(|most| (count as u64) > *most) {
        problem(format!("has {count} {unit}: must have at most {most}"));
    }
}

fn field_schema<'a>(schema: &'a Value, name: &str) -> &'a Value {
    let declared = &schema["properties"][name];
    if declared.is_null() { &schema["additionalProperties"] } else { declared }
}

fn has_type(schema: &Value, value: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema["type"].as_str() {
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    }
}

/// What a value should be. The title of a schema, if it has one, says more than its type.
fn expected_type(schema: &Value) -> &str {
    if let Some(title) = schema["title"].as_str() {
        return title;
    }
    match schema["type"].as_str() {
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("string") => "text (quote it)",
        Some("boolean") => "true or false",
        Some("array") => "a list",
        Some("object") => "a map",
        _ => "a whole number or text",
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

fn bounds(schema: &Value) -> (f64, f64) {
    let (lowest, highest) = match schema["format"].as_str() {
        Some("int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    let given = |keyword: &str| schema[keyword].as_f64();
    (given("minimum").unwrap_or(lowest), given("maximum").unwrap_or(highest))
}

/// Patterns come from the CRD alone, so each is compiled once and kept.
fn matches(pattern: &str, text: &str) -> bool {
    static COMPILED: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().expect("no holder of this lock panics");
    compiled
        .entry(pattern.to_owned())
        .or_insert_with(|| Regex::new(pattern).expect("a CRD's patterns are regular expressions"))
        .is_match(text)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn display(path: &str) -> &str {
    if path.is_empty() { "document" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_misspelt_field_gets_a_suggestion() {
        let schema = json!({ "properties": { "command": {}, "commands": {}, "runFlux": {} } });
        let hint = |name: &str| unknown_field(&schema, name, String::new()).message;
        assert_eq!(hint("comand"), "unknown field: did you mean \"command\"?");
        assert_eq!(hint("runflux"), "unknown field: did you mean \"runFlux\"?");
    }

    #[test]
    fn another_field_of_an_object_with_few_fields_gets_their_names() {
        let hint = |known: &[&str]| {
            let known: serde_json::Map<_, _> =
                known.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
            unknown_field(&json!({ "properties": known }), "burst", String::new()).message
        };
        let expected = "unknown field: expected matchExpressions or matchLabels";
        assert_eq!(hint(&["matchLabels", "matchExpressions"]), expected);
        assert_eq!(hint(&[]), "unknown field");
        assert_eq!(hint(&["v", "w", "x", "y", "z"]), "unknown field");
    }
}
