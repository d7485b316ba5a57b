//! Parses a host list: expressions, brackets, and the limits on what they may expand to.
//!
//! The text is scanned once. An expression is kept as slices of it until its brackets are known to
//! stay within the limits; only then are runs created. The last pair of brackets becomes runs, the
//! pairs before it are expanded.

use super::run::{MAX_DIGITS, Numbers};
use super::{HostList, HostListError, MAX_HOSTS, MAX_NAME_LENGTH, MAX_RUNS};

/// `rack[0-1]node[0-3]`: one more literal than there are pairs of brackets.
struct Expression<'a> {
    literals: Vec<&'a str>,
    brackets: Vec<Vec<Numbers>>,
}

pub(super) fn parse(text: &str) -> Result<HostList, HostListError> {
    let mut list = HostList::new();
    let mut position = 0;
    while let Some(byte) = text.as_bytes().get(position) {
        if is_separator(*byte) {
            position += 1;
            continue;
        }
        let expression = parse_expression(text, &mut position)?;
        expression.append_to(&mut list)?;
    }
    Ok(list)
}

/// Checks that every character may be part of a name; the error contains the position.
pub(super) fn check_literal(literal: &str, position: usize) -> Result<(), HostListError> {
    let allowed = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'[' | b']' | b',');
    match literal.as_bytes().iter().position(|byte| !allowed(byte)) {
        None => Ok(()),
        Some(offset) => Err(HostListError::Character { position: position + offset }),
    }
}

/// RFC 29 has only the comma; libhostlist also separates at spaces and tabs.
fn is_separator(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t')
}

fn parse_expression<'a>(
    text: &'a str,
    position: &mut usize,
) -> Result<Expression<'a>, HostListError> {
    let mut literals = Vec::new();
    let mut brackets = Vec::new();
    loop {
        let start = *position;
        let rest = &text[start..];
        let length = rest
            .bytes()
            .position(|byte| is_separator(byte) || matches!(byte, b'[' | b']'))
            .unwrap_or(rest.len());
        let (literal, rest) = rest.split_at(length);
        // Checked before anything is kept: each pair of brackets adds a character or more, so
        // this also bounds how many pairs there can be.
        if literal.len() + brackets.len() > MAX_NAME_LENGTH {
            return Err(HostListError::NameTooLong);
        }
        check_literal(literal, start)?;
        literals.push(literal);
        *position += length;
        match rest.as_bytes().first() {
            Some(b'[') => {
                let inner = rest[1..].split_once(']').map(|(inner, _)| inner);
                let inner = inner.ok_or(HostListError::Bracket { position: *position })?;
                brackets.push(parse_numbers(inner, *position + 1)?);
                *position += inner.len() + 2;
            }
            Some(b']') => {
                return Err(HostListError::Bracket { position: *position });
            }
            _ => {
                return Ok(Expression { literals, brackets });
            }
        }
    }
}

/// Parses the text between two brackets, joining adjacent numbers.
fn parse_numbers(text: &str, mut position: usize) -> Result<Vec<Numbers>, HostListError> {
    let mut all: Vec<Numbers> = Vec::new();
    let mut list_width = 0;
    for (index, element) in text.split(',').enumerate() {
        let (low, high) = element.split_once('-').unwrap_or((element, element));
        if index == 0 {
            // RFC 29: leading zeros in the first element apply to all. (libhostlist treats each
            // element by itself; what this module prints is the same for both.)
            list_width = padded_width(low);
        }
        let width = list_width.max(padded_width(low));
        let (low, high) = (parse_number(low, position)?, parse_number(high, position)?);
        if low > high {
            return Err(HostListError::Descending { position });
        }
        let numbers = Numbers::new(low, high, width);
        if !all.last_mut().is_some_and(|last| last.extend(&numbers)) {
            all.push(numbers);
        }
        if all.len() > MAX_RUNS {
            return Err(HostListError::TooManyRuns);
        }
        position += element.len() + 1;
    }
    Ok(all)
}

fn parse_number(text: &str, position: usize) -> Result<u64, HostListError> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HostListError::Number { position });
    }
    if text.len() > MAX_DIGITS {
        return Err(HostListError::NumberTooLong { position });
    }
    Ok(text.parse().expect("eighteen digits fit"))
}

