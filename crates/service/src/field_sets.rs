//! Responses of an API server without the sets of fields that managers own (`managedFields[].fieldsV1`).
//!
//! They are trees that users can write, as deep and as wide as they like. In Kubernetes' own types such a
//! tree takes a hundred times the memory of its text, and one that is too deep fails the list that it is
//! in. No program of ours reads them: they are removed from the text, before it is parsed. The names of
//! the managers stay. An object that replaces the whole of one that was read must be without
//! `managedFields`: otherwise its managers own nothing any more. (For a status they are ignored.)

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Response};
use futures::TryStreamExt;

/// Removes field sets from a response that is still being received, such as a watch. What is not JSON, such
/// as the log of a pod, stays as it is.
pub fn removed_from_stream(response: Response<kube::client::Body>) -> Response<Body> {
    let (head, body) = response.into_parts();
    let body = Body::new(body);
    if !is_json(&head.headers) {
        return Response::from_parts(head, body);
    }
    let mut filter = FieldSetFilter::default();
    let body = body.into_data_stream();
    let body = body.map_ok(move |chunk| Bytes::from(filter.filter(&chunk)));
    Response::from_parts(head, Body::from_stream(body))
}

/// Removes field sets from the body of a response, which has these headers.
pub fn removed_from(headers: &HeaderMap, body: Bytes) -> Bytes {
    match is_json(headers) {
        true => FieldSetFilter::default().filter(&body).into(),
        false => body,
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

/// A member of an object on the way to a field set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Member {
    #[default]
    Other,
    Metadata,
    ManagedFields,
    FieldsV1,
}

impl Member {
    fn of(key: &[u8]) -> Member {
        match key {
            b"metadata" => Member::Metadata,
            b"managedFields" => Member::ManagedFields,
            b"fieldsV1" => Member::FieldsV1,
            _ => Member::Other,
        }
    }
}

/// The longest key that matters.
const LONGEST_KEY: usize = "managedFields".len();

/// What is open at a place of the text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Open {
    Array,
    /// An object, of whose members this one was the last to begin.
    Object(Member),
}

/// Copies JSON in pieces, or several values of JSON one after the other, with all field sets empty.
/// What is not JSON is copied in some way, and fails where it is parsed.
#[derive(Debug, Default)]
struct FieldSetFilter {
    open: Vec<Open>,
    /// How many objects and arrays of the present field set are open, if there is one.
    skipped: usize,
    in_string: bool,
    is_escaped: bool,
    /// Whether the next string is a key, or the present one.
    is_key: bool,
    /// The beginning of the present key.
    key: Vec<u8>,
}

impl FieldSetFilter {
    fn filter(&mut self, text: &[u8]) -> Vec<u8> {
        let mut kept = Vec::with_capacity(text.len());
        for &byte in text {
            let is_skipped = self.skipped > 0;
            if self.in_string {
                self.inside_string(byte);
            } else {
                self.between_strings(byte);
            }
            // The brackets of a field set stay.
            if !is_skipped || self.skipped == 0 {
                kept.push(byte);
            }
        }
        kept
    }

    fn inside_string(&mut self, byte: u8) {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => {
                self.in_string = false;
                if self.is_key
                    && let Some(Open::Object(member)) = self.open.last_mut()
                {
                    *member = Member::of(&self.key);
                }
                return;
            }
            _ => {}
        }
        if self.is_key && self.key.len() <= LONGEST_KEY {
            self.key.push(byte);
        }
    }

    fn between_strings(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_string = true;
                self.key.clear();
            }
            b'{' | b'[' if self.skipped > 0 || self.is_field_set() => {
                self.skipped += 1;
                self.is_key = false;
            }
            b'}' | b']' if self.skipped > 0 => self.skipped -= 1,
            _ if self.skipped > 0 => {}
            b'{' => {
                self.open.push(Open::Object(Member::Other));
                self.is_key = true;
            }
            b'[' => {
                self.open.push(Open::Array);
                self.is_key = false;
            }
            b'}' | b']' => drop(self.open.pop()),
            b',' => self.is_key = matches!(self.open.last(), Some(Open::Object(_))),
            b':' => self.is_key = false,
            _ => {}
        }
    }

    /// Whether a value that begins here is a field set.
    fn is_field_set(&self) -> bool {
        use Open::{Array, Object};
        let field_set = [
            Object(Member::Metadata),
            Object(Member::ManagedFields),
            Array,
            Object(Member::FieldsV1),
        ];
        self.open.ends_with(&field_set)
    }
}

#[cfg(test)]
mod tests;
