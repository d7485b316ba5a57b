//! What the Pod Security Standard `restricted` requires of a pod.
//!
//! It is filled in where the user sets nothing. The user's settings are kept if
//! the standard allows them; others would make Kubernetes refuse every
//! pod, long after the manifest was accepted.

use k8s_openapi::api::core::v1::{
    Capabilities, Container, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};

/// User and group if the manifest sets none: the first id that most images assign to users.
const USER: i64 = 1000;

/// The only capability that the standard allows a container to add.
const ALLOWED: &str = "NET_BIND_SERVICE";

/// Changes a pod so that the standard allows it: every container, the user's and ours.
pub(super) fn restrict(pod: &mut PodSpec) {
    let context = pod.security_context.get_or_insert_default();
    restrict_pod(context);
    for container in pod.containers.iter_mut().chain(pod.init_containers.iter_mut().flatten()) {
        restrict_container(container);
    }
}

fn restrict_pod(context: &mut PodSecurityContext) {
    context.run_as_non_root = Some(true);
    context.run_as_user = Some(context.run_as_user.filter(|user| *user != 0).unwrap_or(USER));
    context.run_as_group.get_or_insert(USER);
    context.seccomp_profile = Some(allowed(context.seccomp_profile.take()).unwrap_or_else(|| {
        SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() }
    }));
}

/// Settings that are left out here are those of the pod.
fn restrict_container(container: &mut Container) {
    let given = container.security_context.take().unwrap_or_default();
    let added = given.capabilities.and_then(|capabilities| capabilities.add).unwrap_or_default();
    let added: Vec<String> = added.into_iter().filter(|name| name == ALLOWED).collect();
    container.security_context = Some(SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            add: Some(added).filter(|added| !added.is_empty()),
            drop: Some(vec!["ALL".into()]),
        }),
        privileged: None,
        proc_mount: None,
        run_as_non_root: None,
        run_as_user: given.run_as_user.filter(|user| *user != 0),
        seccomp_profile: allowed(given.seccomp_profile),
        ..given
    });
}

fn allowed(profile: Option<SeccompProfile>) -> Option<SeccompProfile> {
    profile.filter(|profile| profile.type_ != "Unconfined")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn restricted(pod: Value) -> Value {
        let mut pod: PodSpec = serde_json::from_value(pod).unwrap();
        restrict(&mut pod);
        serde_json::to_value(pod).unwrap()
    }

    #[test]
    fn everything_that_is_required_is_filled_in() {
        let pod = restricted(json!({
            "containers": [{ "name": "a" }], "initContainers": [{ "name": "b" }],
        }));
        let of_container =
            json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
        assert_eq!(
            pod["securityContext"],
            json!({
                "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000,
                "seccompProfile": { "type": "RuntimeDefault" },
            })
        );
        assert_eq!(pod["containers"][0]["securityContext"], of_container);
        assert_eq!(pod["initContainers"][0]["securityContext"], of_container);
    }

    #[test]
    fn allowed_settings_of_the_user_are_kept() {
        let profile = json!({ "type": "Localhost", "localhostProfile": "mine.json" });
        let pod = restricted(json!({
            "securityContext": { "runAsUser": 7, "fsGroup": 9, "seccompProfile": profile },
            "containers": [{ "name": "a", "securityContext": {
                "runAsUser": 8, "readOnlyRootFilesystem": true,
                "capabilities": { "add": ["NET_BIND_SERVICE"] },
            } }],
        }));
        let of_pod = &pod["securityContext"];
        assert_eq!((&of_pod["runAsUser"], &of_pod["fsGroup"]), (&json!(7), &json!(9)));
        assert_eq!(of_pod["seccompProfile"], profile);
        let of_container = &pod["containers"][0]["securityContext"];
        assert_eq!(of_container["runAsUser"], 8);
        assert_eq!(of_container["readOnlyRootFilesystem"], true);
        assert_eq!(of_container["capabilities"]["add"], json!(["NET_BIND_SERVICE"]));
    }

    #[test]
    fn settings_that_are_not_allowed_are_removed() {
        let pod = restricted(json!({
            "securityContext": { "runAsUser": 0, "runAsNonRoot": false,
                "seccompProfile": { "type": "Unconfined" } },
            "containers": [{ "name": "a", "securityContext": {
                "runAsUser": 0, "runAsNonRoot": false, "privileged": true,
                "allowPrivilegeEscalation": true, "procMount": "Unmasked",
                "capabilities": { "add": ["SYS_ADMIN"] }, "seccompProfile": { "type": "Unconfined" },
            } }],
        }));
        assert_eq!(pod["securityContext"]["runAsUser"], 1000);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(
            pod["containers"][0]["securityContext"],
            json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } })
        );
    }
}
