//! Templates for the `-o` option of Flux's commands: Python's format strings with Flux's additions
//! (`{id.f58:>12}`, `{runtime!F:>8h}`, `{name:<10.10+}`).

use crate::duration;
use crate::time::Civil;

/// A value to print.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Integer(i64),
    /// Seconds, either since the Unix epoch or of a duration, depending on the conversion.
    Number(f64),
}

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Field { name: String, conversion: Option<char>, layout: FieldLayout },
}

#[derive(Clone, Debug, Default, PartialEq)]
struct FieldLayout {
    align: Option<char>,
    width: usize,
    precision: Option<usize>,
    /// `+`: truncated text ends in a `+`.
    mark_truncated: bool,
    /// `h`: an empty value is printed as `-`.
    dash_if_empty: bool,
}

/// Flux's message about an invalid template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("Error in user format: Unknown format field: {name}")]
    Unknown { name: String },
    #[error("Error in user format: invalid format string")]
    Syntax,
}

/// The values that `flux` treats as empty for `h`.
const EMPTY_VALUES: [&str; 5] = ["", "0s", "0.0", "0:00:00", "1970-01-01T00:00:00"];

impl Template {
    /// Parses a template. `known` must return a heading for every field.
    pub fn parse(text: &str, known: impl Fn(&str) -> Option<String>) -> Result<Self, FormatError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut plain = String::new();
        while let Some(position) = rest.find(['{', '}']) {
            plain.push_str(&rest[..position]);
            rest = &rest[position..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                plain.push_str(&rest[..1]);
                rest = &rest[2..];
                continue;
            }
            let inner = rest.strip_prefix('{').ok_or(FormatError::Syntax)?;
            let (field, after) = inner.split_once('}').ok_or(FormatError::Syntax)?;
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
            let piece = parse_field(field)?;
            if let Piece::Field { name, .. } = &piece
                && known(name).is_none()
            {
                return Err(FormatError::Unknown { name: name.clone() });
            }
            pieces.push(piece);
            rest = after;
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    /// The line above the table.
    pub fn heading(&self, headings: impl Fn(&str) -> Option<String>) -> String {
        self.join(|name, _, layout| {
            let heading = headings(name).unwrap_or_default();
            // A heading is not truncated by the precision.
            let layout = FieldLayout { precision: None, ..layout.clone() };
            pad(&heading, &layout, false)
        })
    }

    /// One line of the table.
    pub fn line(&self, cell: impl Fn(&str) -> Option<Cell>) -> String {
        self.join(|name, conversion, layout| {
            let cell = cell(name).unwrap_or(Cell::Text(String::new()));
            let is_number = !matches!(cell, Cell::Text(_));
            let mut text = convert(cell, conversion);
            if layout.dash_if_empty && EMPTY_VALUES.contains(&text.as_str()) {
                text = "-".to_owned();
            }
            pad(&text, layout, is_number && conversion.is_none())
        })
    }

    fn join(&self, field: impl Fn(&str, Option<char>, &FieldLayout) -> String) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Field { name, conversion, layout } => field(name, *conversion, layout),
        });
        pieces.collect()
    }
}

/// `name!c:layout`
fn parse_field(text: &str) -> Result<Piece, FormatError> {
    let (name, layout) = text.split_once(':').unwrap_or((text, ""));
    let (name, conversion) = match name.split_once('!') {
        Some((name, conversion)) => (name, conversion.chars().next()),
        None => (name, None),
    };
    Ok(Piece::Field { name: name.to_owned(), conversion, layout: parse_layout(layout)? })
}

