//! Builds the testbed's Go programs.
//!
//! Every module below `testbed/go` is compiled into `bin`, if it is needed. The first build takes minutes,
//! so each module has a stamp: the digest of its sources, of the Go version and of the options. If it
//! is unchanged, nothing is done; Go is not even run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::command::{self, CommandError};
use crate::files::{self, FileError, failed};
use crate::layout::Layout;
use crate::program_files;
use crate::state::Level;

/// The version the Kubernetes programs report; the one `go/kubernetes/go.mod` requires.
const KUBERNETES_VERSION: &str = "v1.36.3";

/// The names of the links to the one Kubernetes program.
const KUBERNETES_LINKS: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
];

/// A Go module of the testbed and the programs built from it.
struct Module {
    directory: &'static str,
    packages: &'static [&'static str],
    programs: &'static [&'static str],
    links: &'static [&'static str],
    options: &'static [&'static str],
    /// Without cgo the program is statically linked and runs in an otherwise empty image.
    is_static: bool,
    needed_for: Need,
    /// Directories and files of a required module that are copied beside the programs.
    files: Option<ModuleFiles>,
}

/// What a module is needed for.
#[derive(PartialEq)]
enum Need {
    AnyLevel,
    Node,
    Addition(Addition),
}

/// Files of a required module, by their paths in it, and the directory in `bin` for them.
struct ModuleFiles {
    module: &'static str,
    paths: &'static [&'static str],
    place: &'static str,
}

/// Programs that no testbed runs, and some tests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Addition {
    /// The core manager of Cluster API, with its CRDs and webhooks in `bin/cluster-api`.
    ClusterApi,
}

const MODULES: [Module; 6] = [
    Module {
        directory: "kubernetes",
        packages: &["."],
        programs: &["kubernetes"],
        links: &KUBERNETES_LINKS,
        options: &[],
        is_static: false,
        needed_for: Need::AnyLevel,
        files: None,
    },
    Module {
        directory: "etcd",
        packages: &["go.etcd.io/etcd/server/v3"],
        programs: &["etcd"],
        links: &[],
        options: &[],
        is_static: false,
        needed_for: Need::AnyLevel,
        files: None,
    },
    Module {
        directory: "containerd",
        packages: &[
            "github.com/containerd/containerd/v2/cmd/containerd",
            "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            "github.com/containerd/containerd/v2/cmd/ctr",
        ],
        programs: &["containerd", "containerd-shim-runc-v2", "ctr"],
        links: &[],
        // The btrfs snapshotter needs C headers that are usually not installed.
        options: &["-tags", "no_btrfs"],
        is_static: false,
        needed_for: Need::Node,
        files: None,
    },
    Module {
        directory: "coredns",
        packages: &["."],
        programs: &["coredns"],
        links: &[],
        options: &[],
        is_static: false,
        needed_for: Need::Node,
        files: None,
    },
    Module {
        directory: "pause",
        packages: &["."],
        programs: &["pause"],
        links: &[],
        options: &[],
        is_static: true,
        needed_for: Need::Node,
        files: None,
    },
    Module {
        directory: "cluster-api",
        packages: &["sigs.k8s.io/cluster-api/core"],
        programs: &["cluster-api-manager"],
        links: &[],
        options: &[],
        is_static: false,
        needed_for: Need::Addition(Addition::ClusterApi),
        files: Some(ModuleFiles {
            module: "sigs.k8s.io/cluster-api",
            paths: &["core/config/crd/bases", "core/config/webhook/manifests.yaml"],
            place: "cluster-api",
        }),
    },
];

/// Why the programs could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Go is not installed.
    #[error("go is not installed: install Go 1.26 or newer (its directory must be in PATH)")]
    NoGo,
    /// Go failed.
    #[error("failed to build {module}")]
    Go {
        /// The module's directory.
        module: &'static str,
        /// Go's error.
        source: CommandError,
    },
    /// A file could not be read or written.
    #[error("failed to prepare the programs")]
    File(#[source] FileError),
}

