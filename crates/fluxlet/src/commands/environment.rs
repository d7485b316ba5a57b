//! The environment of a job: the submitter's, changed by `--env`.

use std::env;
use std::ffi::OsString;

use crate::bytes::Bytes;

/// Variables of the submitter's own job or instance, which the job must not inherit.
const NOT_INHERITED: [&str; 11] = [
    "FLUX_JOB_ID",
    "FLUX_JOB_ID_PATH",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "FLUX_JOB_TMPDIR",
    "FLUX_JOB_CC",
    "FLUX_TASK_RANK",
    "FLUX_TASK_LOCAL_ID",
    "FLUX_KVS_NAMESPACE",
    "FLUX_TERMINUS_SESSION",
    "FLUX_URI",
];

/// Applies rules such as `-*`, `PATH`, `NAME=VALUE` to this process's environment.
pub fn filtered<'a>(rules: impl Iterator<Item = &'a str>) -> Vec<(Bytes, Bytes)> {
    let all: Vec<(OsString, OsString)> = env::vars_os().collect();
    apply(all.into_iter().map(|(name, value)| (name.into(), value.into())).collect(), rules)
}

fn apply<'a>(
    all: Vec<(Bytes, Bytes)>,
    rules: impl Iterator<Item = &'a str>,
) -> Vec<(Bytes, Bytes)> {
    let mut kept = all.clone();
    kept.retain(|(name, _)| !NOT_INHERITED.iter().any(|own| own.as_bytes() == name.0));
    for rule in rules {
        if let Some(pattern) = rule.strip_prefix('-') {
            kept.retain(|(name, _)| !matches(pattern, &name.to_text()));
        } else if let Some((name, value)) = rule.split_once('=') {
            kept.retain(|(other, _)| other.0 != name.as_bytes());
            kept.push((Bytes::from(name), Bytes::from(value)));
        } else {
            let wanted = |(name, _): &&(Bytes, Bytes)| matches(rule, &name.to_text());
            for entry in all.iter().filter(wanted) {
                kept.retain(|(other, _)| *other != entry.0);
                kept.push(entry.clone());
            }
        }
    }
    kept
}

/// Matches a shell pattern with `*` and `?`, which is enough for names of variables.
fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.chars().next(), name.chars().next()) {
        (None, None) => true,
        (Some('*'), first) => {
            matches(&pattern[1..], name)
                || first.is_some_and(|first| matches(pattern, &name[first.len_utf8()..]))
        }
        (Some(wanted), Some(first)) if wanted == '?' || wanted == first => {
            matches(&pattern[wanted.len_utf8()..], &name[first.len_utf8()..])
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rules: &[&str]) -> Vec<String> {
        let all = [("PATH", "/bin"), ("FLUX_URI", "x"), ("FOO_A", "1"), ("FOO_B", "2")];
        let all = all.map(|(name, value)| (Bytes::from(name), Bytes::from(value))).to_vec();
        let kept = apply(all, rules.iter().copied());
        kept.iter().map(|(name, value)| format!("{}={}", name.to_text(), value.to_text())).collect()
    }

    #[test]
    fn rules_remove_and_add() {
        assert_eq!(names(&[]), ["PATH=/bin", "FOO_A=1", "FOO_B=2"]);
        assert_eq!(names(&["-FOO_*"]), ["PATH=/bin"]);
        assert_eq!(names(&["-*", "FOO_?", "NEW=a=b"]), ["FOO_A=1", "FOO_B=2", "NEW=a=b"]);
        assert_eq!(names(&["PATH=/x"]), ["FOO_A=1", "FOO_B=2", "PATH=/x"]);
    }
}
