//! Versions of Flux (flux-core), and the oldest supported one.
//!
//! Flux versions its builds with `git describe`: `0.68.0` is a release, `0.88.0-59-g4a5e79f` a
//! build 59 commits after one. A build without tags has only a hash, which is not a version.

use std::fmt;
use std::str::FromStr;

/// A release of Flux. Builds between two releases count as the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

/// Why a text is not a version of Flux.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a version of Flux, such as 0.68.0")]
pub struct VersionError {
    text: String,
}

/// A version of Flux that is older than the oldest supported one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Flux {found} is too old: {} ({}) or newer is needed",
    Version::OLDEST,
    Version::OLDEST_DATE
)]
pub struct VersionTooOld {
    /// The version that was found.
    pub found: Version,
}

impl Version {
    /// The oldest supported release. Since then `broker.quorum` is a number of brokers; before, it
    /// was a set of ranks.
    pub const OLDEST: Version = Version::new(0, 51, 0);

    /// When [`Version::OLDEST`] was released.
    pub const OLDEST_DATE: &str = "June 2023";

    /// The first release in which a broker's host name is an attribute. Before, it could only be
    /// set with `FLUX_FAKE_HOSTNAME`, which was removed in the same release.
    const HOSTNAME_ATTRIBUTE: Version = Version::new(0, 82, 0);

    /// Creates a version from its numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    /// Parses the output of `flux version`. `None` if it contains no version.
    pub fn parse_output(output: &str) -> Option<Version> {
        let line = output.lines().find_map(|line| line.strip_prefix("commands:"))?;
        line.trim().parse().ok()
    }

    /// Checks that this release is supported.
    pub fn check(self) -> Result<(), VersionTooOld> {
        if self < Version::OLDEST { Err(VersionTooOld { found: self }) } else { Ok(()) }
    }

    /// Whether brokers of both versions can be in one instance: Flux requires the same minor
    /// release.
    pub fn is_compatible_with(self, other: Version) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }

    /// Whether a broker takes its host name from an attribute, rather than from
    /// `FLUX_FAKE_HOSTNAME`.
    pub fn has_hostname_attribute(self) -> bool {
        self >= Version::HOSTNAME_ATTRIBUTE
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Version, VersionError> {
        let error = || VersionError { text: text.chars().take(64).collect() };
        let release = text.strip_prefix('v').unwrap_or(text);
        // The rest identifies the build.
        let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
        let (release, build) = release.split_at(end);
        if build.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(error());
        }
        let numbers: Result<Vec<u32>, _> = release.splitn(4, '.').map(str::parse).collect();
        match numbers.map_err(|_| error())?.as_slice() {
            [major, minor] => Ok(Version::new(*major, *minor, 0)),
            [major, minor, patch] => Ok(Version::new(*major, *minor, *patch)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Version { major, minor, patch } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_as_flux_prints_them() {
        for (text, version) in [
            ("0.68.0", Some(Version::new(0, 68, 0))),
            ("0.61.2", Some(Version::new(0, 61, 2))),
            ("0.88.0-59-g4a5e79f", Some(Version::new(0, 88, 0))),
            ("0.88.0-fluxlet-0.1.0", Some(Version::new(0, 88, 0))),
            ("v0.49.0", Some(Version::new(0, 49, 0))),
            ("0.51", Some(Version::new(0, 51, 0))),
            ("1.0.0+dirty", Some(Version::new(1, 0, 0))),
            // Debian's way to write a version before 0.82.0.
            ("0.82.0~rc1", Some(Version::new(0, 82, 0))),
            // Builds without tags have a hash.
            ("4a5e79f", None),
            ("1234567", None),
            ("", None),
            ("0", None),
            ("0.", None),
            (".1", None),
            ("0.1.2.3", None),
            ("0.1.", None),
            ("0.68.0rc1", None),
            ("-0.68.0", None),
            ("+0.68.0", None),
            ("0.99999999999.0", None),
        ] {
            assert_eq!(text.parse().ok(), version, "{text:?}");
        }
    }

    #[test]
    fn the_version_of_the_commands_is_used() {
        // What flux-core 0.88 and 0.68 printed.
        let recent = "commands:    \t\t0.88.0-59-g4a5e79f\nlibflux-core:\t\t0.88.0-59-g4a5e79f\n\
                      build-options:\t\t+systemd+hwloc.api==2.8.0+zmq==4.3.4\n";
        assert_eq!(Version::parse_output(recent), Some(Version::new(0, 88, 0)));
        let old = "commands:    \t\t0.68.0\nlibflux-core:\t\t0.68.0\n\
                   libflux-security:\t0.11.0\nbuild-options:\t\t+hwloc==2.8.0+zmq==4.3.4\n";
        assert_eq!(Version::parse_output(old), Some(Version::new(0, 68, 0)));
        for unknown in ["", "flux: no such command\n", "commands:\n", "commands: 4a5e79f\n"] {
            assert_eq!(Version::parse_output(unknown), None, "{unknown:?}");
        }
    }

    #[test]
    fn releases_are_in_order() {
        let versions = ["0.9.0", "0.51.0", "0.61.0", "0.61.2", "0.82.0", "1.0.0"];
        let versions = versions.map(|text| text.parse::<Version>().unwrap());
        assert!(versions.is_sorted(), "{versions:?}");
        for version in versions {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
    }

    #[test]
    fn a_version_older_than_the_oldest_is_rejected_with_both_versions() {
        for (version, supported) in
            [("0.46.1", false), ("0.50.0", false), ("0.51.0", true), ("0.88.0-59-g4a5e79f", true)]
        {
            let version: Version = version.parse().unwrap();
            assert_eq!(version.check().is_ok(), supported, "{version}");
        }
        assert_eq!(
            Version::new(0, 50, 0).check().unwrap_err().to_string(),
            "Flux 0.50.0 is too old: 0.51.0 (June 2023) or newer is needed"
        );
    }

    #[test]
    fn host_names_are_attributes_since_0_82() {
        for (version, attribute) in [("0.68.0", false), ("0.81.0", false), ("0.82.0", true)] {
            let version: Version = version.parse().unwrap();
            assert_eq!(version.has_hostname_attribute(), attribute, "{version}");
        }
    }
}