/// Builds what a testbed of this level needs, and the additions, unless they are up to date. Calls
/// `report` with each program that was built and the seconds it took.
pub fn build(
    layout: &Layout,
    level: Level,
    additions: &[Addition],
    mut report: impl FnMut(&str, f64),
) -> Result<(), BuildError> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    let go = command::find("go").ok_or(BuildError::NoGo)?;
    let version = command::run(Command::new(&go).arg("version"))
        .map_err(|source| BuildError::Go { module: "the programs", source })?;
    let bin = layout.bin();
    files::create_directory(&bin).map_err(BuildError::File)?;

    let is_needed = |module: &&Module| match module.needed_for {
        Need::AnyLevel => true,
        Need::Node => level == Level::Node,
        Need::Addition(addition) => additions.contains(&addition),
    };
    for module in MODULES.iter().filter(is_needed) {
        let source = sources.join(module.directory);
        let stamp = stamp_of(module, &source, &version).map_err(BuildError::File)?;
        let stamp_file = bin.join(format!(".{}.stamp", module.directory));
        let places = module.files.iter().map(|files| &files.place);
        let complete = module
            .programs
            .iter()
            .chain(module.links)
            .chain(places)
            .all(|it| bin.join(it).exists());
        if complete && fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp) {
            continue;
        }
        let started = Instant::now();
        build_module(&go, module, &source, &bin)?;
        // Last, so that an interrupted build is repeated.
        files::replace(&stamp_file, &stamp).map_err(BuildError::File)?;
        report(module.directory, started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn build_module(go: &Path, module: &Module, source: &Path, bin: &Path) -> Result<(), BuildError> {
    // Built in a separate directory and moved: a running testbed keeps the program it has open.
    let output = bin.join(format!(".{}.new", module.directory));
    files::remove_tree(&output).map_err(BuildError::File)?;
    files::create_directory(&output).map_err(BuildError::File)?;
    let mut command = Command::new(go);
    command
        .current_dir(source)
        .env("GOFLAGS", "-mod=readonly")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &linker_flags(module)])
        .args(module.options)
        .arg("-o")
        .arg(format!("{}/", output.display()))
        .args(module.packages);
    if module.is_static {
        command.env("CGO_ENABLED", "0");
    }
    command::run(&mut command)
        .map_err(|source| BuildError::Go { module: module.directory, source })?;

    for program in module.programs {
        let built = built_name(module, program, &output);
        let place = bin.join(program);
        fs::rename(&built, &place).map_err(failed("move", &built)).map_err(BuildError::File)?;
    }
    for link in module.links {
        let place = bin.join(link);
        if fs::symlink_metadata(&place).is_err() {
            symlink(module.programs[0], &place)
                .map_err(failed("link", &place))
                .map_err(BuildError::File)?;
        }
    }
    if let Some(wanted) = &module.files {
        let found = command::run(
            Command::new(go).current_dir(source).env("GOFLAGS", "-mod=readonly").args([
                "list",
                "-m",
                "-f",
                "{{.Dir}}",
                wanted.module,
            ]),
        );
        let root = found.map_err(|source| BuildError::Go { module: module.directory, source })?;
        program_files::copy(Path::new(root.trim()), wanted.paths, &bin.join(wanted.place))
            .map_err(BuildError::File)?;
    }
    files::remove_tree(&output).map_err(BuildError::File)
}

/// Go names a program after the last element of its package path, without a major version such as
/// `v3`: etcd's server becomes `server`, and Cluster API's core manager `core`.
fn built_name(module: &Module, program: &str, output: &Path) -> PathBuf {
    match module.directory {
        "etcd" => output.join("server"),
        "cluster-api" => output.join("core"),
        _ => output.join(program),
    }
}

fn linker_flags(module: &Module) -> String {
    match module.directory {
        "kubernetes" => {
            format!("-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}")
        }
        _ => "-s -w".to_owned(),
    }
}

fn stamp_of(module: &Module, source: &Path, version: &str) -> Result<String, FileError> {
    let mut paths: Vec<PathBuf> = fs::read_dir(source)
        .map_err(failed("list", source))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let mut digest = Sha256::new();
    for path in paths {
        digest.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        digest.update([0]);
        digest.update(fs::read(&path).map_err(failed("read", &path))?);
        digest.update([0]);
    }
    digest.update(version);
    digest.update(linker_flags(module));
    digest.update(module.options.join(" "));
    Ok(crate::image::hexadecimal(&digest.finalize()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn go_directory(module: &Module) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(module.directory)
    }

    #[test]
    fn every_module_has_its_sources() {
        for module in &MODULES {
            assert!(go_directory(module).join("go.mod").is_file(), "{}", module.directory);
        }
    }

    #[test]
    fn the_reported_version_is_the_required_one() {
        let required = fs::read_to_string(go_directory(&MODULES[0]).join("go.mod")).unwrap();
        assert!(required.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")));
    }

    /// The versions of modules that a `go.mod` requires, or replaces the required ones with.
    fn versions(module: &Module) -> BTreeMap<String, String> {
        let text = fs::read_to_string(go_directory(module).join("go.mod")).unwrap();
        let (mut versions, mut block) = (BTreeMap::new(), "");
        for line in text.lines() {
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                [kind, "("] => block = kind,
                [")"] => block = "",
                [name, version, ..] if block == "require" => {
                    versions.insert((*name).to_owned(), (*version).to_owned());
                }
                [name, "=>", _, version] => {
                    versions.insert((*name).to_owned(), (*version).to_owned());
                }
                _ => {}
            }
        }
        versions
    }

    /// What both use is then compiled once: with its own versions Cluster API takes four times as long.
    #[test]
    fn cluster_api_uses_the_libraries_of_kubernetes() {
        let (kubernetes, cluster_api) = (versions(&MODULES[0]), versions(&MODULES[5]));
        for (name, version) in &cluster_api {
            if let Some(other) = kubernetes.get(name) {
                assert_eq!(version, other, "{name}");
            }
        }
        assert_eq!(cluster_api.get("k8s.io/client-go"), kubernetes.get("k8s.io/client-go"));
    }

    #[test]
    fn a_stamp_changes_with_the_compiler_and_the_module_only() {
        let of = |module, version| stamp_of(module, &go_directory(module), version).unwrap();
        let pause = &MODULES[4];
        assert_eq!(of(pause, "go1.26.0"), of(pause, "go1.26.0"));
        assert_ne!(of(pause, "go1.26.0"), of(pause, "go1.26.1"));
        assert_ne!(of(pause, "go1.26.0"), of(&MODULES[3], "go1.26.0"));
    }
}
