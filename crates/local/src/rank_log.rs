//! Which log has what a rank of a running cluster printed.

use std::path::PathBuf;

use flux_operator_flux::RankList;

use crate::home::{Home, HomeError};
use crate::instance::InstanceError;
use crate::lender::Lender;
use crate::plural::ranks_of;

/// Why a cluster has no log of a rank.
#[derive(Debug, thiserror::Error)]
pub enum RankLogError {
    /// It has no such rank.
    #[error("{name} has {}, not {rank}", ranks_of(ranks))]
    NoSuchRank {
        /// The cluster.
        name: String,
        /// Its ranks.
        ranks: RankList,
        /// The rank.
        rank: u32,
    },
    /// The broker of the rank is one of another cluster.
    #[error(
        "rank {rank} is leased to {holder}\n\
         hint: print its log with `flux-operator local logs {holder} --rank {rank}`"
    )]
    Leased {
        /// The cluster that leases it.
        holder: String,
        /// The rank.
        rank: u32,
    },
    /// The rank has no broker.
    #[error("rank {rank} is free: no broker has joined as this rank")]
    Free {
        /// The rank.
        rank: u32,
    },
    /// The cluster is not running.
    #[error(transparent)]
    Instance(InstanceError),
    /// The running clusters cannot be listed.
    #[error(transparent)]
    Home(HomeError),
}

/// The log of a rank of a running cluster, or of its first one.
pub fn rank_log(home: &Home, name: &str, rank: Option<u32>) -> Result<PathBuf, RankLogError> {
    let instance = home.instance(name);
    let record = instance.record().map_err(RankLogError::Instance)?;
    let rank = rank.unwrap_or(record.first_rank());
    let no_such_rank = |ranks| Err(RankLogError::NoSuchRank { name: name.to_owned(), ranks, rank });
    match record.joins {
        Some(joins) if !joins.ranks.iter().any(|it| it == rank) => no_such_rank(joins.ranks),
        None if rank >= record.size => {
            let lender = Lender::running(home, instance).map_err(RankLogError::Home)?;
            let all = lender.as_ref().map_or(record.size, Lender::rank_count);
            let holder = lender.as_ref().and_then(|lender| lender.holder(rank));
            match holder {
                Some(holder) => Err(RankLogError::Leased { holder: holder.to_owned(), rank }),
                None if rank < all => Err(RankLogError::Free { rank }),
                None => no_such_rank((0..all).collect()),
            }
        }
        _ => Ok(instance.log_file(rank)),
    }
}
