//! What an installation may and may not do.

use flux_operator_install::{
    BurstClusters, InstallSettings, access_objects, burst_objects, operator_objects,
};
use serde_json::{Value, json};

fn settings(watched: Option<&str>) -> InstallSettings {
    InstallSettings {
        namespace: "operator-system".into(),
        image: "example.com/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        watched_namespace: watched.map(str::to_owned),
        replicas: 1,
        network_policy: true,
        gateway: true,
        burst_namespaces: vec!["bursts".into()],
        burst_clusters: BurstClusters::default(),
        gke_image: None,
    }
}

fn kinds<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn rules(objects: &[Value]) -> Vec<Value> {
    let roles = kinds(objects, "Role").chain(kinds(objects, "ClusterRole"));
    roles.flat_map(|role| role["rules"].as_array().expect("a role has rules").clone()).collect()
}

fn strings(rule: &Value, field: &str) -> Vec<String> {
    let words = rule[field].as_array().into_iter().flatten();
    words.map(|word| word.as_str().expect("a word").to_owned()).collect()
}

#[test]
fn no_role_has_a_wildcard_or_access_into_pods() {
    for settings in [settings(None), settings(Some("team"))] {
        let rules = rules(&operator_objects(&settings));
        assert!(rules.len() > 10, "the roles were not found");
        for rule in rules {
            let all =
                ["apiGroups", "resources", "verbs"].map(|field| strings(&rule, field)).concat();
            assert!(!all.iter().any(|word| word.contains('*')), "{rule}");
            let into_pods = ["pods/exec", "pods/attach", "pods/portforward", "pods/log"];
            assert!(!all.iter().any(|word| into_pods.contains(&word.as_str())), "{rule}");
            let grants = ["bind", "escalate", "impersonate"];
            assert!(!all.iter().any(|word| grants.contains(&word.as_str())), "{rule}");
        }
    }
}

/// Everything that could be misused is only in the namespaces that an administrator lists.
#[test]
fn b36_the_burst_controller_reads_secrets_only_where_it_is_listed() {
    let objects = burst_objects(&settings(None));
    for role in kinds(&objects, "ClusterRole") {
        for rule in rules(std::slice::from_ref(role)) {
            let resources = strings(&rule, "resources");
            let is_status = resources.iter().all(|it| it.ends_with("/status"));
            let verbs = strings(&rule, "verbs");
            assert!(is_status || verbs == ["list", "watch"], "{rule}");
            assert!(!resources.contains(&"secrets".into()), "{rule}");
        }
    }
    let roles: Vec<&Value> = kinds(&objects, "Role").collect();
    let [role] = roles.as_slice() else { panic!("{roles:?}") };
    assert_eq!(role["metadata"]["namespace"], "bursts");
    let rules = rules(std::slice::from_ref(*role));
    let mut of_secrets =
        rules.iter().filter(|rule| strings(rule, "resources").contains(&"secrets".into()));
    assert_eq!(strings(of_secrets.next().expect("a rule for Secrets"), "verbs"), ["get"]);
}

/// Jobs can use every ServiceAccount of a namespace, so the controller creates some only if an
/// administrator allows programs of one kind.
#[test]
fn b36_programs_that_make_clusters_are_run_only_if_they_are_allowed() {
    let jobs = |settings: &InstallSettings| -> Vec<Vec<String>> {
        let rules = rules(&burst_objects(settings));
        let of_jobs = rules.iter().filter(|it| strings(it, "resources").contains(&"jobs".into()));
        of_jobs.map(|rule| strings(rule, "verbs")).collect()
    };
    let none = settings(None);
    assert_eq!(jobs(&none), [["get"]]);
    let users = BurstClusters { commands: true, ..BurstClusters::default() };
    let users = InstallSettings { burst_clusters: users, ..none.clone() };
    let image = "registry.example.com/flux-operator-gke:1";
    let gke = InstallSettings { gke_image: Some(image.into()), ..none.clone() };
    for settings in [&users, &gke] {
        assert_eq!(jobs(settings)[1], ["create", "list", "patch", "delete"]);
    }
    let arguments = |settings: &InstallSettings| -> String {
        let objects = burst_objects(settings);
        let deployment = kinds(&objects, "Deployment").next().expect("a Deployment");
        deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
    };
    assert!(arguments(&gke).contains(&format!("--gke-image={image}")));
    assert!(!arguments(&users).contains("--gke-image"));
    // The rights are the same, so the controller is told which programs it may run.
    assert!(arguments(&users).contains("--commands"));
    assert!(!arguments(&gke).contains("--commands") && !arguments(&none).contains("--commands"));
}

