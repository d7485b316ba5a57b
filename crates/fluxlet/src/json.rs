//! JSON as Flux's commands print it: with a space after each comma and colon.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

/// The default format of Python and jansson.
struct SpacedFormatter;

impl Formatter for SpacedFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// Formats `value` on one line.
pub fn spaced(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, SpacedFormatter);
    // Writing to memory does not fail, and all keys of our values are strings.
    let _never_fails = value.serialize(&mut serializer);
    String::from_utf8(bytes).unwrap_or_default()
}

/// The same with non-ASCII characters escaped, as Python does.
pub fn spaced_ascii(value: &impl Serialize) -> String {
    let mut text = String::new();
    for character in spaced(value).chars() {
        if character.is_ascii() {
            text.push(character);
            continue;
        }
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            text.push_str(&format!("\\u{unit:04x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spaces_are_where_flux_has_them() {
        let value = json!({"a": [1, "x,y:z"], "b": {"ƒ": null}});
        assert_eq!(spaced(&value), r#"{"a": [1, "x,y:z"], "b": {"ƒ": null}}"#);
        assert_eq!(spaced_ascii(&json!("ƒ😳")), r#""\u0192\ud83d\ude33""#);
    }
}
