//! Tables as kubectl prints them.

/// Lays out rows under a header: columns as wide as their widest cell, separated by three spaces,
/// without trailing spaces.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("   ").trim_end();
        text.push('\n');
    }
    text
}

/// Formats an age like kubectl: with two units as long as the second one matters.
pub(super) fn format_age(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |large: i64, large_unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit}{small}{small_unit}"),
    };
    match seconds {
        ..0 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        _ => two(days / 365, 'y', days % 365, 'd'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["a".into(), "Running".into(), "".into()],
            vec!["longer".into(), "ü".into(), "7".into()],
        ];
        let expected = "NAME     STATUS    EXIT\n\
                        a        Running\n\
                        longer   ü         7\n";
        assert_eq!(table(&["NAME", "STATUS", "EXIT"], &rows), expected);
    }

    /// What `kubectl get` prints, from `HumanDuration` of Kubernetes' apimachinery.
    #[test]
    fn ages_are_formatted_like_kubectls() {
        let (minute, hour, day) = (60, 3600, 86400);
        for (seconds, expected) in [
            (-5, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (9 * minute + 59, "9m59s"),
            (10 * minute + 59, "10m"),
            (179 * minute, "179m"),
            (3 * hour, "3h"),
            (7 * hour + 5 * minute, "7h5m"),
            (47 * hour, "47h"),
            (2 * day + 3 * hour, "2d3h"),
            (8 * day + 3 * hour, "8d"),
            (729 * day, "729d"),
            (731 * day, "2y1d"),
        ] {
            assert_eq!(format_age(seconds), expected, "{seconds}");
        }
    }
}
