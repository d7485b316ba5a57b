//! The examples on the testbed, whose node cannot pull images: an image to run them in, and their
//! manifests with that image instead of those from public registries.

use anyhow::Result;
use flux_operator_testbed::Testbed;
use serde_json::{Value, json};

use crate::images::{import_image, with_own_flux};
use crate::merge;

/// The image in which examples run: busybox and a Flux.
pub const IMAGE: &str = "flux-operator.test/sample:1";

/// Imports the image into a testbed.
pub fn import_to(testbed: &Testbed) -> Result<()> {
    import_image(testbed, with_own_flux(IMAGE)?)
}

/// Changes a manifest so that everything, including Flux, runs from the image.
pub fn adapt(manifest: &mut Value) {
    let kind = manifest["kind"].as_str().map(str::to_owned);
    let spec = &mut manifest["spec"];
    match kind.as_deref() {
        Some("MiniCluster") => adapt_cluster(spec),
        Some("FluxJob") => {
            if !spec["image"].is_null() {
                spec["image"] = IMAGE.into();
            }
            let template = &mut spec["template"]["spec"];
            if template["containers"].as_array().is_none_or(Vec::is_empty) {
                template["containers"] = json!([{}]);
            }
            adapt_cluster(template);
        }
        // A FluxSetup runs nothing, and its image is only for jobs without one.
        _ => {}
    }
}

fn adapt_cluster(spec: &mut Value) {
    merge(spec, &json!({ "flux": { "container": { "disable": true, "image": null } } }));
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        container["image"] = IMAGE.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::{manifest, validate};

    #[test]
    fn adapted_examples_need_no_other_image_and_are_valid() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let folders =
            ["", "queue", "connected", "two-clusters"].map(|inner| format!("{root}/{inner}"));
        let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let files = files.map(|file| file.unwrap().path());
        let mut clusters = 0;
        for file in files.filter(|file| file.extension().is_some_and(|end| end == "yaml")) {
            let read = manifest::read(&std::fs::read(&file).unwrap()).unwrap();
            for mut document in read.documents {
                adapt(&mut document.value);
                assert_eq!(validate::check_document(&document), [], "{}", file.display());
                let kind = document.kind().unwrap().to_owned();
                let spec = match kind.as_str() {
                    "MiniCluster" => &document.value["spec"],
                    "FluxJob" => &document.value["spec"]["template"]["spec"],
                    _ => continue,
                };
                assert_eq!(spec["flux"]["container"], json!({ "disable": true }));
                let containers = spec["containers"].as_array().unwrap();
                assert!(containers.iter().all(|container| container["image"] == IMAGE));
                clusters += 1;
            }
        }
        assert!(clusters > 5, "only {clusters} examples run something");
    }

    #[test]
    fn the_image_of_a_job_is_adapted_too() {
        let mut job = json!({ "kind": "FluxJob", "spec": { "image": "ubuntu:noble", "size": 2 } });
        adapt(&mut job);
        assert_eq!((&job["spec"]["image"], &job["spec"]["size"]), (&json!(IMAGE), &json!(2)));
    }
}
