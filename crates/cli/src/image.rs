//! The image with the operator and the agent.
//!
//! There is no registry that every build could name. The publisher of an image sets its name with
//! `FLUX_OPERATOR_DEFAULT_IMAGE` at build time; without it, the user has to name an image.

use anyhow::{Context, Result};

/// The image name that the publisher of this build has set.
pub(crate) const BUILT_IN: Option<&str> = match option_env!("FLUX_OPERATOR_DEFAULT_IMAGE") {
    Some(name) if !name.is_empty() => Some(name),
    _ => None,
};

/// A placeholder for an image that is still to be chosen. No registry can exist below `invalid`
/// (RFC 2606).
pub(crate) const PLACEHOLDER: &str = "flux-operator.invalid/flux-operator:dev";

/// The image to use: the value of the user's `option`, which defaults to [`BUILT_IN`].
pub(crate) fn require_image(image: Option<&str>, option: &str) -> Result<String> {
    let image = image.filter(|image| !image.is_empty()).with_context(|| {
        format!(
            "no image is given, and this build has no default image\n\
             hint: give {option} IMAGE or set FLUX_OPERATOR_IMAGE; `make image` builds one"
        )
    })?;
    Ok(image.to_owned())
}
