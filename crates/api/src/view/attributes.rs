//! The attributes of a job, as text.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The attributes of a job, as the text of a JSON object. As a map, a short attribute would take fifteen
/// times the memory of its text, and users choose how many there are.
#[derive(Clone, Debug)]
pub struct Attributes(Arc<RawValue>);

impl Attributes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.as_str() == "{}"
    }

    /// Whether there is one with this name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The JSON text of the value of an attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut parser = serde_json::Deserializer::from_str(self.as_str());
        // It was parsed before.
        let found = Find(name).deserialize(&mut parser).ok().flatten();
        found.map(RawValue::get)
    }

    fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes::from(BTreeMap::new())
    }
}

impl From<BTreeMap<String, Value>> for Attributes {
    fn from(attributes: BTreeMap<String, Value>) -> Attributes {
        let text = serde_json::value::to_raw_value(&attributes);
        Attributes(text.expect("the keys of the map are strings").into())
    }
}

impl PartialEq for Attributes {
    fn eq(&self, other: &Attributes) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Attributes, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match text.get().starts_with('{') {
            true => Ok(Attributes(text.into())),
            false => Err(D::Error::custom("attributes are not an object")),
        }
    }
}

impl JsonSchema for Attributes {
    fn schema_name() -> Cow<'static, str> {
        "Attributes".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, Value>::json_schema(generator)
    }
}

/// Finds the value of a name in an object; of several, the last, as in a map.
struct Find<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_found) = map.next_key_seed(IsName(self.0))? {
            if is_found {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Whether a key is this name.
struct IsName<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_attribute_is_found_by_its_name() {
        let text = r#"{"a":{"b":[1.50,null]},"b\n":"x","c":1, "c":2}"#;
        let read: Attributes = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        let found = ["a", "b\n", "c", "b", ""].map(|name| read.get(name));
        assert_eq!(found, [Some(r#"{"b":[1.50,null]}"#), Some("\"x\""), Some("2"), None, None]);
        assert!(read.contains("a") && !read.is_empty() && Attributes::default().is_empty());
        let map = BTreeMap::from([("a".to_owned(), json!({ "b": 1 }))]);
        assert_eq!(Attributes::from(map).get("a"), Some(r#"{"b":1}"#));
        for text in ["[]", "7", "null", "\"{}\""] {
            assert!(serde_json::from_str::<Attributes>(text).is_err(), "{text}");
        }
    }
}
