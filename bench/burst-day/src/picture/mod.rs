//! Pictures, as SVG. They have a background of their own, so that they can be read on any page.

mod axes;
mod day;
mod overview;

pub use day::day;
pub use overview::overview;

use std::fmt::Write;

const INK: &str = "#1f2328";
const GRID: &str = "#d8dee4";
const PAPER: &str = "#ffffff";

/// The colour of a strategy: they differ in brightness too.
fn colour(strategy: &str) -> &'static str {
    match strategy {
        "never" => "#6e7781",
        "always" => "#d4700a",
        _ => "#0550ae",
    }
}

/// A picture that is being drawn.
struct Svg {
    text: String,
}

/// Where a text is relative to its position.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// An empty picture with a title, which is shown too.
    fn new(width: u32, height: u32, title: &str) -> Svg {
        let mut svg = Svg { text: String::new() };
        svg.line(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"{INK}\">"
        ));
        svg.line(&format!("<title>{title}</title>"));
        svg.line(&format!(
            "<rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{PAPER}\" \
             stroke=\"{GRID}\"/>"
        ));
        svg.line(&format!("<text x=\"20\" y=\"26\" font-size=\"15\">{title}</text>"));
        svg
    }

    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("a String can be written to");
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.line(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn segment(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        self.line(&format!(
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"{stroke}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// Which colour is which strategy.
    fn legend(&mut self, (x, y): (f64, f64), strategies: &[&str]) {
        for (strategy, number) in strategies.iter().zip(0_u8..) {
            let x = x + 80.0 * f64::from(number);
            let colour = colour(strategy);
            self.line(&format!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>",
                y - 6.0
            ));
            self.text((x + 20.0, y), Anchor::Start, strategy);
        }
    }

    fn finish(mut self) -> String {
        self.line("</svg>");
        self.text
    }
}
