//! The containers of the pods.

use std::collections::BTreeMap;

use flux_operator_api::minicluster::{
    Container as UserContainer, ContainerSecurity, Lifecycle, PullPolicy,
};
use flux_operator_wire::names::{command, option, variable};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, ExecAction, HTTPGetAction,
    Lifecycle as KubernetesLifecycle, LifecycleHandler, ObjectFieldSelector, Probe,
    ResourceFieldSelector, SecretKeySelector, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Rendering;
use super::delivery::AGENT_NAME;
use super::volume::{self, AGENT, BOOT, KEYS, PRIVATE, agent_mounts, key_mounts, user_mounts};
use crate::boot::{AGENT_PORT, BROKER_PORT};
use crate::cluster::{is_wrapped, non_empty_or};

/// The Go operator's default image.
const DEFAULT_IMAGE: &str = "ghcr.io/rse-ops/accounting:app-latest";

/// The container that runs the broker and the command.
pub(super) fn runner(rendering: &Rendering<'_>, container: &UserContainer) -> Container {
    let mount = &rendering.cluster.mount;
    let agent = format!("{AGENT}/{AGENT_NAME}");
    let plan = format!("{BOOT}/boot.json");
    let words = [
        &agent,
        command::RUN,
        option::PLAN,
        &plan,
        option::SECRETS,
        KEYS,
        option::PRIVATE,
        PRIVATE,
        option::ROOT,
        mount,
    ];
    let mut result = base(container, rendering.name().to_owned());
    result.command = Some(words.map(str::to_owned).to_vec());
    let mut environment = result.env.take().unwrap_or_default();
    environment.extend(downward(container));
    result.env = Some(environment);
    let mounts = agent_mounts(rendering).into_iter().chain(key_mounts(rendering));
    result.volume_mounts = Some(mounts.chain(user_mounts(container)).collect());
    result.readiness_probe = Some(readiness());
    if rendering.minicluster.spec.pod.as_ref().is_some_and(|pod| pod.host_network) {
        result.ports = Some(host_ports(result.ports.take().unwrap_or_default()));
    }
    result
}

/// A container beside the runner. It is a native sidecar: it starts before the
/// runner, stops after it, and never keeps the pod running.
pub(super) fn sidecar(rendering: &Rendering<'_>, container: &UserContainer) -> Container {
    let mut result = base(container, container.name.clone());
    result.restart_policy = Some("Always".into());
    let user = user_mounts(container);
    if is_wrapped(container) {
        let agent = format!("{AGENT}/{AGENT_NAME}");
        let plan = format!("{BOOT}/boot.json");
        let words = [
            &agent,
            command::SIDECAR,
            option::NAME,
            &container.name,
            option::PLAN,
            &plan,
            option::ROOT,
            &rendering.cluster.mount,
        ];
        result.command = Some(words.map(str::to_owned).to_vec());
        result.volume_mounts = Some(agent_mounts(rendering).into_iter().chain(user).collect());
    } else {
        let args = container.args.iter().map(|word| verbatim(word)).collect::<Vec<_>>();
        result.args = Some(args).filter(|args| !args.is_empty());
        // If the entrypoint is a shell, stdin keeps it running for users who attach, as with
        // the Go operator.
        result.stdin = Some(true);
        result.volume_mounts = Some(user).filter(|mounts| !mounts.is_empty());
    }
    result
}

/// Escapes a word of a container's command, so that it is passed on unchanged: Kubernetes
/// would expand `$(NAME)` as a variable, and replaces `$$` by `$`.
pub(super) fn verbatim(word: &str) -> String {
    word.replace('$', "$$")
}

/// The user's settings of a container, whatever its role.
pub(super) fn base(container: &UserContainer, name: String) -> Container {
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let environment = environment(container);
    Container {
        name,
        image: Some(non_empty_or(&container.image, DEFAULT_IMAGE)),
        image_pull_policy: Some(pull_policy(container).into()),
        working_dir: text(&container.working_dir),
        ports: Some(ports(container)).filter(|ports| !ports.is_empty()),
        env: Some(environment).filter(|variables| !variables.is_empty()),
        lifecycle: container.life_cycle.as_ref().and_then(lifecycle),
        resources: container.resources.clone(),
        security_context: container.security_context.as_ref().map(security),
        ..Container::default()
    }
}

fn pull_policy(container: &UserContainer) -> &'static str {
    match (container.pull_always, container.image_pull_policy) {
        (true, _) | (false, PullPolicy::Always) => "Always",
        (false, PullPolicy::Never) => "Never",
        (false, PullPolicy::IfNotPresent | PullPolicy::Unset) => "IfNotPresent",
    }
}

