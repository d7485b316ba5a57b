//! Images for tests: the agent, and a Flux to run.
//!
//! With `FLUX_ROOT`, an installed prefix, it is a real Flux: one image with the prefix, Python, and
//! all libraries they link. Otherwise it is fluxlet, in a view image with the layout of real ones.
//!
//! [`view`] is for tests of the delivery itself, with either Flux.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use flux_operator_testbed::{Image, Testbed};
use serde_json::{Value, json};

use crate::cluster::{busybox_image, testbed};
use crate::merge;

/// The image with the agent.
pub const AGENT_IMAGE: &str = "flux-operator.test/agent:1";
/// The operator's image: the operator, and the agent.
pub const OPERATOR_IMAGE: &str = "flux-operator.test/flux-operator:1";
/// A view image with fluxlet.
const VIEW_IMAGE: &str = "flux-operator.test/view:1";
/// An image with a real Flux.
const FLUX_IMAGE: &str = "flux-operator.test/flux:1";
/// A view image with a real Flux, and an image with everything else that it needs.
pub const REAL_VIEW: ViewImages =
    ViewImages { view: "flux-operator.test/real-view:1", runner: "flux-operator.test/base:1" };

/// An image with a real Flux and a test program.
const PROGRAM_IMAGE: &str = "flux-operator.test/program:1";

/// A view image, and an image without Flux for the runner.
#[derive(Clone, Copy, Debug)]
pub struct ViewImages {
    /// The view image.
    pub view: &'static str,
    /// The runner's image.
    pub runner: &'static str,
}

/// Imports all images into the testbed, once per test program.
pub fn import_all() -> Result<()> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    DONE.get_or_init(|| import().map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(anyhow::Error::msg)
}

/// An image with fluxlet that says it is another release of Flux.
const OTHER_RELEASE_IMAGE: &str = "flux-operator.test/other-release:1";

/// Imports an image with another release of Flux into a testbed.
pub fn import_other_release_to(testbed: &Testbed) -> Result<&'static str> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("flux");
    std::fs::write(
        &script,
        "#!/bin/sh\n[ \"$*\" = version ] && echo 'commands: 0.70.0' && exit\nexec fluxlet \"$@\"\n",
    )?;
    let image = Image::busybox(OTHER_RELEASE_IMAGE)?
        .file(&static_program("fluxlet")?, "/usr/bin/fluxlet", 0o755)
        .file(&script, "/usr/bin/flux", 0o755);
    import_image(testbed, image)?;
    Ok(OTHER_RELEASE_IMAGE)
}

/// An image with a shell and kubectl.
const KUBECTL_IMAGE: &str = "flux-operator.test/kubectl:1";

/// Imports an image with a shell and kubectl into a testbed.
pub fn import_kubectl_to(testbed: &Testbed) -> Result<&'static str> {
    let kubectl = PathBuf::from(testbed.kubectl().get_program());
    let image = Image::busybox(KUBECTL_IMAGE)?.file(&kubectl, "/bin/kubectl", 0o755);
    import_image(testbed, with_libraries(image, &[kubectl])?)?;
    Ok(KUBECTL_IMAGE)
}

/// Where certificate authorities are known, on this machine and in an image.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Imports the image of the program that makes clusters of Google Kubernetes Engine into a testbed. Google
/// is played by the server at this host and port, for which the image is. The program is the one that `cargo build` has built:
/// to link Google's client once more, statically, would take a minute.
pub fn import_gke_to(testbed: &Testbed, google: SocketAddr) -> Result<String> {
    let tag = format!("flux-operator.test/flux-operator-gke:{}", google.port());
    let program = crate::cluster::program()?.with_file_name("flux-operator-gke");
    let image = Image::new(&tag)
        .file(&program, flux_operator_wire::GKE_PROGRAM, 0o755)
        .file(Path::new(AUTHORITIES), AUTHORITIES, 0o644)
        .environment(&format!("GKE_ENDPOINT=http://{google}"))
        .environment(&format!("GCE_METADATA_HOST={google}"))
        .user("65532:65532");
    import_image(testbed, with_libraries(image, &[program])?)?;
    Ok(tag)
}

/// Imports the operator's own image into the testbed.
pub fn import_operator() -> Result<()> {
    import_operator_to(&testbed()?)
}

