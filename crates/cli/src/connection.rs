//! Which Kubernetes cluster to connect to, and through which proxy. Both as kubectl chooses them.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Result, anyhow};
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Loads the configuration from a kubeconfig: `file`, or else the one that kubectl would use. In a
/// pod without kubeconfig, uses the pod's service account.
pub(crate) async fn load_config(file: Option<&Path>, context: Option<&str>) -> Result<Config> {
    let (mut config, proxy_of_kubeconfig) = match from_kubeconfig(file, context).await {
        Err(error) if file.is_none() && context.is_none() => {
            return Config::incluster().map_err(|no_pod| anyhow!("{error}; {no_pod}"));
        }
        outcome => outcome?,
    };
    // kube chooses a proxy too, but applies NO_PROXY to the proxy instead of to the server.
    config.proxy_url =
        choose_proxy(&config.cluster_url, proxy_of_kubeconfig, |name| std::env::var(name).ok())?;
    Ok(config)
}

/// The configuration, and the proxy that the kubeconfig names.
async fn from_kubeconfig(
    file: Option<&Path>,
    context: Option<&str>,
) -> Result<(Config, Option<String>)> {
    let kubeconfig = match file {
        Some(file) => Kubeconfig::read_from(file)?,
        None => Kubeconfig::read()?,
    };
    let named = named_proxy(&kubeconfig, context);
    let context = context.map(str::to_owned);
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    // kube parses the proxy's URL too, and fails before we can.
    let config = config.map_err(|error| match error {
        KubeconfigError::ParseProxyUrl(error) => invalid_proxy(&error),
        error => error.into(),
    })?;
    Ok((config, named))
}

/// The `proxy-url` of the context's cluster.
fn named_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|it| it.name == context)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|it| it.name == context.cluster)?;
    cluster.cluster.as_ref()?.proxy_url.clone().filter(|url| !url.is_empty())
}

