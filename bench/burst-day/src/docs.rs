//! What `make burst-day` writes: pictures, and parts of a page of the documentation.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use crate::figures::{mean, mean_table, table};
use crate::load::LOADS;
use crate::picture::{day, overview};
use crate::strategy::{self, POLICY_YAML};
use crate::{HOME_NODES, Run, simulate};

/// The page, relative to the folder of the documentation.
pub const PAGE: &str = "concepts/burst-day.md";

/// How many days the means are of. The first is the one that is shown.
pub const DAYS: u64 = 5;

/// The runs of each day.
pub fn days(seed: u64) -> Vec<Vec<Run>> {
    (seed..seed + DAYS).map(runs).collect()
}

/// Everything that is written about these days, by its path in the folder of the documentation, which has
/// the page.
pub fn files(docs: &Path, days: &[Vec<Run>]) -> Result<BTreeMap<String, String>> {
    let shown = days.first().context("there is no day to show")?;
    let mut files = BTreeMap::new();
    for load in &LOADS {
        let of_load: Vec<&Run> = shown.iter().filter(|run| run.load == load.name).collect();
        let name = format!("pictures/burst-day-{}.svg", load.name);
        files.insert(name, day(load, &of_load));
    }
    let means = mean(days);
    let title = format!("Waiting time and node-hours, mean of {DAYS} days");
    files.insert("pictures/burst-day-overview.svg".to_owned(), overview(&title, &means));
    let path = docs.join(PAGE);
    let page =
        std::fs::read_to_string(&path).with_context(|| format!("failed to read {path:?}"))?;
    let page = replace(&page, "day", &table(shown))?;
    let page = replace(&page, "days", &mean_table(&means))?;
    let page = replace(&page, "policy", &format!("```yaml\n{POLICY_YAML}```\n"))?;
    files.insert(PAGE.to_owned(), page);
    Ok(files)
}

/// Simulates a day with every load and strategy.
pub fn runs(seed: u64) -> Vec<Run> {
    let mut runs = Vec::new();
    for load in &LOADS {
        for mut strategy in strategy::all() {
            runs.push(simulate(load, HOME_NODES, strategy.as_mut(), seed));
        }
    }
    runs
}

/// A page with another text between the two markers of a name.
fn replace(page: &str, name: &str, text: &str) -> Result<String> {
    let begin = format!("<!-- {name}: written by make burst-day -->\n");
    let end = format!("<!-- end of {name} -->");
    let (before, rest) =
        page.split_once(&begin).with_context(|| format!("{PAGE} has no line {begin:?}"))?;
    let (_, after) =
        rest.split_once(&end).with_context(|| format!("{PAGE} has no line {end:?}"))?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let page = "a\n<!-- x: written by make burst-day -->\nold\n<!-- end of x -->\nb\n";
        let once = replace(page, "x", "new\n").unwrap();
        assert_eq!(once, page.replace("old", "new"));
        assert_eq!(replace(&once, "x", "new\n").unwrap(), once);
        assert!(replace(page, "y", "").is_err());
    }
}
