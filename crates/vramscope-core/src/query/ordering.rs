//! [`Order`]: allocations sorted by a column of their table.

use rayon::prelude::*;

use crate::model::{Cancelled, Progress};
use crate::query::Scope;
use crate::tables::{LifetimeId, NO_EVENT, StackNames};

/// The column by which allocations are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Order {
    /// When it was allocated: order of the rows.
    #[default]
    Born,
    /// Bytes that were requested.
    Size,
    /// Bytes of the whole block.
    Block,
    /// When its memory became reusable; allocations never freed come last.
    Gone,
    /// How long it lived, in events.
    Age,
    /// Address of its first byte.
    Address,
    /// Name of its stack.
    Stack,
    /// Role, in the order of the legend.
    Role,
    /// Stream, as the recording counts them.
    Stream,
    /// Pool, as the recording counts them.
    Pool,
}

impl Order {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True for sizes and ages, where users want the largest first.
    pub fn begins_descending(self) -> bool {
        matches!(self, Order::Size | Order::Block | Order::Age)
    }

    /// Sorts rows; equal ones stay in order of allocation. O(n log n), on all cores: about 0.1 µs per row.
    pub fn sort(
        self,
        descending: bool,
        mut rows: Vec<u32>,
        scope: &Scope<'_>,
        names: &StackNames,
        progress: &Progress,
    ) -> Result<Vec<u32>, Cancelled> {
        if self == Order::Born {
            rows.par_sort_unstable();
            if descending {
                rows.reverse();
            }
            return Ok(rows);
        }
        progress.check()?;
        let rank = if self == Order::Stack { ranks(names) } else { Vec::new() };
        let mut keyed: Vec<(u64, u32)> = rows
            .par_iter()
            .map(|&row| {
                let key = self.key(scope, names, &rank, LifetimeId(row));
                (if descending { !key } else { key }, row)
            })
            .collect();
        progress.check()?;
        keyed.par_sort_unstable();
        progress.check()?;
        rows.par_iter_mut().zip(&keyed).for_each(|(row, k)| *row = k.1);
        Ok(rows)
    }

    fn key(self, scope: &Scope<'_>, names: &StackNames, rank: &[u32], id: LifetimeId) -> u64 {
        let (device, lifetimes) = (scope.device, &scope.tables.lifetimes);
        match self {
            Order::Born => u64::from(id.0),
            Order::Size => lifetimes.requested(device, id),
            Order::Block => lifetimes.block_size(id),
            Order::Gone => u64::from(lifetimes.gone(id)),
            Order::Age => u64::from(age(scope, id)),
            Order::Address => lifetimes.address(device, id),
            Order::Stack => {
                let name = names.index(lifetimes.stack(device, id));
                name.and_then(|i| rank.get(i)).map_or(u64::from(u32::MAX), |&r| u64::from(r))
            }
            Order::Role => scope.roles.map_or(0, |c| c.of(id).index() as u64),
            Order::Stream => lifetimes.get(device, id).map_or(u64::MAX, |l| u64::from(l.stream.0)),
            Order::Pool => lifetimes.get(device, id).map_or(u64::MAX, |l| u64::from(l.pool.0) << 1 | u64::from(l.class as u8)),
        }
    }
}

/// How many events an allocation lived; until the end of the trace if it was not freed.
pub fn age(scope: &Scope<'_>, id: LifetimeId) -> u32 {
    let born = Some(scope.tables.lifetimes.born(id)).filter(|&e| e != NO_EVENT).unwrap_or(0);
    scope.tables.lifetimes.gone(id).min(scope.device.events.len() as u32).saturating_sub(born)
}

/// Alphabetical rank of each name.
fn ranks(names: &StackNames) -> Vec<u32> {
    let mut order: Vec<u32> = (0..names.len() as u32).collect();
    order.sort_by(|&a, &b| names.text(a as usize).cmp(names.text(b as usize)));
    let mut rank = vec![0; names.len()];
    for (place, &name) in order.iter().enumerate() {
        rank[name as usize] = place as u32;
    }
    rank
}