/// The proxy for a server: the one in the kubeconfig, else the one in the environment. The
/// environment's is not used for servers on this machine or in `NO_PROXY`.
fn choose_proxy(
    server: &Uri,
    named: Option<String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>> {
    let set = |name: &str| {
        let names = [name.to_uppercase(), name.to_lowercase()];
        names.iter().filter_map(|name| variable(name)).find(|value| !value.is_empty())
    };
    let from_environment = || match server.scheme_str() {
        _ if is_local(server) || is_exempt(server, &set("NO_PROXY").unwrap_or_default()) => None,
        Some("http") => set("HTTP_PROXY"),
        _ => set("HTTPS_PROXY"),
    };
    let Some(url) = named.or_else(from_environment) else { return Ok(None) };
    let with_scheme = if url.contains("://") { url } else { format!("http://{url}") };
    // The URL itself is not shown: it may contain a password.
    let parsed: Uri = with_scheme.parse().map_err(|error| invalid_proxy(&error))?;
    if !matches!(parsed.scheme_str(), Some("http" | "https" | "socks5")) {
        return Err(invalid_proxy(&"the scheme must be http, https or socks5"));
    }
    Ok(Some(parsed))
}

fn invalid_proxy(why: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!("failed to parse the URL of the proxy (proxy-url, HTTPS_PROXY, HTTP_PROXY): {why}")
}

fn is_local(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether the server is in `NO_PROXY`, by the rules of Go programs: `*` matches every server,
/// `*.example.com` every name below it, and an entry may have a port.
fn is_exempt(server: &Uri, no_proxy: &str) -> bool {
    let entries: Vec<&str> = no_proxy.split(',').map(str::trim).collect();
    if entries.contains(&"*") {
        return true;
    }
    let plain: Vec<&str> =
        entries.into_iter().filter_map(|entry| strip_port(server, entry)).collect();
    let others = Matcher::builder().all("http://proxy").no(plain.join(",")).build();
    others.intercept(server).is_none()
}

/// The entry without wildcard and port; None if its port is not the server's.
fn strip_port<'a>(server: &Uri, entry: &'a str) -> Option<&'a str> {
    let entry = entry.strip_prefix('*').unwrap_or(entry);
    let default_port = if server.scheme_str() == Some("http") { 80 } else { 443 };
    match entry.rsplit_once(':') {
        // Several colons mean an IPv6 address.
        Some((host, port)) if !host.contains(':') => {
            (port.parse() == Ok(server.port_u16().unwrap_or(default_port))).then_some(host)
        }
        _ => Some(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://api.example.com:6443";

    fn chosen(server: &str, named: Option<&str>, environment: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            let set = environment.iter().find(|(set, _)| *set == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        let proxy = choose_proxy(&server.parse().unwrap(), named.map(str::to_owned), variable);
        proxy.unwrap().map(|proxy| proxy.to_string())
    }

    #[test]
    fn the_kubeconfigs_proxy_comes_before_the_environments() {
        let environment = [("HTTPS_PROXY", "http://other:1"), ("NO_PROXY", "*")];
        let named = chosen(SERVER, Some("socks5://proxy:1080"), &environment);
        assert_eq!(named.as_deref(), Some("socks5://proxy:1080/"));
        let local = chosen("https://127.0.0.1:6443", Some("http://proxy:1"), &[]);
        assert_eq!(local.as_deref(), Some("http://proxy:1/"));
    }

    #[test]
    fn the_environments_proxy_depends_on_the_servers_scheme() {
        let environment = [("HTTPS_PROXY", ""), ("https_proxy", "s:1"), ("HTTP_PROXY", "h:1")];
        assert_eq!(chosen(SERVER, None, &environment).as_deref(), Some("http://s:1/"));
        let plain = chosen("http://api.example.com", None, &environment);
        assert_eq!(plain.as_deref(), Some("http://h:1/"));
        assert_eq!(chosen(SERVER, None, &[]), None);
    }

    #[test]
    fn servers_in_no_proxy_and_on_this_machine_are_reached_directly() {
        for (server, no_proxy) in [
            (SERVER, "other.com, example.com"),
            (SERVER, "*"),
            ("https://10.1.2.3:6443", "10.0.0.0/8"),
            ("https://10.1.2.3:6443", "*"),
            (SERVER, "*.example.com"),
            (SERVER, "api.example.com:6443"),
            ("https://api.example.com", "api.example.com:443"),
            ("https://localhost:6443", ""),
            ("https://127.0.0.2:6443", ""),
            ("https://[::1]:6443", ""),
        ] {
            let environment = [("HTTPS_PROXY", "http://proxy:1"), ("NO_PROXY", no_proxy)];
            assert_eq!(chosen(server, None, &environment), None, "{server}");
        }
        let other_port = [("HTTPS_PROXY", "http://proxy:1"), ("NO_PROXY", "api.example.com:1")];
        assert!(chosen(SERVER, None, &other_port).is_some());
        // NO_PROXY is about servers, not about proxies.
        let environment = [("HTTPS_PROXY", "http://proxy.near:1"), ("no_proxy", "near")];
        assert!(chosen(SERVER, None, &environment).is_some());
    }

    #[test]
    fn an_invalid_proxy_url_is_not_shown_in_the_error() {
        for address in ["http://u:pass word@p", "ftp://u:password@p", "socks4://u:password@p"] {
            let variable = |name: &str| (name == "HTTPS_PROXY").then(|| address.to_owned());
            let error =
                choose_proxy(&SERVER.parse().unwrap(), None, variable).unwrap_err().to_string();
            assert!(error.starts_with("failed to parse the URL of the proxy "), "{error}");
            assert!(!error.contains("word"), "{error}");
        }
    }

    #[test]
    fn the_proxy_is_that_of_the_context_in_use() {
        let kubeconfig: Kubeconfig = serde_saphyr::from_str(
            "current-context: one\n\
             contexts:\n\
             - {name: one, context: {cluster: far, user: u}}\n\
             - {name: two, context: {cluster: near, user: u}}\n\
             clusters:\n\
             - {name: far, cluster: {server: 'https://far', proxy-url: 'http://proxy:1'}}\n\
             - {name: near, cluster: {server: 'https://near'}}\n",
        )
        .unwrap();
        assert_eq!(named_proxy(&kubeconfig, None).as_deref(), Some("http://proxy:1"));
        assert_eq!(named_proxy(&kubeconfig, Some("two")), None);
        assert_eq!(named_proxy(&kubeconfig, Some("three")), None);
    }
}
