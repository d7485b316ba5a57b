//! Whole numbers on the command line.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A parser of the numbers of a range. Its error says which these are: clap's own parser says only that
/// something is not a digit.
pub(crate) fn number<T: FromStr + PartialOrd + Display + Clone>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("is not a number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_of_the_range_says_the_range() {
        let parse = number(1..=1024_u32);
        assert_eq!((parse("1"), parse("1024")), (Ok(1), Ok(1024)));
        for wrong in ["0", "1025", "-1", "x", "", "99999999999999999999"] {
            assert_eq!(parse(wrong), Err("is not a number from 1 to 1024".to_owned()), "{wrong}");
        }
    }
}
