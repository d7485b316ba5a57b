//! The endpoints of a broker: ZeroMQ endpoints such as `tcp://eth0:8050`, resolved from the
//! templates of `[bootstrap]`.

/// The maximum length of an endpoint. A domain name has at most 253 characters; the rest is short.
/// (flux-core's buffer has 2048 bytes.)
pub const MAX_ENDPOINT_LENGTH: usize = 512;

/// The maximum length of a socket's path.
const MAX_SOCKET_PATH: usize = 108;

/// Why a template does not give an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Beyond [`MAX_ENDPOINT_LENGTH`].
    #[error("address is longer than {MAX_ENDPOINT_LENGTH} characters")]
    TooLong,
    /// `%p` without a default port.
    #[error("address has %p, but there is no default_port")]
    NoPort,
    /// Neither `tcp://` nor `ipc://`.
    #[error("address does not start with tcp:// or ipc://")]
    Scheme,
    /// Nothing after the scheme.
    #[error("address has nothing after its scheme")]
    Empty,
    /// `:*`, which lets ZeroMQ choose a port that other brokers would not know.
    #[error("address has a wildcard for its port")]
    WildcardPort,
    /// A path that is too long for the system.
    #[error("address has a socket path of more than {MAX_SOCKET_PATH} characters")]
    SocketPath,
}

/// Substitutes `template` and checks the resulting endpoint.
pub(crate) fn resolve(
    template: &str,
    host: &str,
    port: Option<u16>,
) -> Result<String, EndpointError> {
    let endpoint = substitute(template, host, port)?;
    let address = endpoint
        .strip_prefix("tcp://")
        .or_else(|| endpoint.strip_prefix("ipc://"))
        .ok_or(EndpointError::Scheme)?;
    if address.is_empty() {
        return Err(EndpointError::Empty);
    }
    if endpoint.contains(":*") {
        return Err(EndpointError::WildcardPort);
    }
    if endpoint.starts_with("ipc://") && address.len() > MAX_SOCKET_PATH {
        return Err(EndpointError::SocketPath);
    }
    Ok(endpoint)
}

/// Whether Flux accepts `name` as a host: labels of 1 to 63 letters, digits and inner hyphens.
pub(crate) fn is_host_name(name: &str) -> bool {
    // Like flux-core, this skips empty labels, so a name may end in a dot.
    let mut labels = name.split('.').filter(|label| !label.is_empty());
    (1..=253).contains(&name.len()) && labels.all(is_label)
}

fn is_label(label: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    label.len() <= 63
        && label.bytes().all(letters)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Replaces `%h`, `%p` and `%%`. As in flux-core, any other `%x` is kept and a trailing `%` is
/// removed.
fn substitute(template: &str, host: &str, port: Option<u16>) -> Result<String, EndpointError> {
    // Checked first, so that a long template is not copied for every host.
    if template.len() > MAX_ENDPOINT_LENGTH {
        return Err(EndpointError::TooLong);
    }
    let mut endpoint = String::new();
    let mut characters = template.chars();
    while let Some(character) = characters.next() {
        match (character, characters.as_str().chars().next()) {
            ('%', Some('h')) => endpoint.push_str(host),
            ('%', Some('p')) => endpoint.push_str(&port.ok_or(EndpointError::NoPort)?.to_string()),
            ('%', Some('%')) => endpoint.push('%'),
            ('%', Some(other)) => endpoint.extend(['%', other]),
            ('%', None) => {}
            (character, _) => {
                endpoint.push(character);
                continue;
            }
        }
        characters.next();
        if endpoint.len() > MAX_ENDPOINT_LENGTH {
            return Err(EndpointError::TooLong);
        }
    }
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutes_host_and_port() {
        for (template, endpoint) in [
            ("tcp://%h:%p", "tcp://fs-0:8050"),
            (
                "tcp://%h.fs.default.svc.cluster.local:%p",
                "tcp://fs-0.fs.default.svc.cluster.local:8050",
            ),
            ("tcp://eth0:9001", "tcp://eth0:9001"),
            ("tcp://*:%p", "tcp://*:8050"),
            ("tcp://[::]:%p", "tcp://[::]:8050"),
            ("tcp://100%%", "tcp://100%"),
            ("tcp://a%x%", "tcp://a%x"),
            ("tcp://a%é%h", "tcp://a%éfs-0"),
            ("tcp://%%h", "tcp://%h"),
            ("ipc:///run/flux/%h", "ipc:///run/flux/fs-0"),
        ] {
            assert_eq!(resolve(template, "fs-0", Some(8050)).as_deref(), Ok(endpoint));
        }
    }

    #[test]
    fn rejects_what_zeromq_or_flux_would_reject() {
        for (template, error) in [
            ("eth0:8050", EndpointError::Scheme),
            ("", EndpointError::Scheme),
            ("udp://a:1", EndpointError::Scheme),
            ("tcp://", EndpointError::Empty),
            ("tcp://a:*", EndpointError::WildcardPort),
            ("tcp://a:%p", EndpointError::NoPort),
            (&format!("ipc://{}", "a".repeat(109)), EndpointError::SocketPath),
            (&format!("tcp://{}", "a".repeat(507)), EndpointError::TooLong),
            (&"%h".repeat(200), EndpointError::TooLong),
        ] {
            assert_eq!(resolve(template, "fs-0", None), Err(error), "{template}");
        }
    }

    #[test]
    fn host_names_are_those_of_dns() {
        let label = "a".repeat(63);
        for (name, good) in [
            ("fs-0", true),
            ("10.0.0.1", true),
            ("fs-0.fs.svc.", true),
            (label.as_str(), true),
            (&format!("{label}a"), false),
            (&format!("{label}.").repeat(4), false),
            ("", false),
            ("-fs", false),
            ("fs-", false),
            ("a.-b", false),
            ("snake_case", false),
            ("a:1", false),
        ] {
            assert_eq!(is_host_name(name), good, "{name}");
        }
    }
}