#[test]
fn secrets_are_created_and_read_by_name_but_never_listed() {
    let rules = rules(&access_objects(&settings(None)));
    let mut of_secrets =
        rules.iter().filter(|rule| strings(rule, "resources").contains(&"secrets".into()));
    let rule = of_secrets.next().expect("a rule for Secrets");
    assert_eq!(strings(rule, "verbs"), ["create", "get"]);
    assert_eq!(of_secrets.count(), 0);
}

#[test]
fn the_lease_is_only_in_the_operators_own_namespace() {
    let objects = access_objects(&settings(None));
    for role in kinds(&objects, "ClusterRole") {
        assert!(!role.to_string().contains("leases"), "{role}");
    }
    let role = kinds(&objects, "Role").next().expect("a role");
    assert_eq!(role["metadata"]["namespace"], "operator-system");
    assert_eq!(role["rules"][0]["resourceNames"], json!(["flux-operator"]));
    assert_eq!(role["rules"][1]["verbs"], json!(["create"]));
}

#[test]
fn an_operator_for_one_namespace_has_no_permissions_beyond_it() {
    // It cannot check who asks for jobs, so there is no burst controller.
    let settings = InstallSettings { burst_namespaces: Vec::new(), ..settings(Some("team")) };
    let objects = operator_objects(&settings);
    assert_eq!(kinds(&objects, "ClusterRoleBinding").count(), 0);
    let mut namespaces: Vec<_> =
        kinds(&objects, "RoleBinding").map(|binding| &binding["metadata"]["namespace"]).collect();
    namespaces.sort_by_key(|place| place.to_string());
    // Its own: for the Lease, and for the gateway's endpoints. The other: for the operator, and for
    // the gateway.
    assert_eq!(namespaces, ["operator-system", "operator-system", "team", "team"]);
    let deployment = kinds(&objects, "Deployment").next().expect("a Deployment");
    assert!(deployment.to_string().contains("--namespace=team"), "{deployment}");
}

#[test]
fn two_installations_share_no_object() {
    let other = InstallSettings { namespace: "elsewhere".into(), ..settings(None) };
    let names = |settings: &InstallSettings| -> Vec<String> {
        let name = |object: &Value| {
            format!(
                "{} {} {}",
                object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]
            )
        };
        operator_objects(settings).iter().map(name).collect()
    };
    let (one, two) = (names(&settings(None)), names(&other));
    assert!(one.iter().all(|name| !two.contains(name)), "{one:?} {two:?}");
}

#[test]
fn q34_queues_write_only_their_own_objects_and_one_namespace_is_enough() {
    let writes = ["create", "update", "patch", "delete", "deletecollection"];
    let everywhere = rules(&access_objects(&settings(None)));
    let of = |rules: &[Value], resource: &str| -> Vec<String> {
        let mut verbs: Vec<String> = rules
            .iter()
            .filter(|rule| strings(rule, "resources").contains(&resource.to_owned()))
            .flat_map(|rule| strings(rule, "verbs"))
            .collect();
        verbs.sort();
        verbs
    };
    for read in ["namespaces", "nodes", "resourcequotas", "priorityclasses"] {
        let verbs = of(&everywhere, read);
        assert!(verbs.contains(&"watch".to_owned()), "{read}: {verbs:?}");
        assert!(!verbs.iter().any(|verb| writes.contains(&verb.as_str())), "{read}: {verbs:?}");
    }
    for written in ["fluxjobs/status", "fluxsetups/status"] {
        assert!(of(&everywhere, written).contains(&"patch".to_owned()), "{written}");
    }
    let one = access_objects(&settings(Some("team")));
    assert!(kinds(&one, "ClusterRoleBinding").next().is_none(), "permissions beyond the namespace");
    assert!(of(&rules(&one), "fluxjobs").contains(&"watch".to_owned()));
}
