//! Finds programs in `PATH`, as a shell does.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// A shell for the user's scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shell {
    /// The program.
    pub program: PathBuf,
    /// It is bash, which has more features than a plain shell.
    pub bash: bool,
}

/// A program was not found.
#[derive(Debug, thiserror::Error)]
#[error("program {name:?} was not found{searched}")]
pub struct ProgramNotFound {
    name: String,
    searched: String,
}

/// Finds the program `name`: a path is used as it is, a name is searched for.
pub fn find_program(name: &str, search_path: Option<&OsStr>) -> Result<PathBuf, ProgramNotFound> {
    let not_found = |searched: String| ProgramNotFound { name: name.to_owned(), searched };
    if name.contains('/') {
        let path = PathBuf::from(name);
        return if is_program(&path) { Ok(path) } else { Err(not_found(String::new())) };
    }
    let Some(search_path) = search_path else {
        return Err(not_found(": PATH is not set".to_owned()));
    };
    directories(search_path)
        .map(|directory| directory.join(name))
        .find(|path| is_program(path))
        .ok_or_else(|| not_found(format!(" in PATH={}", search_path.to_string_lossy())))
}

/// Finds the shell to use: bash, or else sh.
pub fn find_shell(search_path: Option<&OsStr>) -> Option<Shell> {
    let found = |name| find_program(name, search_path).ok();
    let bash = found("bash").map(|program| Shell { program, bash: true });
    bash.or_else(|| found("sh").map(|program| Shell { program, bash: false }))
}

/// A search path with `directory` at its end.
pub fn append(search_path: Option<&OsStr>, directory: &str) -> OsString {
    join(search_path, directory, |old, new| [old, new])
}

/// A search path with `directory` at its front.
pub fn prepend(search_path: Option<&OsStr>, directory: &str) -> OsString {
    join(search_path, directory, |old, new| [new, old])
}

fn join<'a>(
    search_path: Option<&'a OsStr>,
    directory: &'a str,
    order: impl Fn(&'a OsStr, &'a OsStr) -> [&'a OsStr; 2],
) -> OsString {
    let directory = OsStr::new(directory);
    match search_path.filter(|path| !path.is_empty()) {
        Some(path) => order(path, directory).join(OsStr::new(":")),
        // Never an empty entry, which would mean the current directory.
        None => directory.to_owned(),
    }
}

fn directories(search_path: &OsStr) -> impl Iterator<Item = PathBuf> + '_ {
    std::env::split_paths(search_path).filter(|path| !path.as_os_str().is_empty())
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn the_first_program_on_the_path_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
        for directory in [&one, &two] {
            std::fs::create_dir(directory).unwrap();
        }
        let path = std::env::join_paths([&one, &two]).unwrap();
        let found = || find_program("flux", Some(&path));
        let message = found().unwrap_err().to_string();
        assert!(message.contains(two.to_str().unwrap()), "{message}");
        files::write(&one.join("flux"), "", 0o644).unwrap();
        std::fs::create_dir(two.join("bash")).unwrap();
        files::write(&two.join("flux"), "", 0o755).unwrap();
        assert_eq!(found().unwrap(), two.join("flux"));
        assert_eq!(find_shell(Some(&path)), None);
        files::write(&two.join("sh"), "", 0o755).unwrap();
        assert_eq!(find_shell(Some(&path)), Some(Shell { program: two.join("sh"), bash: false }));
        files::write(&one.join("bash"), "", 0o755).unwrap();
        assert_eq!(find_shell(Some(&path)), Some(Shell { program: one.join("bash"), bash: true }));
    }

    #[test]
    fn a_path_is_not_searched_for() {
        assert!(find_program("/bin/sh", None).is_ok());
        assert!(find_program("/bin/no such program", None).is_err());
        assert!(find_program("sh", None).unwrap_err().to_string().contains("not set"));
    }

    #[test]
    fn search_paths_grow_without_empty_entries() {
        let path = |text: &'static str| Some(OsStr::new(text));
        assert_eq!(append(path("/a:/b"), "/v"), "/a:/b:/v");
        assert_eq!(prepend(path("/a:/b"), "/v"), "/v:/a:/b");
        assert_eq!(append(None, "/v"), "/v");
        assert_eq!(prepend(path(""), "/v"), "/v");
    }
}
