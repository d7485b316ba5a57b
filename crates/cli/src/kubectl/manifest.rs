//! The MiniCluster that the flags of `create` describe.

use anyhow::{Result, bail};
use flux_operator_api::manifest::Document;
use flux_operator_api::{GROUP, MiniCluster, VERSION, validate};
use serde_json::{Value, json};

/// The flags that describe a MiniCluster.
#[derive(clap::Args)]
pub(super) struct Flags {
    /// Name of the MiniCluster.
    #[arg(required = false)]
    name: String,

    /// Image to run.
    #[arg(long, required = false)]
    image: String,

    /// Number of brokers, one per pod.
    #[arg(long, default_value_t = 1)]
    size: u32,

    /// Number of tasks of the command. Default: one per broker.
    #[arg(long)]
    tasks: Option<u32>,

    /// Image with Flux, which is mounted into the pods. Default: the operator's.
    #[arg(long, value_name = "IMAGE", conflicts_with = "own_flux")]
    flux_image: Option<String>,

    /// Use the Flux that is installed in the image.
    #[arg(long)]
    own_flux: bool,
}

/// The MiniCluster, or an error that lists what is not valid.
pub(super) fn from_flags(flags: &Flags, command: &[String]) -> Result<MiniCluster> {
    let document = Document { number: 1, value: manifest(flags, command) };
    let problems = validate::check_document(&document);
    if !problems.is_empty() {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        bail!("the MiniCluster is not valid\n{}", problems.join("\n"));
    }
    Ok(validate::read_minicluster(&document.value)?)
}

fn manifest(flags: &Flags, command: &[String]) -> Value {
    let Flags { name, image, size, tasks, flux_image, own_flux } = flags;
    let mut spec = json!({
        "size": size,
        "tasks": tasks.unwrap_or(*size),
        // Print only the output of the command.
        "logging": { "quiet": true },
        "containers": [{ "image": image, "args": command }],
    });
    if *own_flux {
        spec["flux"]["container"]["disable"] = true.into();
    }
    if let Some(image) = flux_image {
        spec["flux"]["container"]["image"] = image.as_str().into();
    }
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "MiniCluster",
        "metadata": { "name": name },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        flags: Flags,
        #[arg(last = true)]
        command: Vec<String>,
    }

    fn parse_flags(words: &[&str]) -> Result<MiniCluster> {
        let line = TestCommandLine::try_parse_from(["create"].iter().chain(words))?;
        from_flags(&line.flags, &line.command)
    }

    #[test]
    fn there_is_one_task_per_broker_and_arguments_are_unchanged() {
        let minicluster =
            parse_flags(&["fs", "--image", "a", "--size", "3", "--", "echo", "a  b", ""]).unwrap();
        assert_eq!((minicluster.spec.size, minicluster.spec.tasks), (3, 3));
        assert_eq!(minicluster.spec.containers[0].args, ["echo", "a  b", ""]);
        assert!(minicluster.spec.containers[0].command.is_empty());
    }

    #[test]
    fn flux_comes_from_a_separate_image_or_from_the_same() {
        let container = |words: &[&str]| {
            let made = parse_flags(&[&["fs", "--image", "a"], words].concat()).unwrap();
            made.spec.flux.and_then(|flux| flux.container)
        };
        assert!(container(&["--own-flux"]).unwrap().disable);
        assert_eq!(container(&["--flux-image", "f"]).unwrap().image, "f");
        assert!(container(&[]).is_none());
    }

    #[test]
    fn an_error_names_the_field() {
        let error = parse_flags(&["fs", "--image", "a", "--size", "0"]).unwrap_err().to_string();
        assert!(error.contains("spec.size: "), "{error}");
        let error = parse_flags(&["Fs", "--image", "a"]).unwrap_err().to_string();
        assert!(error.contains("metadata.name"), "{error}");
    }
}