/// Imports the operator's own image into a testbed.
pub fn import_operator_to(testbed: &Testbed) -> Result<()> {
    let operator = static_program("flux-operator")?;
    let agent = static_program("flux-operator-agent")?;
    let image = Image::new(OPERATOR_IMAGE)
        .file(&operator, "/flux-operator", 0o755)
        .file(&agent, "/flux-operator-agent", 0o755)
        .entrypoint(["/flux-operator"])
        .user("65532:65532");
    import_image(testbed, image)
}

/// Changes a manifest to use the Flux in the test images, unless it specifies where Flux is.
pub fn with_flux(manifest: &mut Value) {
    let container = &manifest["spec"]["flux"]["container"];
    if container["image"].is_string() || container["disable"].is_boolean() {
        return;
    }
    let real = flux_root().is_some();
    let container = if real { json!({ "disable": true }) } else { json!({ "image": VIEW_IMAGE }) };
    let image = if real { FLUX_IMAGE } else { busybox_image() };
    merge(&mut manifest["spec"], &json!({ "flux": { "container": container } }));
    for container in manifest["spec"]["containers"].as_array_mut().into_iter().flatten() {
        container["image"] = image.into();
    }
}

/// Imports the view image of the Flux under test into the testbed.
pub fn view() -> Result<ViewImages> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    let Some(root) = flux_root() else {
        return Ok(ViewImages { view: VIEW_IMAGE, runner: busybox_image() });
    };
    let import = || import_view_to(&testbed()?, &root);
    DONE.get_or_init(|| import().map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(anyhow::Error::msg)?;
    Ok(REAL_VIEW)
}

/// Imports the view image of the real Flux in `root`, and the runner's image, into a testbed.
pub fn import_view_to(testbed: &Testbed, root: &Path) -> Result<()> {
    import_image(testbed, real_view(root)?)?;
    import_image(testbed, runner_base(root)?)
}

/// Imports an image with the real Flux, and a program of this machine at `place`, into the testbed.
pub fn with_program(program: &Path, path: &str) -> Result<&'static str> {
    let root = flux_root().context("FLUX_ROOT is not set")?;
    let image = real_flux(PROGRAM_IMAGE, &root)?.file(program, path, 0o755);
    import_image(&testbed()?, with_libraries(image, &[program.to_owned()])?)?;
    Ok(PROGRAM_IMAGE)
}

/// The prefix of the real Flux to test with, if any.
pub fn flux_root() -> Option<PathBuf> {
    std::env::var_os("FLUX_ROOT").map(PathBuf::from)
}

/// An image with a shell, and the Flux to test with in PATH.
pub(crate) fn with_own_flux(tag: &str) -> Result<Image> {
    match flux_root() {
        Some(root) => real_flux(tag, &root),
        None => Ok(Image::busybox(tag)?.file(&static_program("fluxlet")?, "/usr/bin/flux", 0o755)),
    }
}

fn import() -> Result<()> {
    import_to(&testbed()?)
}

/// Imports all images into a testbed.
pub fn import_to(testbed: &Testbed) -> Result<()> {
    let agent = static_program("flux-operator-agent")?;
    import_image(testbed, Image::new(AGENT_IMAGE).file(&agent, "/flux-operator-agent", 0o755))?;
    match flux_root() {
        Some(root) => import_image(testbed, real_flux(FLUX_IMAGE, &root)?),
        None => import_image(testbed, fluxlet_view(&static_program("fluxlet")?)),
    }
}

/// The layout of a real view image: the view below a hash, an absolute link to it, and the files it
/// links to.
fn fluxlet_view(fluxlet: &Path) -> Image {
    Image::new(VIEW_IMAGE)
        .file(fluxlet, "/opt/views/._view/abcdefgh/bin/flux", 0o755)
        .link("/opt/views/._view/abcdefgh", "/opt/view")
        .content("what views link to\n", "/opt/software/README", 0o644)
}

/// The layout of a real view image, with a real Flux: programs are links into `/opt/software`. It
/// has a shell, which the Go operator uses to copy it.
fn real_view(root: &Path) -> Result<Image> {
    let bash = Path::new("/bin/bash").canonicalize().context("bash is missing")?;
    let shell = Image::busybox(REAL_VIEW.view)?.file(&bash, "/bin/bash", 0o755);
    let mut image = with_libraries(shell, &[bash])?
        .tree(root, SOFTWARE)?
        .link("/opt/views/._view/abcdefgh", "/opt/view");
    for program in std::fs::read_dir(root.join("bin"))? {
        let name = program?.file_name().to_string_lossy().into_owned();
        image = image.link(
            &format!("{SOFTWARE}/bin/{name}"),
            &format!("/opt/views/._view/abcdefgh/bin/{name}"),
        );
    }
    Ok(image)
}

