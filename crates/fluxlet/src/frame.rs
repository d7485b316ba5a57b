//! Frames: a length in four bytes, followed by that many bytes of JSON.
//!
//! The same frames are used on the local socket of a broker and, encrypted, between brokers.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The maximum length of a frame. Arguments and environment have at most 2 MiB together on Linux
/// (6 MiB if JSON has to escape everything), and output is sent in chunks of 64 KiB.
pub const MAX_FRAME: usize = 16 << 20;

/// Why no frame could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Closed normally, between two frames.
    #[error("the connection was closed")]
    Closed,
    #[error("failed to read from the connection")]
    Read { source: io::Error },
    #[error("a frame of {length} bytes is longer than the {MAX_FRAME} allowed")]
    TooLong { length: usize },
    #[error("a frame is not a valid message")]
    Parse { source: serde_json::Error },
}

/// Why a message could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("failed to serialize a message as JSON")]
    Json { source: serde_json::Error },
    #[error("a message of {length} bytes is longer than the {MAX_FRAME} allowed")]
    TooLong { length: usize },
}

/// The frame of `message`.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, EncodeError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(|source| EncodeError::Json { source })?;
    let length = frame.len() - 4;
    let header = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME);
    let header = header.ok_or(EncodeError::TooLong { length })?;
    frame[..4].copy_from_slice(&header.to_be_bytes());
    Ok(frame)
}

/// Reads one frame. Memory grows with the data that arrives, not with the announced length.
pub fn read<T: DeserializeOwned>(reader: &mut impl Read) -> Result<T, ReadError> {
    let mut header = [0; 4];
    match reader.read(&mut header[..1]) {
        Ok(0) => return Err(ReadError::Closed),
        Ok(_) => {}
        Err(source) if source.kind() == io::ErrorKind::Interrupted => return read(reader),
        Err(source) => return Err(ReadError::Read { source }),
    }
    reader.read_exact(&mut header[1..]).map_err(|source| ReadError::Read { source })?;
    let length = u32::from_be_bytes(header) as usize;
    if length > MAX_FRAME {
        return Err(ReadError::TooLong { length });
    }
    let mut json = Vec::new();
    let limit = length as u64;
    reader.take(limit).read_to_end(&mut json).map_err(|source| ReadError::Read { source })?;
    if json.len() < length {
        return Err(ReadError::Read { source: io::ErrorKind::UnexpectedEof.into() });
    }
    serde_json::from_slice(&json).map_err(|source| ReadError::Parse { source })
}

/// Writes one frame.
pub fn write(writer: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let frame = encode(message).map_err(io::Error::other)?;
    writer.write_all(&frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_a_round_trip() {
        let mut bytes = encode(&("ƒ", 1)).unwrap();
        bytes.extend(encode(&("", 2)).unwrap());
        let mut reader = bytes.as_slice();
        assert_eq!(read::<(String, u32)>(&mut reader).unwrap(), ("ƒ".to_owned(), 1));
        assert_eq!(read::<(String, u32)>(&mut reader).unwrap(), (String::new(), 2));
        assert!(matches!(read::<(String, u32)>(&mut reader), Err(ReadError::Closed)));
    }

    #[test]
    fn garbage_is_an_error() {
        let parse = |bytes: &[u8]| read::<String>(&mut &*bytes).unwrap_err();
        assert!(matches!(parse(b"\0\0\0"), ReadError::Read { .. }));
        assert!(matches!(parse(b"\0\0\0\x05\"a"), ReadError::Read { .. }));
        assert!(matches!(parse(b"\0\0\0\x02{}"), ReadError::Parse { .. }));
        assert!(matches!(parse(b"GET / HTTP/1.1\r\n\r\n"), ReadError::TooLong { .. }));
    }
}
