//! Signals by name, and their descriptions from C's `strsignal`.

/// Number, name, description.
const SIGNALS: [(i32, &str, &str); 19] = [
    (1, "HUP", "Hangup"),
    (2, "INT", "Interrupt"),
    (3, "QUIT", "Quit"),
    (4, "ILL", "Illegal instruction"),
    (5, "TRAP", "Trace/breakpoint trap"),
    (6, "ABRT", "Aborted"),
    (7, "BUS", "Bus error"),
    (8, "FPE", "Floating point exception"),
    (9, "KILL", "Killed"),
    (10, "USR1", "User defined signal 1"),
    (11, "SEGV", "Segmentation fault"),
    (12, "USR2", "User defined signal 2"),
    (13, "PIPE", "Broken pipe"),
    (14, "ALRM", "Alarm clock"),
    (15, "TERM", "Terminated"),
    (17, "CHLD", "Child exited"),
    (18, "CONT", "Continued"),
    (19, "STOP", "Stopped (signal)"),
    (24, "XCPU", "CPU time limit exceeded"),
];

/// The description from `strsignal`.
pub fn describe(signal: i32) -> String {
    let found = SIGNALS.iter().find(|(number, ..)| *number == signal);
    found.map_or_else(|| format!("Unknown signal {signal}"), |(_, _, text)| (*text).to_owned())
}

/// Parses `9`, `KILL` or `SIGKILL`.
pub fn parse(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    SIGNALS.iter().find(|(_, known, _)| *known == name).map(|(number, ..)| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_numbers_and_descriptions() {
        for text in ["9", "KILL", "SIGKILL", "sigkill"] {
            assert_eq!(parse(text), Some(9), "{text}");
        }
        assert_eq!(parse("NOSUCH"), None);
        assert_eq!(parse("0"), None);
        assert_eq!(describe(15), "Terminated");
        assert_eq!(describe(60), "Unknown signal 60");
    }
}
