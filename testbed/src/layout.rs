//! The files and directories of testbeds.
//!
//! ```text
//! target/testbed/            the base: TESTBED_DIR, else CARGO_TARGET_DIR/testbed
//!   bin/                     the Go programs; build products, kept by `down`
//!   images/                  the two images every node has; build products too
//!   .lock                    locked while something is built, started, linked or stopped
//!   <name>/                  one testbed; `down` removes it
//!     state.json  kubeconfig  pki/  log/  etcd/ ...
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The base directory of all testbeds of one clone of the project.
#[derive(Clone, Debug)]
pub struct Layout {
    base: PathBuf,
}

impl Layout {
    /// Finds the base directory from the environment, as Cargo does for its target directory.
    pub fn discover() -> Layout {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let base = match (variable("TESTBED_DIR"), variable("CARGO_TARGET_DIR")) {
            (Some(directory), _) => PathBuf::from(directory),
            (None, Some(target)) => PathBuf::from(target).join("testbed"),
            (None, None) => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/testbed"),
        };
        Layout::at(&base)
    }

    /// The layout in the given directory.
    pub fn at(base: &Path) -> Layout {
        // Symbolic links are resolved if possible: the supervisor uses the same files from another
        // mount namespace, and testbeds are identified by this path.
        let absolute = std::path::absolute(base).unwrap_or_else(|_| base.to_owned());
        Layout { base: resolve_existing(&absolute) }
    }

    /// The base directory itself.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// The Go programs.
    pub fn bin(&self) -> PathBuf {
        self.base.join("bin")
    }

    /// The images every node has.
    pub(crate) fn images(&self) -> PathBuf {
        self.base.join("images")
    }

    /// The lock that serializes builds, starts, links and stops.
    pub(crate) fn lock(&self) -> PathBuf {
        self.base.join(".lock")
    }

    /// The directory of the testbed with this name.
    pub(crate) fn home(&self, name: &TestbedName) -> TestbedDirectory {
        TestbedDirectory(self.base.join(&name.0))
    }

    /// The names of all testbeds that have a directory, running or not.
    pub fn names(&self) -> Vec<TestbedName> {
        let mut names: Vec<TestbedName> = std::fs::read_dir(&self.base)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        names.sort();
        names
    }
}

/// The directory of one testbed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct TestbedDirectory(PathBuf);

impl TestbedDirectory {
    pub(crate) fn at(path: PathBuf) -> TestbedDirectory {
        TestbedDirectory(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// The log of a component, or of the supervisor itself.
    pub fn log(&self, component: &str) -> PathBuf {
        self.0.join("log").join(format!("{component}.log"))
    }

    /// A file in the directory of the certificate authority.
    pub(crate) fn pki(&self, file: &str) -> PathBuf {
        self.0.join("pki").join(file)
    }

    /// A component's own kubeconfig.
    pub(crate) fn kubeconfig_of(&self, component: &str) -> PathBuf {
        self.0.join("pki").join(format!("{component}.kubeconfig"))
    }
}

/// The name of a testbed: a directory name that needs no quoting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestbedName(String);

impl TestbedName {
    /// Directories of the base that are not testbeds.
    const RESERVED: [&'static str; 2] = ["bin", "images"];
}

impl FromStr for TestbedName {
    type Err = TestbedNameError;

    fn from_str(text: &str) -> Result<TestbedName, TestbedNameError> {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > 32 || text.starts_with('-') || !text.bytes().all(legal) {
            return Err(TestbedNameError::Illegal { name: text.to_owned() });
        }
        if TestbedName::RESERVED.contains(&text) {
            return Err(TestbedNameError::Reserved { name: text.to_owned() });
        }
        Ok(TestbedName(text.to_owned()))
    }
}

impl fmt::Display for TestbedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Why a text is not a valid name of a testbed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestbedNameError {
    /// It has other characters, or is too long.
    #[error("{name:?} is not a valid testbed name: expected up to 32 of a-z, 0-9 and -")]
    Illegal {
        /// The text.
        name: String,
    },
    /// A directory with this name has another use.
    #[error("{name:?} is not a valid testbed name: the directory has another use")]
    Reserved {
        /// The text.
        name: String,
    },
}

/// Resolves the existing part of a path; the rest is appended unchanged.
fn resolve_existing(path: &Path) -> PathBuf {
    if let Ok(resolved) = path.canonicalize() {
        return resolved;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolve_existing(parent).join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_directory_names() {
        for good in ["default", "a", "b2", "two-words"] {
            assert_eq!(good.parse::<TestbedName>().unwrap().to_string(), good);
        }
        for bad in ["", "-a", "a/b", "..", "A", "a b", "bin", "images", &"a".repeat(33)] {
            assert!(bad.parse::<TestbedName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_layout_is_absolute_even_where_nothing_exists_yet() {
        let layout = Layout::at(Path::new("/nonexistent/base"));
        assert_eq!(layout.bin(), Path::new("/nonexistent/base/bin"));
        assert!(Layout::at(Path::new("relative")).base().is_absolute());
        assert!(layout.names().is_empty());
        let home = layout.home(&"a".parse().unwrap());
        assert_eq!(home.log("kubelet"), Path::new("/nonexistent/base/a/log/kubelet.log"));
    }
}
