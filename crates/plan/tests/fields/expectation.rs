//! Checks that a field has the effect that its entry describes.

use std::collections::BTreeMap;

use flux_operator_api::Reason;
use flux_operator_api::validate;
use flux_operator_plan::kubernetes::Rendering;
use flux_operator_plan::{Refusal, RefusalReason};
use serde_json::{Map, Value, json};

use crate::manifest::{self, KEY, without_indexes};
use crate::objects::objects;
use crate::render::render;
use crate::table::{Entry, Evidence};

/// Returns an error if a field does not have the effect that its entry describes.
pub fn check(field: &str, entry: &Entry) -> Result<(), String> {
    let mut without = entry.set.clone();
    without.retain(|path, _| without_indexes(path) != field);
    let only_named = entry.evidence.iter().all(|proof| matches!(proof, Evidence::Tests(_)));
    if !only_named && without.len() == entry.set.len() {
        return Err("the entry does not set it".into());
    }
    let with = schema_and_rules(&entry.set).and_then(|()| render_fields(&entry.set));
    // Whether it violates a rule does not matter here, and rules take long to evaluate.
    let without = render_fields(&without);
    for proof in &entry.evidence {
        match (proof, &with) {
            (Evidence::Tests(_), _) => {}
            (Evidence::Gives(expected), Ok(observed)) => {
                holds(field, expected, observed)?;
                if without.as_ref().is_ok_and(|observed| holds(field, expected, observed).is_ok()) {
                    return Err("what it gives is also rendered without it".into());
                }
            }
            (Evidence::Ignored(_), Ok(observed)) => {
                if without.as_ref().ok() != Some(observed) {
                    return Err("is not ignored".into());
                }
            }
            (Evidence::Refused(reason), Err(refusal)) => {
                let named = refusal.problems.iter().any(|problem| names(&problem.path, field));
                if Reason::from(refusal.reason).as_str() != reason || !named {
                    return Err(format!("refused with another reason: {refusal:?}"));
                }
            }
            (Evidence::Refused(_), Ok(_)) => return Err("is not refused".into()),
            (_, Err(refusal)) => return Err(format!("refused: {refusal}")),
        }
    }
    Ok(())
}

/// Everything that is rendered from a manifest: the objects, and the boot plan of the agents.
#[derive(PartialEq)]
struct Rendered {
    objects: Vec<Value>,
    boot_plan: Value,
}

fn schema_and_rules(fields: &BTreeMap<String, Value>) -> Result<(), Refusal> {
    let problems = validate::check_schema_and_rules(&manifest::with(fields));
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Refusal { reason: RefusalReason::Invalid, problems }),
    }
}

fn render_fields(fields: &BTreeMap<String, Value>) -> Result<Rendered, Refusal> {
    let inspect = |rendering: &Rendering<'_>| Rendered {
        objects: objects(rendering),
        boot_plan: json!(rendering.boot_plan()),
    };
    render(&manifest::with(fields), inspect)
}

/// Whether a problem names a field, or the one that belongs with it.
fn names(path: &str, field: &str) -> bool {
    let field = format!("spec.{}", field.replace("{}", &format!(".{KEY}")).replace("[]", "[0]"));
    !path.is_empty() && (field.starts_with(path) || path.starts_with(&field))
}

fn holds(field: &str, expected: &Map<String, Value>, rendered: &Rendered) -> Result<(), String> {
    for (place, value) in expected {
        let found = find(field, place, rendered).unwrap_or(&Value::Null);
        if found != value {
            return Err(format!("{place} is {found}, expected {value}"));
        }
    }
    Ok(())
}

/// Finds a value: an object, then a JSON pointer in which `key=value` finds
/// the entry of a list. `Template` is the pod's spec and `Container` its first
/// container: of the services pod for fields of services, otherwise of the Job.
fn find<'a>(field: &str, place: &str, observed: &'a Rendered) -> Option<&'a Value> {
    let (object, pointer) = place.split_once('/').unwrap_or((place, ""));
    let of_kind = |kind: &str| observed.objects.iter().find(|object| object["kind"] == kind);
    let template = || match field.starts_with("services") {
        true => of_kind("Pod")?.get("spec"),
        false => of_kind("Job")?.pointer("/spec/template/spec"),
    };
    let start = match object.split_once('=') {
        Some((kind, name)) => observed
            .objects
            .iter()
            .find(|object| object["kind"] == kind && object["metadata"]["name"] == name),
        None => match object {
            "BootPlan" => Some(&observed.boot_plan),
            "Template" => template(),
            "Container" => template()?.pointer("/containers/0"),
            kind => of_kind(kind),
        },
    };
    if pointer.is_empty() {
        return start;
    }
    pointer.split('/').try_fold(start?, |value, segment| {
        let segment = segment.replace("~1", "/");
        match (value, segment.split_once('=')) {
            (Value::Array(list), Some((key, wanted))) => {
                list.iter().find(|entry| entry[key] == wanted)
            }
            (Value::Array(list), None) => list.get(segment.parse::<usize>().ok()?),
            _ => value.get(&segment),
        }
    })
}
