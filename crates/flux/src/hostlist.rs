//! Host lists: `flux-sample-[0-3],gffw-compute-a-[001-003]`.
//!
//! Follows Flux RFC 29 and flux-core's libhostlist. The order is significant: a host's position in
//! the list of an instance is its rank. So order and repetitions are kept, and only adjacent hosts
//! are printed as one range.
//!
//! A list is stored as runs of consecutive hosts and expanded one name at a time, so `a[0-999999]`
//! costs no more than `a0`. Host lists come from users, so there are limits on what a short text
//! may expand to: [`MAX_HOSTS`], [`MAX_RUNS`], [`MAX_NAME_LENGTH`].
//!
//! Differences from libhostlist:
//! - Several pairs of brackets in one name are expanded, the last varying fastest, as in pdsh
//!   and other host list tools. libhostlist treats a second pair as part of the name. This module
//!   never prints one, so Flux never sees it.
//! - Leading zeros in the first element of brackets apply to all elements, as the RFC says. This
//!   module prints zeros in every element, so that libhostlist, which does not do this, agrees.
//! - `foo[1-2]-eth0` is printed as it was parsed. libhostlist parses it too, but prints each host.
//! - `foo[1-]` and characters outside printable ASCII are errors.

mod parse;
mod run;

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use run::{Numbers, Run};

/// The maximum number of hosts in one list: what libhostlist allows in one range.
pub const MAX_HOSTS: usize = 1 << 20;

/// The maximum number of runs in one list, so that a list of unrelated names stays below 20 MB.
pub const MAX_RUNS: usize = 1 << 16;

/// The maximum length of a host name. DNS allows 253 characters.
pub const MAX_NAME_LENGTH: usize = 255;

/// An ordered list of host names.
///
/// Two lists are equal if they name the same hosts in the same order, however they were written.
#[derive(Clone, Debug, Default)]
pub struct HostList {
    runs: Vec<Run>,
    length: usize,
}

/// Why a text is not a host list, or a host cannot be added to one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostListError {
    /// A character that no host name may have.
    #[error("host list has an invalid character at position {position}")]
    Character {
        /// Byte offset in the text.
        position: usize,
    },
    /// A bracket without its partner.
    #[error("host list has an unmatched bracket at position {position}")]
    Bracket {
        /// Byte offset in the text.
        position: usize,
    },
    /// Something else than a number or a range in brackets.
    #[error("host list has no number or range at position {position}")]
    Number {
        /// Byte offset in the text.
        position: usize,
    },
    /// A number with too many digits.
    #[error(
        "host list has a number of more than {} digits at position {position}",
        run::MAX_DIGITS
    )]
    NumberTooLong {
        /// Byte offset in the text.
        position: usize,
    },
    /// A range that ends before it starts.
    #[error("host list has a range that does not ascend at position {position}")]
    Descending {
        /// Byte offset in the text.
        position: usize,
    },
    /// A host without a name.
    #[error("host name is empty")]
    EmptyName,
    /// A name beyond [`MAX_NAME_LENGTH`].
    #[error("host list has a name of more than {MAX_NAME_LENGTH} characters")]
    NameTooLong,
    /// More than [`MAX_HOSTS`].
    #[error("host list has more than {MAX_HOSTS} hosts")]
    TooManyHosts,
    /// More than [`MAX_RUNS`].
    #[error("host list has more than {MAX_RUNS} hosts or ranges that do not follow each other")]
    TooManyRuns,
}

impl HostList {
    /// The empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of hosts, including repetitions.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The host at `index`: the host of that rank. Takes time linear in the number of runs.
    pub fn nth(&self, index: usize) -> Option<String> {
        let mut offset = index as u64;
        for run in &self.runs {
            if offset < run.len() {
                return Some(run.name(offset));
            }
            offset -= run.len();
        }
        None
    }

    /// At most `count` hosts from `start` on. Takes time linear in the number of runs.
    pub fn slice(&self, start: usize, count: usize) -> Self {
        let (mut skip, mut left) = (start as u64, count as u64);
        let mut slice = Self::new();
        for run in &self.runs {
            if skip >= run.len() {
                skip -= run.len();
                continue;
            }
            if left == 0 {
                break;
            }
            let length = left.min(run.len() - skip);
            slice.runs.push(run.slice(skip, length));
            slice.length += usize::try_from(length).unwrap_or(usize::MAX);
            left -= length;
            skip = 0;
        }
        slice
    }

    /// The first index of `host`: its rank. Takes time linear in the number of runs.
    pub fn find(&self, host: &str) -> Option<usize> {
        let mut before = 0;
        for run in &self.runs {
            if let Some(offset) = run.find(host) {
                return usize::try_from(before + offset).ok();
            }
            before += run.len();
        }
        None
    }