/// A Flux in a view was built for its path in the view. Ours was built for `root`, so the runner's
/// image has a link there, and the libraries and Python that a view would contain.
fn runner_base(root: &Path) -> Result<Image> {
    Ok(with_dependencies(Image::busybox(REAL_VIEW.runner)?, root)?
        .link(SOFTWARE, &root.to_string_lossy()))
}

/// The path of our Flux in a view.
const SOFTWARE: &str = "/opt/software/flux";

/// A statically linked program, built by `make static`. It is searched for in the directories of
/// `STATIC_PROGRAMS`, separated as in `PATH`, or in Cargo's target directory if that is not set.
pub fn static_program(name: &str) -> Result<PathBuf> {
    let target = || {
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from)
    };
    let folders: Vec<PathBuf> = match std::env::var_os("STATIC_PROGRAMS") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => vec![target().join("x86_64-unknown-linux-gnu/debug")],
    };
    let program = folders.iter().map(|folder| folder.join(name)).find(|program| program.is_file());
    program.with_context(|| {
        format!("{name} is not in {folders:?}: run `make static`, or `make bench` to measure")
    })
}

fn real_flux(tag: &str, root: &Path) -> Result<Image> {
    let image = with_dependencies(Image::busybox(tag)?, root)?
        .tree(root, &root.to_string_lossy())?
        .environment(&format!("PATH={}/bin:/usr/local/bin:/usr/bin:/bin", root.display()));
    Ok(image)
}

/// Adds what the Flux in `root` needs to an image.
fn with_dependencies(image: Image, root: &Path) -> Result<Image> {
    let python = Path::new("/usr/bin/python3").canonicalize().context("python3 is missing")?;
    let version = python.file_name().context("python3 has a name")?.to_string_lossy().into_owned();
    let standard = PathBuf::from(format!("/usr/lib/{version}"));
    let packages = Path::new("/usr/lib/python3/dist-packages");
    let bash = Path::new("/bin/bash").canonicalize().context("bash is missing")?;
    let image = image
        .file(&python, "/usr/bin/python3", 0o755)
        .file(&bash, "/bin/bash", 0o755)
        .tree(&standard, &standard.to_string_lossy())?
        .tree(packages, &packages.to_string_lossy())?;
    let mut programs = vec![python, bash];
    for folder in [root, &standard, packages] {
        programs.extend(linked_files(folder)?);
    }
    with_libraries(image, &programs)
}

fn with_libraries(mut image: Image, programs: &[PathBuf]) -> Result<Image> {
    for library in libraries(programs)? {
        let real =
            library.canonicalize().with_context(|| format!("{} is missing", library.display()))?;
        image = image.file(&real, &library.to_string_lossy(), 0o755);
    }
    Ok(image)
}

/// Files below a directory that may link libraries: programs and shared objects.
fn linked_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut to_visit = vec![folder.to_owned()];
    while let Some(folder) = to_visit.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                to_visit.push(entry.path());
            } else if kind.is_file() && is_linked(&entry.path())? {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

fn is_linked(path: &Path) -> Result<bool> {
    use std::io::Read;
    let mut start = Vec::new();
    std::fs::File::open(path)?.take(4).read_to_end(&mut start)?;
    Ok(start == b"\x7fELF")
}

/// Every library that any of the programs links, by its path.
fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut libraries = BTreeSet::new();
    for some in programs.chunks(64) {
        let output = Command::new("ldd").args(some).output().context("ldd is missing")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = text.lines().filter(|line| line.contains(" (0x")).map(|line| {
            let line = line.split(" (0x").next().unwrap_or_default();
            line.rsplit(' ').next().unwrap_or_default().trim().to_owned()
        });
        libraries.extend(words.filter(|word| word.starts_with('/')).map(PathBuf::from));
    }
    Ok(libraries)
}

pub(crate) fn import_image(testbed: &Testbed, image: Image) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("image.tar");
    image.write(&archive)?;
    testbed.import(&archive)?;
    Ok(())
}
