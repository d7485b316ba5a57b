//! A JSON value of a user's, as text.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON value of a user's, as text. Parsed, an empty object takes a hundred times the memory of its
/// text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JsonText(Box<RawValue>);

impl JsonText {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl From<Value> for JsonText {
    fn from(value: Value) -> Self {
        let text = RawValue::from_string(value.to_string());
        JsonText(text.unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl JsonSchema for JsonText {
    fn schema_name() -> Cow<'static, str> {
        "JsonText".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Value::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_the_same_before_and_after() {
        let text = "{\"a\":[{},1.50,null]}";
        let read: JsonText = serde_json::from_str(text).unwrap();
        assert_eq!(read.as_str(), text);
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!(JsonText::from(json!({ "a": 1 })).as_str(), "{\"a\":1}");
    }
}
