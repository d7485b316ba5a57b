//! The tree of brokers: which rank is the parent of which. Follows flux-core's topology plugins.
//!
//! Every broker connects to its parent, so a broker that can reach only the lead must be a direct
//! child of rank 0.

use std::str::FromStr;

/// The shape of the tree, as in the broker's attribute `tbon.topo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every rank has up to this many children. 0: all others are children of rank 0.
    Kary(u32),
    /// Three levels, with this many routers below rank 0. `None` lets Flux choose.
    Mincrit(Option<u32>),
    /// A binomial tree.
    Binomial,
    /// By `parent` keys in the host table. A host without one is a child of rank 0.
    Custom,
}

/// Why a text is not a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not kary:K, mincrit:K, binomial or custom")]
pub struct TopologyError;

/// The largest number of children of a router before Flux adds routers, for `mincrit` without K.
const MINCRIT_FANOUT: u32 = 1024;

impl Topology {
    /// The parent of `rank` in an instance of `size` brokers, without `parent` keys; `None` for
    /// rank 0.
    pub fn parent(self, rank: u32, size: u32) -> Option<u32> {
        let last = rank.checked_sub(1)?;
        Some(match self {
            Topology::Kary(0) | Topology::Custom => 0,
            Topology::Kary(children) => last / children,
            Topology::Mincrit(routers) => {
                let routers = routers.unwrap_or_else(|| mincrit_routers(size));
                match rank.checked_sub(routers.saturating_add(1)) {
                    Some(leaf) if routers > 0 => leaf % routers + 1,
                    _ => 0,
                }
            }
            // Without its lowest bit.
            Topology::Binomial => rank & last,
        })
    }
}

fn mincrit_routers(size: u32) -> u32 {
    if size <= MINCRIT_FANOUT + 1 {
        return 0;
    }
    let leaves = |routers: u32| size.saturating_sub(routers.saturating_add(1));
    (2..size).find(|routers| leaves(*routers).div_ceil(*routers) <= MINCRIT_FANOUT).unwrap_or(2)
}

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Topology, TopologyError> {
        let (name, count) = text.split_once(':').unwrap_or((text, ""));
        let count = (!count.is_empty()).then(|| count.parse::<u32>()).transpose();
        match (name, count.map_err(|_| TopologyError)?) {
            ("kary", Some(children)) => Ok(Topology::Kary(children)),
            ("mincrit", routers) => Ok(Topology::Mincrit(routers)),
            ("binomial", None) => Ok(Topology::Binomial),
            ("custom", None) => Ok(Topology::Custom),
            _ => Err(TopologyError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parents(topology: &str, size: u32) -> Vec<u32> {
        let topology: Topology = topology.parse().unwrap();
        (1..size).map(|rank| topology.parent(rank, size).unwrap()).collect()
    }

    #[test]
    fn parents_are_those_of_flux() {
        assert_eq!(parents("kary:0", 6), [0; 5]);
        assert_eq!(parents("custom", 4), [0; 3]);
        assert_eq!(parents("kary:2", 8), [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(parents("kary:1", 4), [0, 1, 2]);
        assert_eq!(parents("binomial", 8), [0, 0, 2, 0, 4, 4, 6]);
        assert_eq!(parents("mincrit:2", 8), [0, 0, 1, 2, 1, 2, 1]);
        assert_eq!(parents("mincrit", 300), [0; 299]);
        assert_eq!(parents("mincrit", 1026)[2], 1);
    }

    #[test]
    fn texts_are_those_of_the_attribute() {
        assert_eq!("kary:256".parse(), Ok(Topology::Kary(256)));
        assert_eq!("mincrit".parse(), Ok(Topology::Mincrit(None)));
        for text in ["", "kary", "kary:", "kary:x", "kary:-1", "binomial:2", "star"] {
            assert_eq!(text.parse::<Topology>(), Err(TopologyError), "{text}");
        }
    }

    proptest! {
        /// A parent has a smaller rank, so there is no cycle and every rank reaches rank 0.
        #[test]
        fn every_rank_reaches_rank_0(
            topology in prop_oneof![
                (0_u32..5).prop_map(Topology::Kary),
                proptest::option::of(0_u32..5).prop_map(Topology::Mincrit),
                Just(Topology::Binomial),
                Just(Topology::Custom),
            ],
            size in 1_u32..2000,
        ) {
            prop_assert_eq!(topology.parent(0, size), None);
            for rank in 1..size {
                prop_assert!(topology.parent(rank, size).unwrap() < rank);
            }
        }
    }
}
