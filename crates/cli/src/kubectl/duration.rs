//! Durations on the command line, such as 90s, 1h30m or 2d.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

const DAY_SECONDS: u64 = 86_400;

/// The longest time for which an invitation can be valid. Whoever has its file has full access to
/// the instance, and nobody remembers for years who that is.
const MAX_TTL: Duration = Duration::from_secs(30 * DAY_SECONDS);

/// The longest time for which a burst exists or is idle, as in its schema.
const MAX_LIFETIME: Duration = Duration::from_secs(30 * DAY_SECONDS);

/// The shortest time for which a burst exists, as in its schema.
const MIN_LIFETIME: Duration = Duration::from_secs(60);

/// The longest time to wait.
const MAX_TIMEOUT: Duration = Duration::from_secs(DAY_SECONDS);

/// Parses how long an invitation is valid.
pub(super) fn parse_ttl(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        ttl if ttl > MAX_TTL => Err("is longer than 30 days\n\
             hint: use at most 30d, and invite again when it ends"
            .to_owned()),
        ttl => Ok(ttl),
    }
}

/// Parses how long a burst exists.
pub(super) fn parse_lifetime(text: &str) -> Result<Duration, String> {
    match parse_idle_time(text)? {
        lifetime if lifetime < MIN_LIFETIME => {
            Err("is shorter than a minute\nhint: use at least 1m".to_owned())
        }
        lifetime => Ok(lifetime),
    }
}

/// Parses for how long no job may run on the nodes of a burst.
pub(super) fn parse_idle_time(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        time if time > MAX_LIFETIME => {
            Err("is longer than 30 days\nhint: use at most 30d".to_owned())
        }
        time => Ok(time),
    }
}

/// Parses how long to wait.
pub(super) fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        timeout if timeout > MAX_TIMEOUT => {
            Err("is longer than a day\nhint: use at most 1d".into())
        }
        timeout => Ok(timeout),
    }
}

/// Parses a duration of at least one second. A day has 24 hours.
fn parse(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<Span>().ok();
    let parsed = parsed.and_then(|it| it.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let Some(parsed) = parsed else {
        return Err("is not a duration\nhint: use a form such as 90s, 30m, 1h30m or 2d".to_owned());
    };
    match Duration::try_from(parsed) {
        Ok(duration) if parsed >= SignedDuration::from_secs(1) => Ok(duration),
        _ => {
            Err("is less than a second\nhint: use a form such as 90s, 30m, 1h30m or 2d".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [
            ("1s", 1),
            ("90s", 90),
            ("30m", 1800),
            ("1h", 3600),
            ("1h30m", 5400),
            ("1h 30m", 5400),
            ("2d", 172_800),
            ("30d", 2_592_000),
        ] {
            assert_eq!(parse_ttl(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "1", "h", "1 fortnight", "1mo", "1y", "1h30", "∞", "99999999999999999999h"]
        {
            let error = parse_ttl(text).unwrap_err();
            assert!(error.starts_with("is not a duration\nhint: "), "{text}: {error}");
        }
    }

    #[test]
    fn nothing_and_less_is_refused() {
        for text in ["0s", "-1h", "1h ago", "999ms", "0h0m"] {
            let error = parse_ttl(text).unwrap_err();
            assert!(error.starts_with("is less than a second\nhint: "), "{text}: {error}");
        }
    }

    #[test]
    fn an_invitation_is_for_30_days_at_most() {
        for text in ["30d1s", "721h", "5w", "4000d"] {
            let error = parse_ttl(text).unwrap_err();
            assert!(error.starts_with("is longer than 30 days\nhint: "), "{text}: {error}");
        }
        assert_eq!(parse_idle_time("30d"), parse_ttl("30d"));
        assert!(parse_idle_time("31d").unwrap_err().contains("\nhint: "));
        assert_eq!(parse_lifetime("1m"), Ok(Duration::from_secs(60)));
        assert_eq!(
            parse_lifetime("59s").unwrap_err(),
            "is shorter than a minute\nhint: use at least 1m"
        );
        assert_eq!(parse_timeout("24h"), Ok(Duration::from_secs(86_400)));
        assert!(parse_timeout("25h").unwrap_err().contains("\nhint: "));
    }
}
