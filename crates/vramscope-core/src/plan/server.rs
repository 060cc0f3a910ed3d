//! Memory of a language model server: weights, KV cache, graph pools, and memory that comes and goes with requests.
//!
//! The cache is made at start-up and stays, with one block per layer. Among blocks of that age that are not weights and not in a
//! private pool, it is the largest set of equal blocks from one line. Only the cache grows with the number of tokens it can hold.
//! So one recording of start-up and a load is enough to find the largest cache that is safe under that load.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::Plan;
use super::program::{NEVER, Program};
use crate::anatomy::Role;

/// Names of quantities with which only the cache grows.
const CACHES: [&str; 8] = ["kv", "kv_cache", "kv_mib", "kv_gib", "kv_blocks", "cache", "blocks", "num_gpu_blocks"];

/// The memory of a server, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Server {
    /// Weights, without the cache.
    pub weights_bytes: u64,
    /// The KV cache, made at start-up.
    pub kv_cache_bytes: u64,
    /// The most bytes at once in private pools, which CUDA graphs keep.
    pub graph_pools_bytes: u64,
    /// The most bytes at once of everything else.
    pub transient_bytes: u64,
}

/// The rows of the cache, if the only quantity is that of a cache; empty if no blocks look like one.
pub(super) fn cache(program: &Program, names: &[String]) -> FxHashSet<u32> {
    let is_cache = matches!(names, [name] if CACHES.contains(&name.to_ascii_lowercase().as_str()));
    if !is_cache {
        return FxHashSet::default();
    }
    let last_request = program.rows.iter().map(|r| r.born).filter(|born| *born != NEVER).max().unwrap_or(0);
    let mut groups: FxHashMap<(u64, u64), Vec<u32>> = FxHashMap::default();
    for (row, r) in (0u32..).zip(&program.rows) {
        let lives_on = r.freed == NEVER || r.freed > last_request;
        if lives_on && r.role != Role::Weights && r.pool == (0, 0) && r.key != 0 {
            groups.entry((r.key, r.size)).or_default().push(row);
        }
    }
    let largest =
        groups.into_iter().filter(|(_, rows)| rows.len() > 1).max_by_key(|((key, size), rows)| (size * rows.len() as u64, *key));
    largest.map(|(_, rows)| rows.into_iter().collect()).unwrap_or_default()
}

impl Plan {
    /// The memory of a server, if the quantity is that of a KV cache and a cache is found.
    pub fn server(&self) -> Option<Server> {
        let program = &self.model()?.program;
        let cache = cache(program, self.names());
        if cache.is_empty() {
            return None;
        }
        let sizes: Vec<u64> = program.rows.iter().map(|r| r.size).collect();
        let is_cache = |row: usize| cache.contains(&(row as u32));
        let is_weight = |row: usize| program.rows[row].role == Role::Weights && !is_cache(row);
        let is_graph = |row: usize| program.rows[row].pool != (0, 0) && !is_weight(row);
        Some(Server {
            weights_bytes: program.most_live(&sizes, is_weight),
            kv_cache_bytes: program.most_live(&sizes, is_cache),
            graph_pools_bytes: program.most_live(&sizes, is_graph),
            transient_bytes: program.most_live(&sizes, |row| !is_cache(row) && !is_weight(row) && !is_graph(row)),
        })
    }
}
