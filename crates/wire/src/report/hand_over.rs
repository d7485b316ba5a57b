//! Jobs that are handed over to an instance of their own elsewhere: what the lead does with them at
//! home, and what it reports.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// What becomes of a job at home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobOrder {
    /// The job's ID, as a number.
    pub job: u64,
    /// What it should become.
    pub goal: JobGoal,
}

/// What a job should become.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobGoal {
    /// Held, so that it does not start. The answer has its jobspec.
    Held,
    /// Canceled, with this message.
    Canceled(String),
    /// Released: pending again, with the urgency that it had. A job that the agent has not held stays as
    /// it is: its user holds it. `Some` is that urgency, of a job that an agent of an earlier build has
    /// held, which its events do not say.
    Released(Option<u32>),
}

/// The answer to an order. One with a long jobspec comes in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderAnswer {
    /// The order.
    pub order: JobOrder,
    /// What the job is.
    pub state: HomeJobState,
    /// Its urgency before the agent held it; `None` if it was held already.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub urgency: Option<u32>,
    /// Why it cannot be handed over, of a job that waits. It has no jobspec then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refusal: Option<JobRefusal>,
    /// How many bytes of the jobspec are in earlier parts.
    #[serde(default)]
    pub offset: u32,
    /// How many bytes the whole jobspec has.
    #[serde(default)]
    pub total: u32,
    /// This part of the jobspec.
    #[serde(default)]
    pub part: JobspecText,
}

/// Why a job of the instance cannot be handed over, as far as only the agent knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobRefusal {
    /// It belongs to another user than the owner of the instance, as whom it would run elsewhere.
    OtherUser,
    /// Its jobspec was changed in a way that cannot be repeated.
    NotUpdatable,
}

/// What a job of the instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HomeJobState {
    /// It waits, and may start.
    Pending,
    /// It waits, and does not start.
    Held,
    /// It has resources.
    Started,
    /// It has finished, or was canceled.
    Finished,
    /// There is no such job, or it has been purged.
    Missing,
}

/// The text of a jobspec, or of a part of one. Its environment may be secret, so `Debug` does not
/// print it, and its bytes are zeroed when it is dropped.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobspecText(#[serde(with = "plain")] Zeroizing<String>);

mod plain {
    use super::{Deserialize, Zeroizing};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        text: &Zeroizing<String>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Zeroizing<String>, D::Error> {
        String::deserialize(from).map(Zeroizing::new)
    }
}

/// The largest jobspec that is handed over, in bytes: less than a Kubernetes Secret may have.
pub const MAX_JOBSPEC: usize = 512 * 1024;

/// The size of a part. In JSON it may be six times as long, and still fits into a report.
const PART_BYTES: usize = 8 * 1024;

impl JobspecText {
    /// Takes a text.
    pub fn new(text: String) -> JobspecText {
        JobspecText(Zeroizing::new(text))
    }

    /// The text, **in plain**.
    pub fn as_secret_str(&self) -> &str {
        &self.0
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a part, without leaving a copy in freed memory.
    pub fn append(&mut self, part: &JobspecText) {
        let mut whole = Zeroizing::new(String::with_capacity(self.len() + part.len()));
        whole.push_str(&self.0);
        whole.push_str(&part.0);
        self.0 = whole;
    }
}

impl fmt::Debug for JobspecText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl OrderAnswer {
    /// An answer without a jobspec.
    pub fn new(order: JobOrder, state: HomeJobState) -> OrderAnswer {
        OrderAnswer {
            order,
            state,
            urgency: None,
            refusal: None,
            offset: 0,
            total: 0,
            part: JobspecText::default(),
        }
    }

    /// The parts of an answer with this jobspec.
    pub fn split(self, jobspec: &JobspecText) -> Vec<OrderAnswer> {
        let text = jobspec.as_secret_str();
        let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let mut parts = Vec::new();
        let mut start = 0;
        while start < text.len() {
            let mut end = text.len().min(start + PART_BYTES);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let part = JobspecText::new(text[start..end].to_owned());
            let (offset, total) = (size(start), size(text.len()));
            parts.push(OrderAnswer { offset, total, part, ..self.clone() });
            start = end;
        }
        if parts.is_empty() { vec![self] } else { parts }
    }

    /// Whether no part follows this one.
    pub fn is_last(&self) -> bool {
        let end =
            usize::try_from(self.offset).unwrap_or(usize::MAX).saturating_add(self.part.len());
        end >= usize::try_from(self.total).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> OrderAnswer {
        OrderAnswer::new(JobOrder { job: 7, goal: JobGoal::Held }, HomeJobState::Held)
    }

    #[test]
    fn a_jobspec_is_sent_in_parts_and_put_together_again() {
        let text = JobspecText::new("ƒ\u{1}\"x".repeat(9000));
        let parts = answer().split(&text);
        assert!(parts.len() > 4);
        let mut whole = JobspecText::default();
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(usize::try_from(part.offset).unwrap(), whole.len());
            assert_eq!(part.is_last(), index + 1 == parts.len());
            let json = serde_json::to_string(part).unwrap();
            assert!(json.len() <= 60 * 1024, "{}", json.len());
            whole.append(&serde_json::from_str::<OrderAnswer>(&json).unwrap().part);
        }
        assert_eq!(whole, text);
        assert_eq!(answer().split(&JobspecText::default()), [answer()]);
        assert!(answer().is_last());
    }

    #[test]
    fn a_jobspec_is_never_printed() {
        let part = JobspecText::new("hunter2".into());
        let answer = OrderAnswer { part, ..answer() };
        assert!(!format!("{answer:?}").contains("hunter2"));
    }
}
