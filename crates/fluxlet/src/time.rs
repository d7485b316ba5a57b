//! Times, as Flux prints them. Always UTC: a stand-in needs no time zones.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A date and a time of day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Civil {
    pub year: i64,
    /// From 1.
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub microsecond: u32,
}

/// The current time in seconds since the Unix epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

impl Civil {
    /// The date of `seconds` since the Unix epoch, which must not be negative.
    pub fn new(seconds: f64) -> Self {
        let whole = seconds.max(0.0) as i64;
        let microsecond = ((seconds - whole as f64) * 1e6) as u32;
        let (days, rest) = (whole / 86400, whole % 86400);
        // Howard Hinnant's civil_from_days: years start in March, so February is the last month.
        let shifted = days + 719_468;
        let era = shifted / 146_097;
        let day_of_era = shifted % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self {
            year,
            month: month as u8,
            day: day as u8,
            hour: (rest / 3600) as u8,
            minute: (rest / 60 % 60) as u8,
            second: (rest % 60) as u8,
            microsecond,
        }
    }

    pub fn month_name(&self) -> &'static str {
        MONTHS[usize::from(self.month - 1)]
    }

    /// `2026-11-15T05:47:22`
    pub fn to_iso(self) -> String {
        let Self { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }

    /// `04:46:58`
    pub fn to_clock(self) -> String {
        format!("{:02}:{:02}:{:02}", self.hour, self.minute, self.second)
    }

    /// `Nov15 04:47`, as Flux prints times in tables.
    pub fn to_short(self) -> String {
        format!("{}{:02} {:02}:{:02}", self.month_name(), self.day, self.hour, self.minute)
    }

    /// `Nov 15 05:47:30.098959 UTC 2026`, before each line of a broker's log.
    pub fn to_log(self) -> String {
        let Self { year, day, microsecond, .. } = self;
        let clock = self.to_clock();
        format!("{} {day:2} {clock}.{microsecond:06} UTC {year}", self.month_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0.0, "1970-01-01T00:00:00"),
            (951_782_399.0, "2000-02-28T23:59:59"),
            (951_782_400.0, "2000-02-29T00:00:00"),
            (1_794_721_598.1, "2026-11-15T05:46:38"),
            (4_107_542_400.0, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(Civil::new(seconds).to_iso(), text);
        }
    }

    #[test]
    fn other_forms_are_those_of_flux() {
        let time = Civil::new(1_794_721_598.25);
        assert_eq!(time.to_log(), "Nov 15 05:46:38.250000 UTC 2026");
        assert_eq!(time.to_short(), "Nov15 05:46");
        assert_eq!(time.to_clock(), "05:46:38");
    }
}
