//! The guide explains every answer.

use flux_operator_burst::AnswerReason;

/// In the order of how near a job is to nodes, as the guide says. A row may have several.
#[test]
fn the_guide_has_every_reason_in_order() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/burst.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let mut lines =
        guide.lines().skip_while(|line| *line != "| reason | what it means and what to do |");
    let rows = lines.by_ref().skip(2).take_while(|line| line.starts_with('|'));
    let first_cells = rows.map(|row| row.split('|').nth(1).unwrap_or_default());
    let listed: Vec<String> = first_cells
        .flat_map(|cell| cell.split(", ").map(|reason| reason.trim().trim_matches('`').to_owned()))
        .collect();
    let expected: Vec<&str> = AnswerReason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(listed, expected);
}
