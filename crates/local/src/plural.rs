//! Singular and plural in messages.

use flux_operator_flux::RankList;

/// `1 broker`, `2 brokers`.
pub(crate) fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `rank 3`, `ranks 2-3`.
pub(crate) fn ranks_of(ranks: &RankList) -> String {
    if ranks.len() == 1 { format!("rank {ranks}") } else { format!("ranks {ranks}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_a_plural() {
        assert_eq!([count(1, "broker"), count(2, "broker")], ["1 broker", "2 brokers"]);
        let ranks = |ranks: &[u32]| ranks_of(&ranks.iter().copied().collect());
        assert_eq!([ranks(&[3]), ranks(&[2, 3])], ["rank 3", "ranks 2-3"]);
    }
}
