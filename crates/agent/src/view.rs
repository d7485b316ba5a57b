//! Finds the view: the directory that contains Flux.
//!
//! In view images its name is a hash of its content, and it is the only entry of
//! `._view`; Flux only works at the path it was built for. So the plan names the
//! mounted directory, and the agent finds the view in it.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use flux_operator_wire::{BootPlan, FluxHome};

use crate::layout::Layout;

/// Replaces the plan's directory by the one below it that contains `bin`, if there is one.
pub fn resolve(plan: &mut BootPlan) {
    if let FluxHome::View(named) = &mut plan.flux
        && let Some(view) = find_view(Path::new(named))
        && let Some(view) = view.to_str()
    {
        *named = view.to_owned();
    }
}

/// Links the view at the path that users expect, if it is not there itself.
pub fn link(plan: &BootPlan, layout: &Layout) -> io::Result<()> {
    let FluxHome::View(view) = &plan.flux else { return Ok(()) };
    match symlink(view, layout.user_file("view")) {
        // Left by a container that was restarted, or copied there.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn find_view(named: &Path) -> Option<PathBuf> {
    if named.join("bin").is_dir() {
        return None;
    }
    let mut views: Vec<PathBuf> = fs::read_dir(named.join("._view"))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("bin").is_dir())
        .collect();
    views.sort();
    views.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_found_below_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let mut plan = crate::rank_plan::tests::plan();
        plan.flux = FluxHome::View(folder.path().to_str().unwrap().to_owned());
        let missing = plan.clone();
        resolve(&mut plan);
        assert_eq!(plan, missing);
        let view = folder.path().join("._view/abcdefgh");
        fs::create_dir_all(view.join("bin")).unwrap();
        resolve(&mut plan);
        assert_eq!(plan.flux, FluxHome::View(view.to_str().unwrap().to_owned()));
        let found = plan.clone();
        resolve(&mut plan);
        assert_eq!(plan, found);
    }
}
