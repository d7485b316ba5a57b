//! Figures of a day: how long jobs wait, what is used and what it costs.

use std::fmt::Write;

use crate::HOUR;
use crate::run::{Run, Sample};

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Jobs that have run.
    pub ran: usize,
    /// Jobs that have never run. They have no waiting time.
    pub never_ran: usize,
    /// Waiting time of the jobs that have run, in seconds: the mean.
    pub mean_wait: f64,
    /// Half of them have waited for less.
    pub median_wait: u64,
    /// 95 of 100 have waited for less.
    pub high_wait: u64,
    /// When the last job has finished, in seconds since midnight.
    pub finished_at: u64,
    /// Node-hours of jobs on nodes at home.
    pub home_hours: f64,
    /// Node-hours of bursts, from the request of a node until it is deleted.
    pub burst_hours: f64,
    /// Of these, those without a job: coming up, idle, being deleted.
    pub idle_hours: f64,
    /// Of these, those of nodes that could not be given back, because a job ran on a later node of the same
    /// burst.
    pub enclosed_hours: f64,
    /// What bursts cost, in US dollars.
    pub cost: f64,
}

impl Figures {
    /// The figures of a run.
    pub fn of(run: &Run) -> Figures {
        let mut waits: Vec<u64> =
            run.finished.iter().map(|it| it.started - it.job.submitted).collect();
        waits.sort_unstable();
        let mean_wait = waits.iter().sum::<u64>() as f64 / waits.len().max(1) as f64;
        let ends = run.finished.iter().map(|it| it.started + it.job.duration);
        let home_hours = node_hours(&run.samples, |sample| sample.busy_home);
        let burst_hours = node_hours(&run.samples, |sample| sample.burst);
        let busy_hours = node_hours(&run.samples, |sample| sample.busy_burst);
        let end = run.samples.last().map_or(0, |sample| sample.at);
        let cost = run.paid.iter().map(|node| {
            let seconds = node.until.unwrap_or(end).saturating_sub(node.from);
            seconds as f64 / HOUR as f64 * node.price
        });
        Figures {
            ran: waits.len(),
            never_ran: run.never_ran.len(),
            mean_wait,
            median_wait: quantile(&waits, 50),
            high_wait: quantile(&waits, 95),
            finished_at: ends.max().unwrap_or_default(),
            home_hours,
            burst_hours,
            idle_hours: burst_hours - busy_hours,
            enclosed_hours: node_hours(&run.samples, |sample| sample.enclosed),
            // An empty sum would be -0.
            cost: cost.fold(0.0, |sum, cost| sum + cost),
        }
    }
}

/// Node-hours of a count of nodes: its sum over time.
fn node_hours(samples: &[Sample], nodes: impl Fn(&Sample) -> u32) -> f64 {
    let seconds: u64 =
        samples.windows(2).map(|two| u64::from(nodes(&two[0])) * (two[1].at - two[0].at)).sum();
    seconds as f64 / HOUR as f64
}

/// The smallest of sorted numbers that so many percent are not above.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let position = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(position).copied().unwrap_or_default()
}

/// The figures of runs as a table in Markdown.
pub fn table(runs: &[Run]) -> String {
    mean_table(&mean(&[runs.to_vec()]))
}

/// Figures by load and strategy as a table in Markdown.
pub fn mean_table(figures: &[(&str, &str, Figures)]) -> String {
    let mut text = String::from(
        "| load | strategy | mean wait | median | 95th percentile | never ran | last job done | \
         node-hours of jobs at home | of bursts | of these idle | of these enclosed | cost |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (load, strategy, figures) in figures {
        let Figures { never_ran, median_wait, high_wait, finished_at, .. } = *figures;
        let jobs = figures.ran + never_ran;
        writeln!(
            text,
            "| {load} | {strategy} | {} | {} | {} | {never_ran} of {jobs} | {} | {:.0} | {:.0} | {:.0} | {:.0} | \
             ${:.0} |",
            duration(figures.mean_wait.round() as u64),
            duration(median_wait),
            duration(high_wait),
            clock(finished_at),
            figures.home_hours,
            figures.burst_hours,
            figures.idle_hours,
            figures.enclosed_hours,
            figures.cost,
        )
        .expect("a String can be written to");
    }
    text
}

/// The means of several days, by load and strategy, in the order of the runs of each day.
pub fn mean(days: &[Vec<Run>]) -> Vec<(&'static str, &'static str, Figures)> {
    let count = days.len().max(1) as f64;
    let first = days.first().map(Vec::as_slice).unwrap_or_default();
    let of = |(position, run): (usize, &Run)| {
        let all: Vec<Figures> = days.iter().map(|runs| Figures::of(&runs[position])).collect();
        let average = |value: fn(&Figures) -> f64| all.iter().map(value).sum::<f64>() / count;
        let whole = |value: fn(&Figures) -> u64| {
            all.iter().map(value).sum::<u64>() / all.len().max(1) as u64
        };
        let figures = Figures {
            ran: all.iter().map(|it| it.ran).sum(),
            never_ran: all.iter().map(|it| it.never_ran).sum(),
            mean_wait: average(|it| it.mean_wait),
            median_wait: whole(|it| it.median_wait),
            high_wait: whole(|it| it.high_wait),
            finished_at: whole(|it| it.finished_at),
            home_hours: average(|it| it.home_hours),
            burst_hours: average(|it| it.burst_hours),
            idle_hours: average(|it| it.idle_hours),
            enclosed_hours: average(|it| it.enclosed_hours),
            cost: average(|it| it.cost),
        };
        (run.load, run.strategy, figures)
    };
    first.iter().enumerate().map(of).collect()
}

/// A duration as it is shown: minutes and seconds, or hours and minutes.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..HOUR => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / HOUR, seconds % HOUR / 60),
    }
}

/// A time of day; from the next day on with the number of days.
fn clock(seconds: u64) -> String {
    let time = format!("{:02}:{:02}", seconds / HOUR % 24, seconds % HOUR / 60);
    match seconds / crate::DAY {
        0 => time,
        days => format!("{time} (+{days} d)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_numbers() {
        let numbers: Vec<u64> = (1..=100).collect();
        assert_eq!((quantile(&numbers, 50), quantile(&numbers, 95)), (50, 95));
        assert_eq!((quantile(&[7], 95), quantile(&[1, 2, 3], 50), quantile(&[], 50)), (7, 2, 0));
    }

    #[test]
    fn node_hours_are_the_sum_over_time() {
        let sample = |at, burst| Sample {
            at,
            waiting: 0,
            busy_home: 0,
            busy_burst: 0,
            burst,
            coming: 0,
            enclosed: 0,
        };
        let samples = [sample(0, 2), sample(1800, 4), sample(3600, 0), sample(9999, 9)];
        assert_eq!(node_hours(&samples, |sample| sample.burst), 3.0);
    }

    #[test]
    fn durations_and_times_are_readable() {
        let shown = [59, 60, 3599, 3600, 7325].map(duration);
        assert_eq!(shown, ["59 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "2 h 02 min"]);
        assert_eq!([clock(3661), clock(90_000)], ["01:01", "01:00 (+1 d)"]);
    }
}
