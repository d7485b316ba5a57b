//! Kubeconfigs that are accepted, and those that are refused.

use super::*;

fn kubeconfig(user: &str, cluster: &str) -> String {
    kubeconfig_for("https://127.0.0.1:1", user, cluster)
}

fn kubeconfig_for(server: &str, user: &str, cluster: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u, namespace: there}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}'{cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    )
}

#[tokio::test]
async fn a_kubeconfig_with_a_token_is_accepted() {
    let connected = connect(&kubeconfig("token: t", "")).await.unwrap();
    assert_eq!(connected.namespace, "there");
    let other = connect(&kubeconfig_for("https://127.0.0.1:2", "token: t", "")).await.unwrap();
    assert_ne!(connected.place(), other.place());
    connect(&kubeconfig_for("http://127.0.0.1:1", "token: t", "")).await.unwrap();
}

#[tokio::test]
async fn clients_of_a_namespace_are_kept_whatever_others_have() {
    let connected = connect(&kubeconfig("token: t", "")).await.unwrap();
    let mut clients = ByNamespace::default();
    clients.insert("one", 0, &connected);
    let total = |clients: &ByNamespace<_>| clients.0.values().map(HashMap::len).sum::<usize>();
    for namespace in ["a", "b", "c", "d", "e"] {
        for key in 0..MAX_CLIENTS {
            clients.insert(namespace, key, &connected);
            assert!(total(&clients) <= MAX_CLIENTS);
        }
    }
    assert!(clients.get("one", &0).is_some());
}

/// A text of some KB must not become gigabytes.
#[tokio::test]
async fn a_kubeconfig_that_repeats_its_parts_is_refused() {
    let with_levels = |count: usize| {
        let levels = (1..=count).map(|level| {
            let parts = vec![format!("*a{}", level.saturating_sub(1)); 10].join(", ");
            format!("- name: e{level}\n  extension: &a{level} [{parts}]\n")
        });
        let first = "extensions:\n- name: e0\n  extension: &a0 [x, x, x]\n";
        format!("{}{first}{}", kubeconfig("token: t", ""), levels.collect::<String>())
    };
    connect(&with_levels(1)).await.unwrap();
    let failure = connect(&with_levels(11)).await.err().unwrap();
    assert_eq!(failure.reason, Reason::KubeconfigRefused);
}

#[tokio::test]
async fn what_runs_programs_or_reads_files_is_refused_by_name() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}";
    for (user, cluster, field) in [
        (exec, "", "exec"),
        ("auth-provider: {name: gcp}", "", "auth-provider"),
        ("tokenFile: /etc/passwd", "", "tokenFile"),
        ("client-certificate: /c", "", "client-certificate"),
        ("client-key: /k", "", "client-key"),
        ("token: t", ", certificate-authority: /ca", "certificate-authority"),
        ("token: t", ", insecure-skip-tls-verify: true", "insecure-skip-tls-verify"),
        ("token: t", ", proxy-url: 'http://127.0.0.1:2'", "proxy-url"),
    ] {
        let failure = connect(&kubeconfig(user, cluster)).await.err().unwrap();
        assert_eq!(failure.reason, Reason::KubeconfigRefused, "{field}");
        assert!(failure.message.contains(&format!("refused: {field} would")), "{failure}");
    }
    for server in ["http://10.0.0.1:80", "http://127.0.0.1:80@10.0.0.1", "ftp://127.0.0.1"] {
        let plain = kubeconfig_for(server, "token: t", "");
        let failure = connect(&plain).await.err().unwrap();
        assert!(failure.message.contains("refused: server would"), "{server}: {failure}");
    }
    let failure = connect("token: very-secret").await.err().unwrap();
    assert!(!failure.message.contains("very-secret"), "{failure}");
}

