//! What a user can see of objects: without what the API server fills in, what is
//! empty, and what each operator needs for itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Objects by kind and name.
pub type Objects = BTreeMap<(String, String), Value>;

/// Fields with the default that the API server sets.
fn filled_in() -> [(&'static str, Value); 20] {
    [
        ("defaultMode", json!(420)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("enableServiceLinks", json!(true)),
        ("internalTrafficPolicy", json!("Cluster")),
        ("ipFamilies", json!(["IPv4"])),
        ("ipFamilyPolicy", json!("SingleStack")),
        ("manualSelector", json!(false)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
        ("schedulerName", json!("default-scheduler")),
        ("serviceAccountName", json!("default")),
        ("sessionAffinity", json!("None")),
        ("suspend", json!(false)),
        ("terminationGracePeriodSeconds", json!(30)),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("tolerations", not_ready_tolerations()),
        ("type", json!("ClusterIP")),
        ("uid", json!("0000-1111")),
    ]
}

/// The tolerations that the API server adds to pods.
fn not_ready_tolerations() -> Value {
    let toleration = |condition: &str| {
        let key = format!("node.kubernetes.io/{condition}");
        json!({ "effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300 })
    };
    json!([toleration("not-ready"), toleration("unreachable")])
}

/// What is visible of the objects of a MiniCluster. The ConfigMap is left out: the
/// corpus has none.
pub fn visible(objects: Vec<Value>, manifest: &Value) -> Objects {
    objects
        .into_iter()
        .filter(|object| object["kind"] != "ConfigMap")
        .map(|mut object| {
            let key = (text(&object["kind"]), text(&object["metadata"]["name"]));
            drop_keys(&mut object["metadata"], &["namespace"]);
            if let Some(template) = object.pointer_mut("/spec/template") {
                // Kubernetes names pods itself, and labels the pods of a Job.
                let labels = ["job-name", "batch.kubernetes.io/job-name"];
                drop_keys(&mut template["metadata"], &["name", "namespace"]);
                drop_keys(&mut template["metadata"]["labels"], &labels);
                pod(&mut template["spec"], manifest, "containers");
            }
            if object["kind"] == "Pod" {
                pod(&mut object["spec"], manifest, "services");
            }
            by_key(&mut object["metadata"], "ownerReferences", "name");
            if object["kind"] == "Service" {
                service(&mut object["spec"]);
            }
            tidy(&mut object);
            (key, object)
        })
        .collect()
}

/// Indexes ports by number, and drops the address unless it is `None`.
fn service(spec: &mut Value) {
    drop_keys(spec, &["clusterIPs"]);
    if spec["clusterIP"] != "None" {
        drop_keys(spec, &["clusterIP"]);
    }
    by_key(spec, "ports", "port");
}

/// Separates the runner, the container that delivers Flux, and the others by name with their
/// place in the pod, and keeps only the user's volumes.
fn pod(pod: &mut Value, manifest: &Value, field: &str) {
    let cluster = text(&manifest["metadata"]["name"]);
    let in_place = |place: &str, containers: Vec<Value>| {
        let place = json!(place);
        containers.into_iter().map(move |mut container| {
            container["place"] = place.clone();
            container
        })
    };
    // An old name of serviceAccountName, which the API server still sets.
    drop_keys(pod, &["serviceAccount"]);
    let initial = taken(pod, "initContainers");
    let all =
        in_place("initContainers", initial).chain(in_place("containers", taken(pod, "containers")));
    let view = match text(&manifest["spec"]["flux"]["container"]["name"]).as_str() {
        "" => "flux-view".to_owned(),
        name => name.to_owned(),
    };
    let volumes = taken(pod, "volumes");
    let is_own = |volume: &Value| {
        let name = text(&volume["name"]);
        name.starts_with("flux-operator-")
            || name.starts_with("kube-api-access-")
            || name == "spack-software"
            || name == format!("{cluster}-entrypoint")
            || name == view
    };
    pod["volumes"] = volumes.into_iter().filter(|volume| !is_own(volume)).collect();
    by_key(pod, "volumes", "name");
    let mut beside = Vec::new();
    for mut container in all {
        drop_list(&mut container, "volumeMounts", is_own);
        drop_list(&mut container, "env", |env| text(&env["name"]).starts_with("FLUX_OPERATOR_"));
        by_key(&mut container, "env", "name");
        resources(&mut container["resources"]);
        let is_runner = field == "containers" && container["name"] == cluster;
        let listed = listed_volumes(manifest, field, &container["name"], is_runner);
        let mounts = taken(&mut container, "volumeMounts");
        let (own, inherited): (Vec<Value>, Vec<Value>) =
            mounts.into_iter().partition(|mount| listed.contains(&text(&mount["name"])));
        container["volumeMounts"] = own.into();
        container["inheritedMounts"] = inherited.into();
        by_key(&mut container, "volumeMounts", "mountPath");
        by_key(&mut container, "inheritedMounts", "mountPath");
        if is_runner {
            pod["runner"] = container;
        } else if field == "containers" && container["name"] == view {
            pod["view"] = container;
        } else {
            beside.push(container);
        }
    }
    pod[if field == "services" { "containers" } else { "sidecars" }] = beside.into();
    by_key(pod, "containers", "name");
    by_key(pod, "sidecars", "name");
}

/// Converts amounts to numbers, because the API server normalizes them, and drops
/// requests that equal the limits, which are the default.
fn resources(resources: &mut Value) {
    for field in ["limits", "requests"] {
        for value in resources[field].as_object_mut().into_iter().flat_map(Map::values_mut) {
            *value = json!(amount(&text(value)));
        }
    }
    let limits = resources["limits"].clone();
    if let Some(requests) = resources["requests"].as_object_mut() {
        requests.retain(|name, amount| limits[name] != *amount);
    }
}

/// The number that a quantity stands for.
fn amount(quantity: &str) -> f64 {
    let digits = quantity.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(quantity.len());
    let (number, unit) = quantity.split_at(digits);
    let kibi = 1024_f64;
    let unit = match unit {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "Ki" => kibi,
        "Mi" => kibi.powi(2),
        "Gi" => kibi.powi(3),
        "Ti" => kibi.powi(4),
        other => panic!("{other:?} is a unit that this test does not know"),
    };
    number.parse::<f64>().expect("a number") * unit
}

/// Names of the volumes that a container of the manifest lists.
fn listed_volumes(manifest: &Value, field: &str, name: &Value, is_runner: bool) -> Vec<String> {
    let containers = manifest["spec"][field].as_array().into_iter().flatten();
    let mut containers = containers.filter(|container| match is_runner {
        true => container["runFlux"] == true || manifest["spec"][field][1].is_null(),
        false => container["name"] == *name,
    });
    let container = containers.next().cloned().unwrap_or_default();
    let fields = [&container["volumes"], &container["existingVolumes"]];
    fields.iter().filter_map(|volumes| volumes.as_object()).flat_map(Map::keys).cloned().collect()
}

/// Removes what is empty, which means unset, and what the API server fills in.
/// An empty directory is written as an empty map, and is kept.
fn tidy(value: &mut Value) {
    let Value::Object(map) = value else { return };
    for (key, value) in filled_in() {
        if map.get(key) == Some(&value) {
            map.remove(key);
        }
    }
    map.values_mut().for_each(tidy);
    let is_empty = |value: &Value| {
        value.is_null()
            || value.as_object().is_some_and(Map::is_empty)
            || value.as_array().is_some_and(Vec::is_empty)
    };
    map.retain(|key, value| key == "emptyDir" || !is_empty(value));
}

/// Converts a list to a map, by a field of its entries.
fn by_key(value: &mut Value, field: &str, key: &str) {
    let entries = taken(value, field);
    value[field] = entries.into_iter().map(|entry| (text(&entry[key]), entry)).collect();
}

fn drop_list(value: &mut Value, field: &str, unwanted: impl Fn(&Value) -> bool) {
    let mut entries = taken(value, field);
    entries.retain(|entry| !unwanted(entry));
    value[field] = entries.into();
}

fn taken(value: &mut Value, field: &str) -> Vec<Value> {
    match value[field].take() {
        Value::Array(entries) => entries,
        _ => vec![],
    }
}

fn drop_keys(value: &mut Value, keys: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

/// A string as it is; a number in its digits.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}
