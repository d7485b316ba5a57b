//! The image with the operator and the agent.
//!
//! There is no registry that every build could name: who publishes the image sets its name
//! with `FLUX_OPERATOR_DEFAULT_IMAGE` when the program is built, and whoever runs a program
//! without one says which image to use.

use anyhow::{Context, Result};

/// The name that the publisher of this build has set.
pub(crate) const BUILT_IN: Option<&str> = match option_env!("FLUX_OPERATOR_DEFAULT_IMAGE") {
    Some(name) if !name.is_empty() => Some(name),
    _ => None,
};

/// Stands for an image that is still to be chosen. No registry can exist below `invalid`
/// (RFC 2606).
pub(crate) const PLACEHOLDER: &str = "flux-operator.invalid/flux-operator:dev";

/// The image to use: what the user said by `option`, which defaults to [`BUILT_IN`].
pub(crate) fn required(image: Option<&str>, option: &str) -> Result<String> {
    let image = image.filter(|image| !image.is_empty()).with_context(|| {
        format!(
            "no image is given, and this build has no default for operator and agent\n\
             hint: give {option} IMAGE or set FLUX_OPERATOR_IMAGE; `make image` builds one"
        )
    })?;
    Ok(image.to_owned())
}
