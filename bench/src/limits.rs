//! Compares measurements with limits, which are in a file with the reason for each.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::summary::Measures;

/// The content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsFile {
    limits: Vec<Limit>,
}

/// The allowed range of one measurement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    /// The name of the measurement.
    measure: String,
    /// The minimum.
    at_least: Option<f64>,
    /// The maximum.
    at_most: Option<f64>,
    /// The value that was measured when the limit was set.
    average: f64,
    /// The reason for the margin.
    reason: String,
}

impl Limit {
    fn is_met(&self, value: f64) -> bool {
        self.at_least.is_none_or(|least| value >= least)
            && self.at_most.is_none_or(|most| value <= most)
    }

    fn text(&self) -> String {
        let least = self.at_least.map(|least| format!("at least {least}"));
        let most = self.at_most.map(|most| format!("at most {most}"));
        [least, most].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Compares measurements with their limits, and fails if one is outside. Missing measurements are
/// printed.
pub(crate) fn check(file: &Path, measures: &Measures) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("failed to read {}", file.display()))?;
    let limits = parse(&text).with_context(|| format!("{} has invalid limits", file.display()))?;
    let mut passed = true;
    println!("\nlimits");
    for limit in &limits {
        let Limit { measure, average, reason, .. } = limit;
        let range = limit.text();
        match measures.get(measure) {
            None => println!("  ----  {measure}: not measured"),
            Some(value) if limit.is_met(*value) => {
                println!("  pass  {measure}: {value:.3}, {range}");
            }
            Some(value) => {
                passed = false;
                println!("  FAIL  {measure}: {value:.3}, {range}; it was {average}. {reason}");
            }
        }
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(text: &str) -> Result<Vec<Limit>> {
    let LimitsFile { limits } = serde_saphyr::from_str(text)?;
    for limit in &limits {
        let measure = &limit.measure;
        ensure!(
            limit.at_least.is_some() || limit.at_most.is_some(),
            "{measure} has neither at_least nor at_most"
        );
        ensure!(limit.is_met(limit.average), "the average of {measure} is outside its own limits");
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_file_can_be_parsed() {
        assert!(!parse(include_str!("../limits.yaml")).unwrap().is_empty());
    }

    #[test]
    fn both_ends_of_a_range_are_checked() {
        let text = "limits:\n- {measure: a, at_least: 1, at_most: 2, average: 1.5, reason: r}\n";
        let limits = parse(text).unwrap();
        let passes: Vec<bool> =
            [0.9, 1.0, 2.0, 2.1].iter().map(|value| limits[0].is_met(*value)).collect();
        assert_eq!(passes, [false, true, true, false]);
    }

    #[test]
    fn a_limit_that_excludes_its_own_average_is_an_error() {
        let text = "limits:\n- {measure: a, at_most: 2, average: 3, reason: r}\n";
        assert!(parse(text).unwrap_err().to_string().contains("average of a"));
    }
}
