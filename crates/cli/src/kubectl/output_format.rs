//! The formats that `-o` accepts.

use anyhow::{Context, Result};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::Serialize;

/// A format for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DataFormat {
    Json,
    Yaml,
}

/// A format for programs, or a table with more columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableFormat {
    Data(DataFormat),
    Wide,
}

/// A format of `kubectl get`: for programs, a table with more columns, or names alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListFormat {
    Data(DataFormat),
    Wide,
    Name,
}

impl DataFormat {
    /// A value in this format. It ends with a line break.
    pub(super) fn print(self, value: &impl Serialize) -> Result<String> {
        match self {
            DataFormat::Json => {
                let json = serde_json::to_string_pretty(value).context("failed to write JSON")?;
                Ok(json + "\n")
            }
            DataFormat::Yaml => serde_saphyr::to_string(value).context("failed to write YAML"),
        }
    }
}

impl ValueEnum for TableFormat {
    fn value_variants<'a>() -> &'a [TableFormat] {
        use DataFormat::{Json, Yaml};
        &[Self::Data(Json), Self::Data(Yaml), Self::Wide]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            TableFormat::Data(format) => format.to_possible_value(),
            TableFormat::Wide => Some(PossibleValue::new("wide")),
        }
    }
}

impl ValueEnum for ListFormat {
    fn value_variants<'a>() -> &'a [ListFormat] {
        use DataFormat::{Json, Yaml};
        &[Self::Data(Json), Self::Data(Yaml), Self::Wide, Self::Name]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            ListFormat::Data(format) => format.to_possible_value(),
            ListFormat::Wide => Some(PossibleValue::new("wide")),
            ListFormat::Name => Some(PossibleValue::new("name")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<F: ValueEnum>() -> Vec<String> {
        let values = F::value_variants().iter().filter_map(F::to_possible_value);
        values.map(|value| value.get_name().to_owned()).collect()
    }

    #[test]
    fn formats_have_the_names_of_kubectl() {
        assert_eq!(names::<DataFormat>(), ["json", "yaml"]);
        assert_eq!(names::<TableFormat>(), ["json", "yaml", "wide"]);
        assert_eq!(names::<ListFormat>(), ["json", "yaml", "wide", "name"]);
        let parsed = ListFormat::from_str("yaml", false);
        assert_eq!(parsed, Ok(ListFormat::Data(DataFormat::Yaml)));
    }

    #[test]
    fn a_value_ends_with_a_line_break() {
        let value = serde_json::json!({ "a": 1 });
        assert_eq!(DataFormat::Json.print(&value).unwrap(), "{\n  \"a\": 1\n}\n");
        assert_eq!(DataFormat::Yaml.print(&value).unwrap(), "a: 1\n");
    }
}
