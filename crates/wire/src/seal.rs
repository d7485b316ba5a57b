//! Seals: proof that the sender of a message has the cluster's key.
//!
//! HMAC-SHA256 over the UIDs of cluster and pod, the nonce of the exchange, the direction, the
//! status of an answer, and the body, each prefixed with its length so that no two messages
//! share a seal. A nonce is used once, so a message cannot be replayed; the direction prevents
//! a request from being sent back as its own answer.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The cluster's key for reports. `Debug` does not show it.
#[derive(Clone)]
pub struct SealKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(<redacted>)")
    }
}

/// A text is not a valid key. The error does not contain the text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the report key is not 64 hexadecimal digits")]
pub struct SealKeyError;

/// The parties and the nonce of one request and its answer.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// UID of the cluster.
    pub cluster_uid: &'a str,
    /// UID of the agent's pod.
    pub pod_uid: &'a str,
    /// The nonce.
    pub nonce: &'a str,
}

/// A message to seal.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// From an agent to the operator.
    Request(&'a [u8]),
    /// From the operator to an agent.
    Answer {
        /// The status code of the HTTP response.
        status: u16,
        /// Its body.
        body: &'a [u8],
    },
    /// Without a direction: where messages go only one way, and for agents of the first build.
    Plain(&'a [u8]),
}

/// The prefix of a seal with a direction. Seals of the first build have no prefix.
const DIRECTED_PREFIX: &str = "2:";

/// The maximum length of a seal.
pub const MAX_SEAL_BYTES: usize = DIRECTED_PREFIX.len() + 64;

/// Whether a seal is that of a message with a direction.
pub fn is_directed(seal: &str) -> bool {
    seal.starts_with(DIRECTED_PREFIX)
}

impl SealKey {
    /// Creates a key from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> SealKey {
        SealKey(Zeroizing::new(bytes))
    }

    /// Parses a key in the format of the Secret.
    pub fn parse(text: &str) -> Result<SealKey, SealKeyError> {
        let digits = text.trim().as_bytes();
        let mut bytes = Zeroizing::new([0; 32]);
        if digits.len() != 2 * bytes.len() {
            return Err(SealKeyError);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (hex_digit(pair[0])? << 4) | hex_digit(pair[1])?;
        }
        Ok(SealKey(bytes))
    }

    /// The key **in plain text**, for the Secret.
    pub fn to_secret_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(64));
        for byte in self.0.iter() {
            text.push(char::from(HEX[usize::from(byte >> 4)]));
            text.push(char::from(HEX[usize::from(byte & 15)]));
        }
        text
    }

    /// The key of an invitation to a cluster, from the cluster's own. One of the same name with
    /// another end has another key, so that a key is of no use after its invitation has ended.
    pub fn for_invitation(&self, cluster_uid: &str, name: &str, expires: &str) -> SealKey {
        let mut code = self.keyed_hash();
        for part in ["invitation", cluster_uid, name, expires] {
            add(&mut code, part.as_bytes());
        }
        SealKey(Zeroizing::new(code.finalize().into_bytes().into()))
    }

    /// The seal of a message.
    pub fn seal(&self, exchange: Exchange<'_>, message: Message<'_>) -> String {
        let code = self.authentication_code(exchange, message).finalize().into_bytes();
        let digits = code
            .iter()
            .flat_map(|byte| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]])
            .map(char::from);
        match message {
            Message::Plain(_) => digits.collect(),
            Message::Request(_) | Message::Answer { .. } => {
                DIRECTED_PREFIX.chars().chain(digits).collect()
            }
        }
    }

    /// Whether `seal` is the seal of the message. The comparison takes constant time.
    pub fn verify(&self, exchange: Exchange<'_>, message: Message<'_>, seal: &str) -> bool {
        use subtle::ConstantTimeEq;
        self.seal(exchange, message).as_bytes().ct_eq(seal.as_bytes()).into()
    }

    fn authentication_code(&self, exchange: Exchange<'_>, message: Message<'_>) -> Hmac<Sha256> {
        let Exchange { cluster_uid, pod_uid, nonce } = exchange;
        let mut code = self.keyed_hash();
        let mut add = |part: &[u8]| add(&mut code, part);
        [cluster_uid, pod_uid, nonce].iter().for_each(|part| add(part.as_bytes()));
        match message {
            Message::Plain(body) => add(body),
            Message::Request(body) => ["request".as_bytes(), body].into_iter().for_each(add),
            Message::Answer { status, body } => {
                ["answer".as_bytes(), &status.to_be_bytes(), body].into_iter().for_each(add);
            }
        }
        code
    }

    fn keyed_hash(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(self.0.as_slice()).expect("HMAC takes keys of any length")
    }
}

