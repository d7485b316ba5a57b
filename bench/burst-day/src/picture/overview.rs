//! Waiting time against node-hours of bursts, for all loads and strategies. The strategies of one load are
//! connected.

use super::axes::{Panel, Scale, ticks};
use super::{Anchor, GRID, Svg, colour};
use crate::figures::Figures;

/// A picture of figures, by load and strategy.
pub fn overview(title: &str, figures: &[(&str, &str, Figures)]) -> String {
    let mut svg = Svg::new(860, 440, title);
    let panel = Panel { left: 60.0, top: 70.0, width: 780.0, height: 310.0 };
    let most = figures.iter().map(|(_, _, it)| it.burst_hours).fold(0.0, f64::max);
    let (along, step) = Scale::upto(most);
    let up = Scale { from: 0.1, to: 1000.0, is_log: true };
    let minutes = [0.1, 1.0, 10.0, 100.0, 1000.0].map(|it| (it, format!("{it}")));
    panel.y_axis(&mut svg, &up, &minutes, "mean waiting time, in minutes (logarithmic)");
    panel.x_axis(&mut svg, &along, &ticks(&along, step));
    svg.text((450.0, 420.0), Anchor::Middle, "node-hours of bursts in a day");
    svg.legend((600.0, 26.0), &["never", "always", "policy"]);
    let position =
        |it: &Figures| (panel.x(&along, it.burst_hours), panel.y(&up, it.mean_wait / 60.0));
    for (load, _, never) in figures.iter().filter(|(_, strategy, _)| *strategy == "never") {
        let of = |wanted: &str| figures.iter().find(|it| it.0 == *load && it.1 == wanted);
        if let (Some(policy), Some(always)) = (of("policy"), of("always")) {
            svg.segment(position(never), position(&policy.2), GRID);
            svg.segment(position(&policy.2), position(&always.2), GRID);
        }
    }
    for (load, strategy, it) in figures {
        let (x, y) = position(it);
        let colour = colour(strategy);
        svg.line(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"{colour}\"/>"));
        let is_at_the_edge = x > panel.left + 0.9 * panel.width;
        match is_at_the_edge {
            true => svg.text((x - 10.0, y + 4.0), Anchor::End, load),
            false => svg.text((x + 10.0, y + 4.0), Anchor::Start, load),
        }
    }
    svg.finish()
}
