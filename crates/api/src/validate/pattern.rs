//! What the patterns of our CRDs allow, in words: users should not have to read regular expressions.

/// The start of a pattern that also allows an empty text, which counts as unset.
const OR_EMPTY: &str = "^$|";

/// Patterns, and what they allow.
const WORDS: [(&str, &str); 23] = [
    (
        r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "lowercase letters, digits and '-', starting with a letter and not ending with '-'",
    ),
    (
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "lowercase letters, digits and '-', starting and ending with a letter or digit",
    ),
    (
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "a host name such as flux.example.org: lowercase letters, digits, '-' and '.'",
    ),
    (
        r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        "letters, digits, '-', '_' and '.', starting and ending with a letter or digit",
    ),
    (
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$",
        "a time such as 2026-05-04T11:00:00Z or 2026-05-04T13:00:00+02:00",
    ),
    (
        r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(ms|s|m|h|d)?$",
        "a duration such as 500ms, 5s, 1.5m or 1h; without a unit, in seconds",
    ),
    (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        "a quantity such as 4, 500m or 16Gi",
    ),
    (
        r"^[Mm]emory$|^HugePages(-[0-9]+[KMG]i)?$",
        "Memory, HugePages or a size such as HugePages-2Mi",
    ),
    (r"^[^:]+$", "a path without ':'"),
    (r"^/[^:]*[^/:]$", "a path that starts with '/', does not end with it, and has no ':'"),
    (
        r"^[-,0-9]+$|^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "ranks such as 4-7, or the property of hosts, such as spare",
    ),
    (
        r"^(kary:[0-9]+|mincrit(:[0-9]+)?|binomial|custom)$",
        "kary:K, mincrit, mincrit:K, binomial or custom, where K is a number",
    ),
    (
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/.+$",
        "a domain and a name, such as kueue.x-k8s.io/multikueue",
    ),
    (
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        "the name of a queue, or its namespace and name as in team/queue",
    ),
    (
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        "lowercase letters, digits, '-' and '.', starting and ending with a letter or digit",
    ),
    (r"^[0-9]+(\.[0-9]+)?$", "an amount such as 12 or 0.35"),
    (r"^[0-9A-Za-z.]*$", "the id of a job, such as f2bGzJKq, with f instead of ƒ"),
    (
        r"^v[0-9]+\.[0-9]+\.[0-9]+([-+.][0-9A-Za-z.+-]*)?$",
        "a version of Kubernetes such as v1.34.0",
    ),
    (
        r"^[0-9]+\.[0-9]+(\.[0-9]+)?(-gke\.[0-9]+)?$",
        "a version of Kubernetes such as 1.34 or 1.34.1-gke.100",
    ),
    (r"^[a-z]+(-[a-z]+)+[0-9]+-[a-z]$", "a zone such as us-central1-a"),
    (
        r"^[a-z][-a-z0-9]*$",
        "a name such as c3-standard-8: lowercase letters, digits and '-', starting with a letter",
    ),
    (
        r"^[a-z][-a-z0-9]*[a-z0-9]$",
        "lowercase letters, digits and '-', starting with a letter and not ending with '-'",
    ),
    (
        r"^[^@\s]+@[^@\s]+$",
        "the address of a service account, such as nodes@my-project.iam.gserviceaccount.com",
    ),
];

/// What a pattern allows; the pattern itself if that is not known.
pub(super) fn in_words(pattern: &str) -> String {
    let inner = pattern.strip_prefix(OR_EMPTY).unwrap_or(pattern);
    let known = WORDS.iter().find(|(known, _)| *known == inner);
    known.map_or_else(|| format!("what matches {pattern}"), |(_, words)| (*words).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::{Schema, Validate};
    use crate::{Burst, BurstPolicy, FluxJob, FluxSetup, MiniCluster};
    use serde_json::Value;
    use std::collections::BTreeSet;

    fn patterns(schema: &Value, found: &mut BTreeSet<String>) {
        match schema {
            Value::Object(fields) => {
                found.extend(fields.get("pattern").and_then(Value::as_str).map(ToOwned::to_owned));
                fields.values().for_each(|schema| patterns(schema, found));
            }
            Value::Array(items) => items.iter().for_each(|schema| patterns(schema, found)),
            _ => {}
        }
    }

    #[test]
    fn every_pattern_of_a_crd_has_words_and_all_words_are_needed() {
        let mut found = BTreeSet::new();
        let schemas: [&Schema; 5] = [
            MiniCluster::schema(),
            FluxJob::schema(),
            FluxSetup::schema(),
            BurstPolicy::schema(),
            Burst::schema(),
        ];
        schemas.iter().for_each(|schema| patterns(&schema.structure, &mut found));
        for pattern in &found {
            assert!(!in_words(pattern).contains('^'), "{pattern} has no words");
        }
        let inner = found.iter().map(|it| it.strip_prefix(OR_EMPTY).unwrap_or(it));
        let inner: BTreeSet<&str> = inner.collect();
        let known: BTreeSet<&str> = WORDS.iter().map(|(pattern, _)| *pattern).collect();
        assert_eq!(inner, known);
    }
}