/// Adds a part with its length, so that no two lists of parts have the same hash.
fn add(code: &mut Hmac<Sha256>, part: &[u8]) {
    code.update(&(part.len() as u64).to_be_bytes());
    code.update(part);
}

const HEX: &[u8; 16] = b"0123456789abcdef";

fn hex_digit(byte: u8) -> Result<u8, SealKeyError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(SealKeyError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SealKey {
        SealKey::from_bytes([7; 32])
    }

    const EXCHANGE: Exchange<'_> = Exchange { cluster_uid: "c", pod_uid: "p", nonce: "n" };

    #[test]
    fn a_seal_verifies_only_its_own_message() {
        let messages = [
            Message::Plain(b"body"),
            Message::Request(b"body"),
            Message::Request(b"bodY"),
            Message::Answer { status: 200, body: b"body" },
            Message::Answer { status: 401, body: b"body" },
        ];
        for (index, message) in messages.into_iter().enumerate() {
            let seal = key().seal(EXCHANGE, message);
            assert!(seal.len() <= MAX_SEAL_BYTES);
            for (other, another) in messages.into_iter().enumerate() {
                assert_eq!(key().verify(EXCHANGE, another, &seal), index == other, "{another:?}");
            }
            assert!(!key().verify(EXCHANGE, message, &seal[1..]));
            assert!(!SealKey::from_bytes([8; 32]).verify(EXCHANGE, message, &seal));
            for other in [
                Exchange { cluster_uid: "d", ..EXCHANGE },
                Exchange { pod_uid: "q", ..EXCHANGE },
                Exchange { nonce: "m", ..EXCHANGE },
                // The same bytes, split elsewhere.
                Exchange { cluster_uid: "cp", pod_uid: "", ..EXCHANGE },
            ] {
                assert!(!key().verify(other, message, &seal), "{other:?}");
            }
        }
    }

    #[test]
    fn every_invitation_has_its_own_key() {
        let of = |cluster: &str, name: &str, expires: &str| {
            key().for_invitation(cluster, name, expires).to_secret_text()
        };
        let keys = [
            of("c", "n", "e"),
            of("d", "n", "e"),
            of("c", "m", "e"),
            of("c", "n", "f"),
            of("cn", "", "e"),
            key().to_secret_text(),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert_eq!(keys.iter().position(|other| **other == **one), Some(index));
        }
        assert_eq!(of("c", "n", "e"), keys[0]);
    }

    /// Agents of the first build may outlive the operator that created them.
    #[test]
    fn a_plain_seal_equals_one_of_the_first_build() {
        let seal = "7beea3203adc45cd2d3efe5c55b273a71376efd8b1c7ed2713907101dbeb298e";
        assert_eq!(key().seal(EXCHANGE, Message::Plain(b"body")), seal);
        assert!(!is_directed(seal));
        assert!(is_directed(&key().seal(EXCHANGE, Message::Request(b"body"))));
    }

    #[test]
    fn a_key_survives_a_round_trip_and_is_never_printed() {
        let text = key().to_secret_text();
        assert_eq!(*SealKey::parse(&text).unwrap().to_secret_text(), *text);
        assert!(!format!("{:?}", key()).contains("07"));
        for bad in ["", "07", &"0g".repeat(32), &"é".repeat(32)] {
            assert_eq!(SealKey::parse(bad).unwrap_err(), SealKeyError);
        }
    }
}
