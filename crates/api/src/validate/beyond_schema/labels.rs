//! Checks of label keys, label values and selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::validate::Problem;

/// Checks the key and value of each label.
pub(super) fn check_labels(
    labels: &BTreeMap<String, String>,
    path: &str,
    problems: &mut Vec<Problem>,
) {
    for (key, value) in labels {
        check_key(key, path, problems);
        check_value(value, &format!("{path}.{key}"), problems);
    }
}

/// Checks the key of a label or of an annotation, which have the same form.
pub(super) fn check_key(key: &str, path: &str, problems: &mut Vec<Problem>) {
    if !is_label_key(key) {
        problems.push(Problem::new(
            path,
            format!("{key:?} is not a valid key: expected [prefix/]name of letters, digits, '-', '_' and '.', the name at most 63 long"),
        ));
    }
}

fn check_value(value: &str, path: &str, problems: &mut Vec<Problem>) {
    if !value.is_empty() && !is_label_value(value) {
        problems.push(Problem::new(
            path,
            format!("{value:?} is not a valid label value: expected at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"),
        ));
    }
}

/// Checks a label selector, as the API server does for its own objects.
pub(super) fn check_selector(selector: &LabelSelector, path: &str, problems: &mut Vec<Problem>) {
    if let Some(labels) = &selector.match_labels {
        check_labels(labels, &format!("{path}.matchLabels"), problems);
    }
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = requirement.values.as_deref().unwrap_or_default();
        check_key(&requirement.key, &format!("{path}.key"), problems);
        for value in values {
            check_value(value, &format!("{path}.values"), problems);
        }
        let wrong = match requirement.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => Some(("values", "is required by In and NotIn")),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                Some(("values", "must be empty for Exists and DoesNotExist"))
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => None,
            _ => Some(("operator", "must be one of In, NotIn, Exists, DoesNotExist")),
        };
        if let Some((field, message)) = wrong {
            problems.push(Problem::new(format!("{path}.{field}"), message));
        }
    }
}

/// Whether a name is a DNS label, as names of volumes are.
pub(in crate::validate) fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_part_of_name(name)
}

/// Whether a text may be between the dots of an object's name. The API server limits only the whole name.
pub(in crate::validate) fn is_part_of_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-') && !text.is_empty()
}

fn is_label_value(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    value.len() <= 63
        && bytes.iter().copied().all(inner)
        && edge(bytes.first())
        && edge(bytes.last())
}

fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_label_value(key),
        Some((prefix, name)) => {
            prefix.len() <= 253 && prefix.split('.').all(is_label) && is_label_value(name)
        }
    }
}
