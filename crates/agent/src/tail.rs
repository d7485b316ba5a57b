//! Forwards a stream and keeps the end of it.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// How much is kept: some twenty lines, which fit into a termination message.
const KEPT_BYTES: usize = 2048;

/// The end of a stream that is being forwarded.
#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<VecDeque<u8>>>);

impl Tail {
    /// Forwards `from` to `to` until end of file.
    pub fn forward(&self, mut from: impl Read, mut to: impl Write) {
        let mut buffer = [0; 4096];
        loop {
            let read = match from.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => &buffer[..read],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            // A missing reader must not block the writer.
            let _ = to.write_all(read).and_then(|()| to.flush());
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(read);
            let excess = kept.len().saturating_sub(KEPT_BYTES);
            kept.drain(..excess);
        }
    }

    /// The text that is kept now, beginning at the start of a line.
    pub fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        let whole = bytes.len() < KEPT_BYTES;
        let text = String::from_utf8_lossy(&bytes);
        let text = match text.split_once('\n') {
            Some((_, rest)) if !whole && !rest.is_empty() => rest,
            _ => &text,
        };
        text.trim().to_owned()
    }
}

/// At most the last `limit` bytes of a text, without splitting a character.
pub fn last_bytes(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_forwarded_and_the_end_is_kept() {
        let lines: String = (0..1000).map(|number| format!("line {number}\n")).collect();
        let tail = Tail::default();
        let mut forwarded = Vec::new();
        tail.forward(lines.as_bytes(), &mut forwarded);
        assert_eq!(forwarded, lines.as_bytes());
        let text = tail.text();
        assert!(text.len() <= KEPT_BYTES && text.len() > KEPT_BYTES / 2);
        assert!(text.starts_with("line ") && text.ends_with("line 999"), "{text}");
    }

    #[test]
    fn short_and_broken_text_is_kept_too() {
        let tail = Tail::default();
        tail.forward(&b"one\n\xff\n"[..], std::io::sink());
        assert_eq!(tail.text(), "one\n\u{fffd}");
        let long = Tail::default();
        long.forward(&[b'x'; 2 * KEPT_BYTES][..], std::io::sink());
        assert_eq!(long.text().len(), KEPT_BYTES);
    }

    #[test]
    fn the_end_of_a_text_has_whole_characters() {
        assert_eq!(last_bytes("ƒƒ", 3), "ƒ");
        assert_eq!(last_bytes("ab", 5), "ab");
        assert_eq!(last_bytes("ab", 0), "");
    }
}
