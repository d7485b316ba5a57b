//! Axes, and where values are on them.

use super::{Anchor, GRID, INK, Svg};

/// Where a panel is, in pixels.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A range of values along one side of a panel.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) is_log: bool,
}

impl Scale {
    /// From 0 to at least a value, in steps of 1, 2 or 5 times a power of ten. Returns the step too.
    pub(super) fn upto(most: f64) -> (Scale, f64) {
        let powers = (0..6).map(|power| 10_f64.powi(power));
        let steps = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * power));
        let step = steps.into_iter().find(|step| most / step <= 5.0).unwrap_or(1e6);
        let to = (most / step).ceil().max(1.0) * step;
        (Scale { from: 0.0, to, is_log: false }, step)
    }

    /// Where a value is, from 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value / self.from).log10() / (self.to / self.from).log10(),
            false => (value - self.from) / (self.to - self.from),
        };
        part.clamp(0.0, 1.0)
    }
}

impl Panel {
    pub(super) fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + self.width * scale.part(value)
    }

    pub(super) fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.top + self.height * (1.0 - scale.part(value))
    }

    /// Draws ticks of the horizontal axis.
    pub(super) fn x_axis(&self, svg: &mut Svg, scale: &Scale, ticks: &[(f64, String)]) {
        let bottom = self.top + self.height;
        for (value, label) in ticks {
            let x = self.x(scale, *value);
            svg.segment((x, self.top), (x, bottom), GRID);
            svg.text((x, bottom + 16.0), Anchor::Middle, label);
        }
        svg.segment((self.left, bottom), (self.left + self.width, bottom), INK);
    }

    /// Draws ticks of the vertical axis, and its title above it.
    pub(super) fn y_axis(
        &self,
        svg: &mut Svg,
        scale: &Scale,
        ticks: &[(f64, String)],
        title: &str,
    ) {
        for (value, label) in ticks {
            let y = self.y(scale, *value);
            svg.segment((self.left, y), (self.left + self.width, y), GRID);
            svg.text((self.left - 8.0, y + 4.0), Anchor::End, label);
        }
        svg.text((self.left - 30.0, self.top - 10.0), Anchor::Start, title);
    }
}

/// Ticks at the multiples of a step.
pub(super) fn ticks(scale: &Scale, step: f64) -> Vec<(f64, String)> {
    let count = (scale.to / step).round() as u32;
    (0..=count).map(|number| f64::from(number) * step).map(|it| (it, format!("{it}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_at_a_round_number() {
        for (most, to, step) in [(0.0, 1.0, 1.0), (7.0, 8.0, 2.0), (96.0, 100.0, 20.0)] {
            let (scale, found) = Scale::upto(most);
            assert_eq!((scale.to, found), (to, step), "{most}");
        }
    }

    #[test]
    fn a_logarithmic_scale_has_equal_factors_at_equal_distances() {
        let scale = Scale { from: 0.1, to: 1000.0, is_log: true };
        assert_eq!([0.1, 1.0, 10.0, 1000.0].map(|it| scale.part(it)), [0.0, 0.25, 0.5, 1.0]);
        assert_eq!(scale.part(0.0), 0.0, "less than the least is at the edge");
    }
}
