//! Which Flux is used, and that our own programs are not mistaken for one.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::home::{TestHome, errors, output};

const NOTICE: &str = "fluxlet (built in; install Flux for real work)";

/// A Flux that only prints its name, instead of running a broker.
const OTHER_FLUX: &str = "#!/bin/sh\necho the other Flux\n";

#[test]
fn our_own_programs_in_path_are_not_mistaken_for_flux() {
    let home = TestHome::new();
    let folder = home.folder.path().join("programs");
    std::fs::create_dir(&folder).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_flux-operator"));
    for name in programs() {
        symlink(built.with_file_name(&name), folder.join(&name)).unwrap();
    }
    let manifest = home.manifest("run", json!({ "containers": [{ "command": "true" }] }));
    let mut run = home.program(&["local", "run", "-f", &manifest]);
    let result = run.env_remove("FLUX_ROOT").env("PATH", path(&[&folder])).output().unwrap();
    assert!(errors(&result).contains(NOTICE), "{}", errors(&result));
    assert_eq!(result.status.code(), Some(0), "{}", errors(&result));
}

#[test]
fn a_link_to_this_program_is_not_mistaken_for_an_installed_flux() {
    let home = TestHome::new();
    let [own, others] = ["own", "others"].map(|name| home.folder.path().join(name));
    for folder in [&own, &others] {
        std::fs::create_dir(folder).unwrap();
    }
    // As in a shell of `local exec`, where `flux` is the one of the cluster.
    symlink(env!("CARGO_BIN_EXE_flux-operator"), own.join("flux")).unwrap();
    let manifest = home.manifest("run", json!({ "containers": [{ "command": "true" }] }));
    let run = |folders: &[&PathBuf]| {
        let mut run = home.program(&["local", "run", "-f", &manifest]);
        run.env_remove("FLUX_ROOT").env("PATH", path(folders)).output().unwrap()
    };
    assert!(errors(&run(&[&own])).contains(NOTICE), "{}", errors(&run(&[&own])));
    let other = others.join("flux");
    std::fs::write(&other, OTHER_FLUX).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&other, mode).unwrap();
    let result = run(&[&own, &others]);
    let named = format!("Flux at {}", other.display());
    assert!(errors(&result).contains(&named), "{}", errors(&result));
    assert_eq!(output(&result), "the other Flux\n");
}

/// The names of the programs that `cargo build` builds.
fn programs() -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let mut command = Command::new(cargo);
    command.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let metadata = command.args(["--manifest-path", root]).output().unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    let programs = targets.filter(|target| target["kind"] == json!(["bin"]));
    let names: Vec<String> =
        programs.map(|target| target["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.iter().any(|name| name == "flux-operator"), "{names:?}");
    names
}

/// A PATH of these directories and those of the system that do not contain Flux.
fn path(folders: &[&PathBuf]) -> String {
    let system = ["/usr/bin", "/bin"].map(PathBuf::from);
    let system = system.iter().filter(|folder| !folder.join("flux").exists());
    let all = folders.iter().copied().chain(system);
    all.map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
}