/// `>8.8h+`: alignment, width, precision, marks.
fn parse_layout(text: &str) -> Result<FieldLayout, FormatError> {
    let mut layout = FieldLayout::default();
    let mut rest = text;
    if let Some(align) = rest.chars().next().filter(|first| "<>^".contains(*first)) {
        layout.align = Some(align);
        rest = &rest[1..];
    }
    loop {
        if let Some(before) = rest.strip_suffix('h') {
            layout.dash_if_empty = true;
            rest = before;
        } else if let Some(before) = rest.strip_suffix('+') {
            layout.mark_truncated = true;
            rest = before;
        } else {
            rest = rest.trim_end_matches(['s', 'd', 'f']);
            break;
        }
    }
    let (width, precision) = match rest.split_once('.') {
        Some((width, precision)) => (width, Some(precision)),
        None => (rest, None),
    };
    let number = |text: &str| match text {
        "" => Ok(0),
        // A wider column is a mistake, and would print many spaces.
        text => text.parse::<usize>().map(|width| width.min(4096)).map_err(|_| FormatError::Syntax),
    };
    layout.width = number(width)?;
    layout.precision = precision.map(number).transpose()?;
    Ok(layout)
}

/// Flux's conversions: `F` for durations, `d` and `D` for points in time.
fn convert(cell: Cell, conversion: Option<char>) -> String {
    match (cell, conversion) {
        (Cell::Text(text), _) => text,
        (Cell::Integer(number), _) => number.to_string(),
        (Cell::Number(seconds), Some('F')) => duration::print(seconds),
        (Cell::Number(0.0), Some('D')) => String::new(),
        (Cell::Number(seconds), Some('D' | 'd')) => Civil::new(seconds).to_iso(),
        (Cell::Number(seconds), _) => format!("{seconds:?}"),
    }
}

fn pad(text: &str, layout: &FieldLayout, is_number: bool) -> String {
    let mut text = text.to_owned();
    if let Some(precision) = layout.precision
        && text.chars().count() > precision
    {
        let kept = precision.saturating_sub(usize::from(layout.mark_truncated));
        text = text.chars().take(kept).collect();
        if layout.mark_truncated {
            text.push('+');
        }
    }
    let width = layout.width;
    match layout.align {
        Some('>') => format!("{text:>width$}"),
        Some('^') => format!("{text:^width$}"),
        None if is_number => format!("{text:>width$}"),
        _ => format!("{text:<width$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Option<String> {
        (name != "nosuch").then(|| name.to_uppercase())
    }

    fn line(template: &str, cell: Cell) -> String {
        Template::parse(template, known).unwrap().line(|_| Some(cell.clone()))
    }

    #[test]
    fn fields_are_laid_out_as_python_does() {
        let text = |text: &str| Cell::Text(text.to_owned());
        assert_eq!(line("{a:>6}|", text("ƒab")), "   ƒab|");
        assert_eq!(line("{a:<6}|{{x}}", text("ab")), "ab    |{x}");
        assert_eq!(line("{a:<10.10+}", text("nosuchcommand")), "nosuchcom+");
        assert_eq!(line("{a:>2.2}", text("COMPLETED")), "CO");
        assert_eq!(line("{a:4}", Cell::Integer(7)), "   7");
        assert_eq!(line("{a:>6h}", text("")), "     -");
    }

    #[test]
    fn times_are_converted() {
        assert_eq!(line("{a!F:>8h}", Cell::Number(1.5)), "  1.500s");
        assert_eq!(line("{a!F:>8h}", Cell::Number(0.0)), "       -");
        assert_eq!(line("{a!D}", Cell::Number(0.0)), "");
        assert_eq!(line("{a!d}", Cell::Number(1_794_721_598.1)), "2026-11-15T05:46:38");
        assert_eq!(line("{a}", Cell::Number(0.0)), "0.0");
    }

    #[test]
    fn headings_keep_their_columns() {
        let template = Template::parse("{ntasks:<5}|{a!F:>8h}", known).unwrap();
        assert_eq!(template.heading(known), "NTASKS|       A");
    }

    #[test]
    fn invalid_templates_are_rejected() {
        let unknown = FormatError::Unknown { name: "nosuch".to_owned() };
        assert_eq!(Template::parse("{nosuch}", known), Err(unknown));
        for text in ["{a", "a}", "{a:>x}"] {
            assert_eq!(Template::parse(text, known), Err(FormatError::Syntax), "{text}");
        }
    }
}