/// The width that the leading zeros of `number` imply; 0 if it has none.
fn padded_width(number: &str) -> usize {
    if number.len() > 1 && number.starts_with('0') { number.len() } else { 0 }
}

impl Expression<'_> {
    fn append_to(&self, list: &mut HostList) -> Result<(), HostListError> {
        let mut count: u64 = 1;
        for numbers in &self.brackets {
            let hosts =
                numbers.iter().fold(0_u64, |hosts, numbers| hosts.saturating_add(numbers.len()));
            count = count.saturating_mul(hosts);
        }
        if count > (MAX_HOSTS - list.len()) as u64 {
            return Err(HostListError::TooManyHosts);
        }
        expand(list, String::new(), &self.literals, &self.brackets)
    }
}

/// Appends every host that `literals` and `brackets` expand to after `prefix`, the last pair of
/// brackets varying fastest. `literals` is one longer than `brackets`.
fn expand(
    list: &mut HostList,
    mut prefix: String,
    literals: &[&str],
    brackets: &[Vec<Numbers>],
) -> Result<(), HostListError> {
    prefix.push_str(literals[0]);
    match brackets {
        [] => list.push_name(&prefix),
        [last] => {
            last.iter().try_for_each(|numbers| list.push_numbers(&prefix, *numbers, literals[1]))
        }
        [first, others @ ..] => {
            for numbers in first {
                for offset in 0..numbers.len() {
                    let prefix = numbers.name(&prefix, offset, "");
                    expand(list, prefix, &literals[1..], others)?;
                }
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HostListError::*;

    #[test]
    fn invalid_host_lists_are_rejected() {
        for (text, error) in [
            ("[]", Number { position: 1 }),
            ("foo[", Bracket { position: 3 }),
            ("foo[1,3", Bracket { position: 3 }),
            ("foo]", Bracket { position: 3 }),
            ("a,foo]", Bracket { position: 5 }),
            ("foo[[1,3]", Number { position: 4 }),
            ("foo[x-y]", Number { position: 4 }),
            ("foo[0-1,2--5]", Number { position: 8 }),
            ("foo[1-]", Number { position: 4 }),
            ("foo[+1]", Number { position: 4 }),
            ("foo[1, 2]", Number { position: 6 }),
            ("foo[5-4]", Descending { position: 4 }),
            ("foo[0-1,1234567890123456789]", NumberTooLong { position: 8 }),
            ("føø1", Character { position: 1 }),
            ("foo1\nfoo2", Character { position: 4 }),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn hostile_texts_are_rejected_without_using_much_memory() {
        let binary = "[0-1]".repeat(300);
        for (text, error) in [
            ("a[0-999999999]".to_owned(), TooManyHosts),
            ("a[0-1048576]".to_owned(), TooManyHosts),
            ("a[0-1048575],b".to_owned(), TooManyHosts),
            ("a[0-9][0-9][0-9][0-9][0-9][0-9][0-9]".to_owned(), TooManyHosts),
            ("[0-9]".repeat(200), TooManyHosts),
            (binary, NameTooLong),
            ("[0]".repeat(1_000_000), NameTooLong),
            ("a".repeat(10_000_000), NameTooLong),
            (format!("{}[0-9]", "a".repeat(255)), NameTooLong),
            (format!("a[{}0]", "0,".repeat(5_000_000)), TooManyRuns),
            ("a,".repeat(MAX_RUNS + 1), TooManyRuns),
            ("a[0-131071]b[0]c".to_owned(), TooManyRuns),
        ] {
            assert_eq!(parse(&text), Err(error), "{:.40}", text);
        }
        assert_eq!(parse(&",".repeat(10_000_000)).unwrap().len(), 0);
    }

    #[test]
    fn the_largest_list_is_one_run() {
        let list = parse("a[0-1048575]").unwrap();
        assert_eq!(list.len(), MAX_HOSTS);
        assert_eq!(list.nth(MAX_HOSTS - 1).as_deref(), Some("a1048575"));
    }
}
