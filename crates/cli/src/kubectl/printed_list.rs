//! Prints a list of objects in the formats of `kubectl get`.

use anyhow::Result;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use super::output_format::ListFormat;
use super::session::Session;
use crate::print;

/// What to list, and how to print it.
#[derive(clap::Args)]
pub(super) struct ListOptions {
    /// List those of all namespaces.
    #[arg(short = 'A', long)]
    pub(super) all_namespaces: bool,

    /// Output format.
    #[arg(short, long, value_enum)]
    output: Option<ListFormat>,
}

/// A list as kubectl prints it.
fn as_list<K: Serialize>(listed: &[K]) -> Value {
    json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": "" },
        "items": listed })
}

impl ListOptions {
    /// Whether one is given.
    pub(super) fn is_any(&self) -> bool {
        self.all_namespaces || self.output.is_some()
    }

    /// Prints objects of a kind. `rows` makes a table of them, with more columns if its argument is
    /// true. Returns whether a table was printed.
    pub(super) fn print<K: Resource<DynamicType = ()> + Serialize>(
        &self,
        session: &Session,
        listed: &mut [K],
        rows: impl FnOnce(&[K], bool) -> String,
    ) -> Result<bool> {
        let kind = K::kind(&());
        // As kubectl does.
        listed.iter_mut().for_each(|object| object.meta_mut().managed_fields = None);
        let list = as_list(listed);
        let text = match self.output {
            Some(ListFormat::Data(format)) => format.print(&list)?,
            Some(ListFormat::Name) => {
                let kind = kind.to_lowercase();
                let name = |it: &K| format!("{kind}.flux-framework.org/{}\n", it.name_any());
                listed.iter().map(name).collect()
            }
            None | Some(ListFormat::Wide) if listed.is_empty() => {
                let kinds = match kind.strip_suffix('y') {
                    Some(stem) => format!("{stem}ies"),
                    None => format!("{kind}s"),
                };
                match self.all_namespaces {
                    true => print::message(format_args!("No {kinds} found.")),
                    false => print::message(format_args!(
                        "No {kinds} found in {} namespace.",
                        session.namespace
                    )),
                }
                return Ok(false);
            }
            wide => {
                print::output(rows(listed, wide.is_some()))?;
                return Ok(true);
            }
        };
        print::output(text)?;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_printed_as_a_list_that_kubectl_accepts() {
        let list = as_list(&[json!({ "kind": "Burst" })]);
        assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("List"), &json!("Burst")));
    }
}
