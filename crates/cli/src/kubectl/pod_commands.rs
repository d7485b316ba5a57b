//! The commands that are executed in a pod. Arguments are passed on unchanged, not through a shell.

/// The agent's script that connects to the instance: without arguments it opens a shell, with
/// arguments it executes that program. It is run by `sh`, so that it also works on a mount without
/// execute permission.
fn connect(mount: &str) -> Vec<String> {
    vec!["/bin/sh".into(), format!("{mount}/flux-connect.sh")]
}

/// Opens a shell in the instance.
pub(super) fn shell(mount: &str) -> Vec<String> {
    connect(mount)
}

/// Submits a job to the instance; `words` are the options of `flux submit` and the command.
pub(super) fn submit(mount: &str, words: &[String]) -> Vec<String> {
    let mut all = flux(mount, &["submit"]);
    all.extend_from_slice(words);
    all
}

/// Runs a command of Flux in the instance.
pub(super) fn flux(mount: &str, words: &[&str]) -> Vec<String> {
    let mut all = connect(mount);
    all.extend(["flux"].iter().chain(words).map(|word| (*word).to_owned()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_passed_on_unchanged() {
        let words = ["-N2", "echo", "a  b", "", "$HOME"].map(String::from);
        let expected = [
            "/bin/sh",
            "/mnt/flux/flux-connect.sh",
            "flux",
            "submit",
            "-N2",
            "echo",
            "a  b",
            "",
            "$HOME",
        ];
        assert_eq!(submit("/mnt/flux", &words), expected);
        assert_eq!(shell("/opt"), ["/bin/sh", "/opt/flux-connect.sh"]);
        let listed = ["/bin/sh", "/opt/flux-connect.sh", "flux", "module", "list"];
        assert_eq!(flux("/opt", &["module", "list"]), listed);
    }
}