fn ports(container: &UserContainer) -> Vec<ContainerPort> {
    let port = |port: &i32| ContainerPort {
        container_port: *port,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    };
    container.ports.iter().map(port).collect()
}

/// The ports of brokers and agents, with the user's own. On the node's network each can be
/// used once per node, and the scheduler places pods that declare them on different nodes. On
/// the pod's own network they need not be declared.
fn host_ports(mut ports: Vec<ContainerPort>) -> Vec<ContainerPort> {
    for number in [BROKER_PORT, AGENT_PORT].map(i32::from) {
        if !ports.iter().any(|port| port.container_port == number) {
            ports.push(ContainerPort {
                container_port: number,
                host_port: Some(number),
                protocol: Some("TCP".into()),
                ..ContainerPort::default()
            });
        }
    }
    ports
}

/// The user's variables in a stable order: plain ones, then those from Secrets.
fn environment(container: &UserContainer) -> Vec<EnvVar> {
    let plain = container.environment.iter().map(|(name, value)| EnvVar {
        name: name.clone(),
        value: Some(value.clone()),
        ..EnvVar::default()
    });
    let secret = container.secrets.iter().map(|(name, secret)| EnvVar {
        name: name.clone(),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.name.clone(),
                key: secret.key.clone(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    });
    plain.chain(secret).collect()
}

/// Variables with what the agent needs to know about its own pod.
fn downward(container: &UserContainer) -> Vec<EnvVar> {
    let annotation = |name: &str| format!("metadata.annotations['batch.kubernetes.io/{name}']");
    let fields = BTreeMap::from([
        (variable::INDEX_FAILURES, annotation("job-index-failure-count")),
        (variable::IGNORED_FAILURES, annotation("job-index-ignored-failure-count")),
        (variable::JOB_UID, "metadata.labels['batch.kubernetes.io/controller-uid']".to_owned()),
        (variable::POD_UID, "metadata.uid".to_owned()),
    ]);
    let mut variables: Vec<EnvVar> = fields
        .into_iter()
        .map(|(name, field_path)| EnvVar {
            name: name.into(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector { field_path, api_version: None }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        })
        .collect();
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    if limits.is_some_and(|limits| limits.contains_key("cpu")) {
        variables.push(EnvVar {
            name: variable::CPU_LIMIT.into(),
            value_from: Some(EnvVarSource {
                resource_field_ref: Some(ResourceFieldSelector {
                    resource: "limits.cpu".into(),
                    ..ResourceFieldSelector::default()
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        });
    }
    variables
}

/// Probed every second, because users wait for readiness. A node that is busy with
/// the cluster's own jobs may be slow to answer: a probe has 5 s, and only six failures in a
/// row count. So an agent that answers "not ready" counts as unready after 6 s, and one that
/// does not answer after 30 s. An unready pod stays reachable: the Service publishes its name
/// all the same.
fn readiness() -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            port: IntOrString::Int(i32::from(AGENT_PORT)),
            path: Some("/".into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(1),
        timeout_seconds: Some(5),
        failure_threshold: Some(6),
        ..Probe::default()
    }
}

/// The user's text runs in a shell; the Go operator used it as the name of a program.
fn lifecycle(lifecycle: &Lifecycle) -> Option<KubernetesLifecycle> {
    let handler = |text: &String| {
        let words = ["/bin/sh", "-c", text];
        (!text.is_empty()).then(|| LifecycleHandler {
            exec: Some(ExecAction { command: Some(words.map(str::to_owned).to_vec()) }),
            ..LifecycleHandler::default()
        })
    };
    let (post_start, pre_stop) =
        (handler(&lifecycle.post_start_exec), handler(&lifecycle.pre_stop_exec));
    (post_start.is_some() || pre_stop.is_some()).then(|| KubernetesLifecycle {
        post_start,
        pre_stop,
        ..KubernetesLifecycle::default()
    })
}

/// The user's settings, including the old name for added capabilities.
fn security(security: &ContainerSecurity) -> SecurityContext {
    let mut core = security.core.clone();
    if !security.add_capabilities.is_empty() {
        let capabilities = core.capabilities.get_or_insert_with(Capabilities::default);
        capabilities.add.get_or_insert_default().extend(security.add_capabilities.iter().cloned());
    }
    core
}

/// The user's volumes exist once per pod; see [`volume::volumes`].
pub(super) use volume::volumes;
