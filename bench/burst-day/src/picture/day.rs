//! A day of one load: jobs that wait, and nodes of bursts, by strategy.

use std::fmt::Write;

use super::axes::{Panel, Scale, ticks};
use super::{Svg, colour};
use crate::load::Load;
use crate::run::{Run, Sample};
use crate::{DAY, HOUR};

/// How much is shown: the day, and the night after it.
const SHOWN: u64 = 30 * HOUR;

/// The time between two points, in seconds. Of several values within it, the largest is shown.
const BIN: u64 = 300;

/// A picture of the runs of one load.
pub fn day(load: &Load, runs: &[&Run]) -> String {
    let title = format!("{}: {}", load.name, load.about);
    let mut svg = Svg::new(860, 500, &title);
    let names: Vec<&str> = runs.iter().map(|run| run.strategy).collect();
    svg.legend((600.0, 26.0), &names);
    let panel = |top| Panel { left: 60.0, top, width: 780.0, height: 170.0 };
    draw(&mut svg, panel(70.0), "jobs that wait", runs, |sample| sample.waiting);
    let bursting: Vec<&Run> = runs.iter().copied().filter(|run| !run.paid.is_empty()).collect();
    draw(&mut svg, panel(295.0), "nodes of bursts", &bursting, |sample| sample.burst);
    svg.finish()
}

fn draw(svg: &mut Svg, panel: Panel, title: &str, runs: &[&Run], value: impl Fn(&Sample) -> u32) {
    let lines: Vec<(&str, Vec<u32>)> =
        runs.iter().map(|run| (run.strategy, binned(&run.samples, &value))).collect();
    let most = lines.iter().flat_map(|(_, line)| line).max().copied().unwrap_or_default();
    let (up, step) = Scale::upto(f64::from(most));
    let along = Scale { from: 0.0, to: SHOWN as f64, is_log: false };
    panel.y_axis(svg, &up, &ticks(&up, step), title);
    let hours = (0..=SHOWN).step_by(3 * HOUR as usize).map(|at| {
        let clock = format!("{:02}:00", at % DAY / HOUR);
        (at as f64, if at == DAY { format!("{clock} next day") } else { clock })
    });
    panel.x_axis(svg, &along, &hours.collect::<Vec<_>>());
    for (strategy, line) in lines {
        let mut path = format!("M{:.1} {:.1}", panel.left, panel.y(&up, f64::from(line[0])));
        let mut last = line[0];
        for (nodes, bin) in line.into_iter().zip(0_u32..) {
            if nodes != last {
                let x = panel.x(&along, f64::from(bin) * BIN as f64);
                let y = panel.y(&up, f64::from(nodes));
                write!(path, "H{x:.1}V{y:.1}").expect("a String can be written to");
                last = nodes;
            }
        }
        write!(path, "H{:.1}", panel.left + panel.width).expect("a String can be written to");
        svg.line(&format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>",
            colour(strategy)
        ));
    }
}

/// The largest value within each bin.
fn binned(samples: &[Sample], value: impl Fn(&Sample) -> u32) -> Vec<u32> {
    let mut bins = Vec::new();
    let mut next = samples.iter().peekable();
    let mut current = 0;
    for start in (0..SHOWN).step_by(BIN as usize) {
        let mut most = current;
        while let Some(sample) = next.next_if(|sample| sample.at < start + BIN) {
            current = value(sample);
            most = most.max(current);
        }
        bins.push(most);
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_between_two_points_is_shown() {
        let sample = |at, waiting| Sample { at, waiting, ..Sample::default() };
        let samples = [sample(10, 1), sample(400, 9), sample(410, 2), sample(1000, 0)];
        assert_eq!(binned(&samples, |sample| sample.waiting)[..5], [1, 9, 2, 2, 0]);
    }
}
