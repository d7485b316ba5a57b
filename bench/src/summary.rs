//! Summarizes measurements: median and worst, and tables of them.

use std::collections::BTreeMap;

use serde::Serialize;

/// Measurements by name, such as `throughput.ours.calls`.
pub(crate) type Measures = BTreeMap<String, f64>;

/// A value that was measured several times.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Samples {
    values: Vec<f64>,
}

impl Samples {
    /// Adds a value.
    pub(crate) fn add(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Adds the values of another.
    pub(crate) fn merge(&mut self, other: Samples) {
        self.values.extend(other.values);
    }

    /// The median; for an even number, the mean of the two middle values.
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            length if length % 2 == 1 => Some(sorted[middle]),
            _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        }
    }

    /// The largest value.
    pub(crate) fn worst(&self) -> Option<f64> {
        self.values.iter().copied().max_by(f64::total_cmp)
    }

    /// The mean.
    pub(crate) fn mean(&self) -> Option<f64> {
        let count = self.values.len();
        (count > 0).then(|| self.values.iter().sum::<f64>() / count as f64)
    }

    /// The smallest value for which at least this fraction of all values is not larger.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }

    /// `mean / quantile / quantile`, or a dash.
    pub(crate) fn mean_and_quantiles(&self, parts: &[f64], decimals: usize) -> String {
        let quantiles = parts.iter().map(|part| self.quantile(*part));
        let text = |value: Option<f64>| match value {
            Some(value) => format!("{value:.decimals$}"),
            None => "-".to_owned(),
        };
        std::iter::once(self.mean()).chain(quantiles).map(text).collect::<Vec<_>>().join(" / ")
    }

    /// `median (worst)` where smaller is better; a dash if there is no value.
    pub(crate) fn text(&self, decimals: usize) -> String {
        self.format_with(self.worst(), decimals)
    }

    /// `median (worst)` where larger is better; a dash if there is no value.
    pub(crate) fn rate_text(&self, decimals: usize) -> String {
        self.format_with(self.values.iter().copied().min_by(f64::total_cmp), decimals)
    }

    fn format_with(&self, worst: Option<f64>, decimals: usize) -> String {
        match (self.median(), worst) {
            (Some(median), Some(worst)) if self.values.len() > 1 => {
                format!("{median:.decimals$} ({worst:.decimals$})")
            }
            (Some(median), _) => format!("{median:.decimals$}"),
            _ => "-".to_owned(),
        }
    }
}

/// A Markdown table, as wide as its cells.
pub(crate) fn table(title: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0).max(3)).collect();
    let mut text = format!("\n{title}\n\n");
    for (number, row) in rows.iter().enumerate() {
        text += &line(row, &widths);
        if number == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text += &line(&rule, &widths);
        }
    }
    text
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let cells = cells.iter().zip(widths).map(|(cell, width)| format!(" {cell:<width$} |"));
    format!("|{}\n", cells.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples { values: values.to_vec() }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(samples(&[3.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(samples(&[4.0, 1.0, 2.0, 3.0]).median(), Some(2.5));
        assert_eq!(samples(&[]).median(), None);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let hundred = samples(&hundred);
        assert_eq!(hundred.quantile(0.99), Some(99.0));
        assert_eq!(hundred.quantile(1.0), Some(100.0));
        assert_eq!(hundred.mean_and_quantiles(&[0.5], 1), "50.5 / 50.0");
        assert_eq!(samples(&[]).mean_and_quantiles(&[0.5], 1), "- / -");
    }

    #[test]
    fn a_single_value_is_printed_without_a_worst() {
        assert_eq!(samples(&[1.25]).text(1), "1.2");
        assert_eq!(samples(&[1.0, 3.0, 2.0]).text(1), "2.0 (3.0)");
        assert_eq!(samples(&[1.0, 3.0, 2.0]).rate_text(1), "2.0 (1.0)");
        assert_eq!(samples(&[]).text(1), "-");
    }

    #[test]
    fn a_table_is_aligned() {
        let rows = [vec!["what".into(), "a".into()], vec!["x".into(), "1.25".into()]];
        let expected = "\nT\n\n| what | a    |\n| ---- | ---- |\n| x    | 1.25 |\n";
        assert_eq!(table("T", &rows), expected);
    }
}
