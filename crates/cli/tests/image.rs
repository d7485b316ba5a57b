//! The operator's image: there is no default that could name an image of another publisher.

use std::process::Command;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.yaml");

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flux-operator"));
    command.args(words).env_remove("FLUX_OPERATOR_IMAGE").env("KUBECONFIG", "/nonexistent");
    command
}

#[test]
fn a_build_without_a_default_image_requires_one() {
    let published = option_env!("FLUX_OPERATOR_DEFAULT_IMAGE").filter(|name| !name.is_empty());
    if let Some(published) = published {
        let printed = command(&["manifests"]).output().unwrap();
        assert!(String::from_utf8(printed.stdout).unwrap().contains(published));
        return;
    }
    for (words, option) in [(&["manifests"][..], "--image"), (&["run"], "--agent-image")] {
        let result = command(words).output().unwrap();
        let errors = String::from_utf8(result.stderr).unwrap();
        assert_eq!(result.status.code(), Some(1), "{words:?}: {errors}");
        assert_eq!(result.stdout, b"", "{words:?}");
        let hint = format!("hint: give {option} IMAGE or set FLUX_OPERATOR_IMAGE");
        assert!(errors.contains(&hint), "{words:?}: {errors}");
    }
}

#[test]
fn rendering_needs_no_image() {
    if option_env!("FLUX_OPERATOR_DEFAULT_IMAGE").is_some_and(|name| !name.is_empty()) {
        return;
    }
    let printed = command(&["render", "-f", EXAMPLE]).output().unwrap();
    assert!(printed.status.success());
    let objects = String::from_utf8(printed.stdout).unwrap();
    assert!(objects.contains("image: flux-operator.invalid/flux-operator:dev"), "{objects}");
    let errors = String::from_utf8(printed.stderr).unwrap();
    assert!(errors.contains("give --agent-image IMAGE to apply them"), "{errors}");
}

#[test]
fn the_image_can_be_set_in_the_environment() {
    for words in [&["manifests"][..], &["render", "-f", EXAMPLE]] {
        let mut command = command(words);
        let printed = command.env("FLUX_OPERATOR_IMAGE", "example.com/mine:2").output().unwrap();
        let objects = String::from_utf8(printed.stdout).unwrap();
        assert!(objects.contains("image: example.com/mine:2"), "{words:?}: {objects}");
    }
}

#[test]
fn the_committed_manifest_names_an_image_that_cannot_exist() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/operator/flux-operator.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let images = text
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("image: ") || line.starts_with("- --agent-image="));
    let images: Vec<&str> = images.collect();
    assert_eq!(images.len(), 3, "{images:?}");
    assert!(images.iter().all(|line| line.contains("flux-operator.invalid/")), "{images:?}");
    assert!(text.contains("# No registry has this image"));
}
