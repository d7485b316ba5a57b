//! Flux Standard Duration (Flux RFC 23): `1.5`, `30s`, `10m`, `2h`, `1d`, `100ms`, `inf`.

/// Parses a duration into seconds. Infinity is 0, which means no limit in a jobspec.
pub fn parse(text: &str) -> Option<f64> {
    if ["inf", "infinity"].contains(&text.to_ascii_lowercase().as_str()) {
        return Some(0.0);
    }
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))
        .unwrap_or((text, 1.0));
    // `f64` also parses `nan` and `+1`, which are not valid durations.
    if !number.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let seconds = number.parse::<f64>().ok()? * unit;
    seconds.is_finite().then_some(seconds)
}

/// Formats seconds as `flux jobs` does: `0s`, `0.079s`, `17.57s`, `1.783m`, `1.5h`.
pub fn print(seconds: f64) -> String {
    if seconds < 0.001 {
        return "0s".to_owned();
    }
    if seconds < 10.0 {
        return format!("{seconds:.3}s");
    }
    print_significant(seconds, 4)
}

/// Formats seconds with this many significant digits: `0.73s`, `1.2s`, `3m`.
pub fn print_significant(seconds: f64, figures: i32) -> String {
    let (value, unit) = match seconds {
        seconds if seconds < 60.0 => (seconds, "s"),
        seconds if seconds < 3600.0 => (seconds / 60.0, "m"),
        seconds if seconds < 86400.0 => (seconds / 3600.0, "h"),
        seconds => (seconds / 86400.0, "d"),
    };
    format!("{}{unit}", round_significant(value, figures))
}

/// C's `%.4g` for the range of durations.
fn round_significant(value: f64, figures: i32) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let places = (figures - 1 - value.log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.places$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_rfc_23() {
        for (text, seconds) in [
            ("1.5", 1.5),
            ("30s", 30.0),
            ("100ms", 0.1),
            ("2m", 120.0),
            ("1h", 3600.0),
            ("1d", 86400.0),
            ("inf", 0.0),
            ("0", 0.0),
        ] {
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
        for text in ["", "x", "s", "-1s", "1x", "nan", "1e999", "+1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_have_four_figures() {
        for (seconds, text) in
            [(0.0, "0s"), (0.0791, "0.079s"), (17.5, "17.5s"), (107.0, "1.783m"), (5400.0, "1.5h")]
        {
            assert_eq!(print(seconds), text);
        }
        assert_eq!(print_significant(0.731, 2), "0.73s");
    }
}
