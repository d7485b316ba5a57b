//! The guard around code that reads objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Runs code that reads an object. The code only borrows what it needs, and nothing is
/// changed before it returns: a caught panic leaves everything as it was.
pub trait Guard {
    /// Reads an object.
    ///
    /// # Errors
    /// The message of a panic that was caught.
    fn read<T>(&self, object: &ObjectMeta, read: impl FnOnce() -> T) -> Result<T, String>;
}

/// Catches nothing: a panic terminates the program. For programs that read once and print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unguarded;

impl Guard for Unguarded {
    fn read<T>(&self, _: &ObjectMeta, read: impl FnOnce() -> T) -> Result<T, String> {
        Ok(read())
    }
}