    /// An iterator over the hosts in order. Lazy: each name is created on demand.
    pub fn iter(&self) -> impl Iterator<Item = String> + '_ {
        self.runs.iter().flat_map(|run| (0..run.len()).map(move |offset| run.name(offset)))
    }

    /// Adds one host at the end. The name is not expanded: brackets and commas are errors.
    pub fn push(&mut self, name: &str) -> Result<(), HostListError> {
        if name.is_empty() {
            return Err(HostListError::EmptyName);
        }
        parse::check_literal(name, 0)?;
        self.push_name(name)
    }

    /// Adds `prefix0`, `prefix1` and so on at the end, without leading zeros.
    pub fn push_numbered(
        &mut self,
        prefix: &str,
        numbers: Range<u32>,
    ) -> Result<(), HostListError> {
        parse::check_literal(prefix, 0)?;
        if numbers.is_empty() {
            return Ok(());
        }
        let (low, high) = (u64::from(numbers.start), u64::from(numbers.end) - 1);
        self.push_numbers(prefix, Numbers::new(low, high, 0), "")
    }

    /// Adds all hosts of `other` at the end. On an error some of them may have been added.
    pub fn append(&mut self, other: &Self) -> Result<(), HostListError> {
        for run in &other.runs {
            match run.numbers {
                Some(numbers) => self.push_numbers(&run.prefix, numbers, &run.suffix)?,
                None => self.push_name(&run.prefix)?,
            }
        }
        Ok(())
    }

    /// Adds one host whose characters have been checked.
    fn push_name(&mut self, name: &str) -> Result<(), HostListError> {
        if name.len() > MAX_NAME_LENGTH {
            return Err(HostListError::NameTooLong);
        }
        let length = self.length_with(1)?;
        let run = Run::single(name);
        let follows =
            run.numbers.is_some_and(|numbers| self.extend_last(&run.prefix, numbers, &run.suffix));
        if !follows {
            self.push_run(run)?;
        }
        self.length = length;
        Ok(())
    }

    /// Adds consecutive hosts whose characters have been checked.
    fn push_numbers(
        &mut self,
        prefix: &str,
        numbers: Numbers,
        suffix: &str,
    ) -> Result<(), HostListError> {
        if prefix.len() + numbers.longest() + suffix.len() > MAX_NAME_LENGTH {
            return Err(HostListError::NameTooLong);
        }
        let length = self.length_with(numbers.len())?;
        if !self.extend_last(prefix, numbers, suffix) {
            if numbers.len() == 1 {
                // `a0[5]` is printed as `a05`. It is stored as that text would be parsed, so that
                // parsing the printed text gives the same runs.
                return self.push_name(&numbers.name(prefix, 0, suffix));
            }
            self.push_run(Run {
                prefix: prefix.to_owned(),
                numbers: Some(numbers),
                suffix: suffix.to_owned(),
            })?;
        }
        self.length = length;
        Ok(())
    }

    /// Extends the last run by `numbers`, if they continue it.
    fn extend_last(&mut self, prefix: &str, numbers: Numbers, suffix: &str) -> bool {
        let Some(last) = self.runs.last_mut() else {
            return false;
        };
        let same = last.prefix == prefix && last.suffix == suffix;
        same && last.numbers.as_mut().is_some_and(|last| last.extend(&numbers))
    }

    fn push_run(&mut self, run: Run) -> Result<(), HostListError> {
        if self.runs.len() == MAX_RUNS {
            return Err(HostListError::TooManyRuns);
        }
        self.runs.push(run);
        Ok(())
    }

    /// The length after adding `hosts`. Computed before anything changes, so that a failure leaves
    /// the list unchanged.
    fn length_with(&self, hosts: u64) -> Result<usize, HostListError> {
        let length = (self.length as u64).saturating_add(hosts);
        usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_HOSTS)
            .ok_or(HostListError::TooManyHosts)
    }
}

impl PartialEq for HostList {
    fn eq(&self, other: &Self) -> bool {
        // Different runs can represent the same hosts: `a[10-11]` and `a1[0-1]`.
        self.length == other.length && (self.runs == other.runs || self.iter().eq(other.iter()))
    }
}

impl Eq for HostList {}

impl FromStr for HostList {
    type Err = HostListError;

    /// Parses a host list. Empty expressions are skipped: `""` and `","` are the empty list.
    fn from_str(text: &str) -> Result<Self, HostListError> {
        parse::parse(text)
    }
}

impl fmt::Display for HostList {
    /// Prints the list as Flux does, with adjacent hosts that differ by one number in brackets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.runs.as_slice();
        while let Some(first) = rest.first() {
            // All are compared with the first, because its zeros apply to all that follow it.
            let shared = rest.iter().take_while(|run| first.shares_brackets_with(run)).count();
            let (group, others) = rest.split_at(shared.max(1));
            write_group(formatter, group)?;
            if !others.is_empty() {
                formatter.write_str(",")?;
            }
            rest = others;
        }
        Ok(())
    }
}

/// Writes runs that share one pair of brackets, or the one host that needs none.
fn write_group(formatter: &mut fmt::Formatter<'_>, group: &[Run]) -> fmt::Result {
    let first = &group[0];
    if group.len() == 1 && first.len() == 1 {
        return formatter.write_str(&first.name(0));
    }
    write!(formatter, "{}[", first.prefix)?;
    let all = group.iter().filter_map(|run| run.numbers);
    for (index, numbers) in all.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(formatter, "{comma}{numbers}")?;
    }
    write!(formatter, "]{}", first.suffix)
}

impl Serialize for HostList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
