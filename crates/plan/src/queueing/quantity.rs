//! Kubernetes' quantities as whole numbers, and back.

use std::collections::BTreeMap;

use flux_operator_queue::{Resource, Resources};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The number of decimal places that can matter: the smallest suffix is 10^-9.
const DIGITS: usize = 12;

/// The amount of a resource in a quantity, in the unit in which the resource is counted.
/// Fractions of a unit are rounded up, and amounts that are too large are saturated.
/// None if the text is not a quantity.
pub fn amount(resource: &Resource, quantity: &Quantity) -> Option<i64> {
    parse(&quantity.0, i128::from(units(resource)))
}

/// Amounts by resource, or the first name that is not a resource or whose quantity is not valid.
pub fn amounts(quantities: &BTreeMap<String, Quantity>) -> Result<Resources, String> {
    let amounts = quantities.iter().map(|(name, quantity)| {
        let resource: Resource = name.parse().map_err(|_| name.clone())?;
        let amount = amount(&resource, quantity).ok_or_else(|| name.clone())?;
        Ok((resource, amount))
    });
    amounts.collect::<Result<Vec<_>, _>>().map(Resources::of)
}

/// The amounts as Kubernetes quantities.
pub fn quantities(amounts: &Resources) -> BTreeMap<String, Quantity> {
    let written = |(resource, amount): (&Resource, i64)| {
        (resource.to_string(), Quantity(resource.to_quantity(amount)))
    };
    amounts.iter().map(written).collect()
}

/// The number of units in one whole of a resource.
fn units(resource: &Resource) -> i64 {
    match resource {
        Resource::Cpu | Resource::Other(_) => 1000,
        Resource::Nodes | Resource::Pods | Resource::Gpus | Resource::Memory => 1,
    }
}

/// The value of a quantity times `units`, rounded away from zero as Kubernetes does.
fn parse(text: &str, units: i128) -> Option<i64> {
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (factor, exponent) = factor(suffix)?;
    let kept = &fraction[..fraction.len().min(DIGITS)];
    let mut mantissa = append_digits(whole, 0);
    mantissa = append_digits(kept, mantissa);
    if fraction[kept.len()..].contains(|digit| digit != '0') {
        mantissa = mantissa.saturating_add(1);
    }
    let value = mantissa.saturating_mul(factor).saturating_mul(units);
    let value = shift(value, exponent.saturating_sub(i32::try_from(kept.len()).ok()?));
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    Some(if negative { value.saturating_neg() } else { value })
}

/// A suffix as a factor and a power of ten.
fn factor(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Beyond that, every number rounds to 0 or saturates.
            (1, exponent.clamp(-99, 99))
        }
    })
}

/// Appends digits to a number.
fn append_digits(text: &str, number: i128) -> i128 {
    text.bytes().fold(number, |number, digit| {
        number.saturating_mul(10).saturating_add(i128::from(digit.saturating_sub(b'0')))
    })
}

/// Multiplies by a power of ten, rounding up.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a power of ten is not 0, and a quotient with a remainder is below its dividend"
)]
fn shift(value: i128, exponent: i32) -> i128 {
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    match (power, exponent >= 0) {
        (Some(power), true) => value.saturating_mul(power),
        (None, true) => value.saturating_mul(i128::MAX),
        (Some(power), false) => value / power + i128::from(value % power != 0),
        (None, false) => i128::from(value != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_exactly_and_rounded_up() {
        for (text, thousandths) in [
            ("2", Some(2000)),
            ("0", Some(0)),
            ("500m", Some(500)),
            ("1.5", Some(1500)),
            (".5", Some(500)),
            ("5.", Some(5000)),
            ("0.0001", Some(1)),
            ("100u", Some(1)),
            ("1n", Some(1)),
            ("1500u", Some(2)),
            ("1.0000000000000000", Some(1000)),
            ("1.0000000000000001", Some(1001)),
            ("1k", Some(1_000_000)),
            ("1M", Some(1_000_000_000)),
            ("1Ki", Some(1_024_000)),
            ("0.5Ki", Some(512_000)),
            ("12e3", Some(12_000_000)),
            ("12E-3", Some(12)),
            ("1e+2", Some(100_000)),
            ("+1", Some(1000)),
            ("-1.5", Some(-1500)),
            ("1E", Some(i64::MAX)),
            ("8Ei", Some(i64::MAX)),
            ("1e99999999999", None),
            ("1e999", Some(i64::MAX)),
            ("1e-999", Some(1)),
            ("0e999", Some(0)),
            ("999999999999999999999999999999999999999999", Some(i64::MAX)),
            ("", None),
            ("m", None),
            (".", None),
            ("-", None),
            ("1.2.3", None),
            ("1 ", None),
            ("1ki", None),
            ("1e", None),
            ("1e1.5", None),
            ("1e+-1", None),
            ("one", None),
            ("1µ", None),
        ] {
            assert_eq!(parse(text, 1000), thousandths, "{text:?}");
        }
    }

    #[test]
    fn each_resource_has_its_unit() {
        for (name, quantity, expected) in [
            ("nodes", "4", 4),
            ("pods", "1k", 1000),
            ("cpu", "250m", 250),
            ("memory", "1500Mi", 1500 << 20),
            ("memory", "1G", 1_000_000_000),
            ("memory", "128974848", 128_974_848),
            ("memory", "123.5", 124),
            ("gpus", "2", 2),
            ("nvidia.com/gpu", "2", 2000),
        ] {
            let resource = name.parse().unwrap();
            assert_eq!(amount(&resource, &Quantity(quantity.into())), Some(expected), "{name}");
        }
    }

    #[test]
    fn quantities_round_trip() {
        for (name, number) in [
            ("nodes", 12),
            ("cpu", 2500),
            ("memory", 3 << 30),
            ("memory", (3 << 30) + 1),
            ("memory", i64::MAX),
            ("memory", 0),
            ("example.org/license", 1),
        ] {
            let written = quantities(&Resources::of([(name.parse().unwrap(), number)]));
            let read = amounts(&written).unwrap();
            assert_eq!(read.get(&name.parse().unwrap()), Some(number), "{written:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let quantities = |name: &str, text: &str| {
            amounts(&BTreeMap::from([(name.to_owned(), Quantity(text.into()))]))
        };
        assert_eq!(quantities("cpu", "many"), Err("cpu".into()));
        assert_eq!(quantities("cpus", "1"), Err("cpus".into()));
    }
}