/// The client library would panic, or fail with every request, as if the target did not respond.
#[tokio::test]
async fn what_no_request_can_be_made_with_is_refused_by_name() {
    let pem = "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tc2VjcmV0";
    let certificate = format!("client-certificate-data: {pem}, client-key-data: {pem}");
    for (user, cluster, problem) in [
        (r#"token: "a\nb""#, "", "token of its user has characters"),
        (r#"token: "a\x7f""#, "", "token of its user has characters"),
        (r#"token: t, as: "a\nb""#, "", "as of its user has characters"),
        (r#"token: t, as-uid: "a\nb""#, "", "as-uid of its user has characters"),
        (r#"token: t, as-groups: [a, "a\rb"]"#, "", "as-groups of its user has characters"),
        (r#"token: t, as-user-extra: {a: ["\0"]}"#, "", "as-user-extra of its user has"),
        (&certificate, "", "client-certificate-data and client-key-data of its user are not"),
        ("client-certificate-data: '*', client-key-data: '*'", "", "client certificate"),
        ("token: t", ", tls-server-name: 'a b'", "tls-server-name of its cluster is not"),
        ("token: t", ", certificate-authority-data: YQ==", "its cluster has no certificate"),
    ] {
        let failure = connect(&kubeconfig(user, cluster)).await.err().unwrap();
        assert_eq!(failure.reason, Reason::KubeconfigRefused, "{failure}");
        assert!(failure.message.contains(problem), "{problem}: {failure}");
        // The first bytes of the key, as the library shows them.
        assert!(!failure.message.contains("45, 45"), "{failure}");
    }
    for namespace in ["a b", "a/b", "Team", "-a", &"a".repeat(64)] {
        let text = kubeconfig("token: t", "").replace(": there", &format!(": '{namespace}'"));
        let failure = connect(&text).await.err().unwrap();
        assert!(failure.message.contains("no namespace can be called"), "{failure}");
    }
    let unnamed = kubeconfig("token: t", "").replace(": there", ": ''");
    assert_eq!(connect(&unnamed).await.unwrap().namespace, "default");
    let long = format!("https://127.0.0.1/{}", "a".repeat(64_000));
    let failure = connect(&kubeconfig_for(&long, "token: t", "")).await.err().unwrap();
    assert!(failure.message.contains("is not a URL"), "{failure}");
    let long = kubeconfig("token: t", "").replace("cluster: k,", &format!("cluster: {long},"));
    let failure = connect(&long).await.err().unwrap();
    assert!(failure.message.len() < 1000, "{failure}");
}

#[tokio::test]
async fn a_program_that_gives_an_odd_token_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let answer = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"a\\nb"}}"#;
    let exec = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: printf, args: ['{answer}']}}"
    );
    std::fs::write(&path, kubeconfig(&exec, "")).unwrap();
    let failure = connect_with_file(&path, None).await.err().unwrap();
    assert_eq!(failure.reason, Reason::KubeconfigRefused, "{failure}");
    assert!(failure.message.contains("a token that can be used"), "{failure}");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_says_why_by_its_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let check = async |text: &str| {
        std::fs::write(&path, text).unwrap();
        check_file(&path).await
    };
    let good = kubeconfig("token: t", "");
    assert_eq!(check(&good).await.unwrap().as_deref(), Some("c"));
    // It is not run yet.
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /no/such}";
    check(&kubeconfig(exec, "")).await.unwrap();
    let secret = "users: [{name: {token: very-secret}}]\n";
    for (text, problem) in [
        ("", "it has no current-context"),
        (secret, "it is not a kubeconfig: see line 1"),
        (&good.replace("current-context: c\n", ""), "it has no current-context"),
        (&good.replace("current-context: c", "current-context: d"), "contexts has no \"d\""),
        (&good.replace("cluster: k,", "cluster: other,"), "clusters has no \"other\""),
        (&good.replace("user: u,", "user: other,"), "users has no \"other\""),
        (&good.replace("server:", "address:"), "its cluster has no server"),
        (&good.replace("https://127.0.0.1:1", "a b"), "is not a URL"),
        (&good.replace("https://127.0.0.1:1", "127.0.0.1:1"), "is not a URL"),
        (&kubeconfig(r#"token: "a\nb""#, ""), "token of its user has characters"),
        (&kubeconfig("token: t", ", certificate-authority: no-such-file"), "no-such-file"),
        (&kubeconfig("client-certificate-data: '*', client-key-data: '*'", ""), "certificate"),
    ] {
        let found = check(text).await.unwrap_err();
        assert!(found.contains(problem) && !found.contains("very-secret"), "{found}");
    }
}
