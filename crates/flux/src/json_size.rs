//! How large JSON becomes when it is parsed.

/// How many values a JSON text has, and some more: one for each bracket that opens, and for each comma.
///
/// As a tree, an object in seven bytes of text takes some 600 bytes of memory. Compare this number with a
/// limit before a text is parsed that users choose.
pub fn count_values(text: &str) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' | b',' if !in_string => count = count.saturating_add(1),
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_commas_outside_strings_count() {
        for (text, count) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a": [1, 2], "b": {}}"#, 5),
            (r#"{"a,[{": "\",[{", "b": "\\"}"#, 2),
        ] {
            assert_eq!(count_values(text), count, "{text}");
        }
    }
}
