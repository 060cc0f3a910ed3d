//! [`Reach`]: the highest values of a run. A setting that acts only above them changes nothing, so the run need not be repeated.

use crate::model::{AllocConf, TorchVersion};

/// The highest values reached in a run, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The largest request, before rounding.
    pub request: u64,
    /// The largest free block, including new segments.
    pub block: u64,
    /// The most bytes reserved when a request found no free block.
    pub reserved: u64,
    /// The highest sum of [`reserved`](Self::reserved) and the segment that the request needed.
    pub asked: u64,
}

impl Reach {
    /// The higher value of both runs in each field.
    pub fn or(self, other: Reach) -> Reach {
        Reach {
            request: self.request.max(other.request),
            block: self.block.max(other.block),
            reserved: self.reserved.max(other.reserved),
            asked: self.asked.max(other.asked),
        }
    }

    /// True if the run's requests would be served identically, block by block, under the settings and limit `b` instead of `a`:
    ///
    /// - sizes up to the largest request are rounded alike,
    /// - no block reached `max_split_size`, under `a` or `b`,
    /// - limit and `garbage_collection_threshold` are equal, or neither has any effect under `a` or `b`,
    /// - all other settings are equal.
    pub fn is_same(&self, a: (&AllocConf, Option<u64>), b: (&AllocConf, Option<u64>), version: TorchVersion) -> bool {
        let (conf, other) = (a.0, b.0);
        let rounds_alike = || {
            let last = AllocConf::division_index(self.request);
            // One division means no rounding, except in releases up to 2.3.
            let plain = |divisions: u32| if version.is_at_least(4) { divisions.max(1) } else { divisions };
            (0..=last).all(|i| plain(conf.roundup_power2_divisions[i]) == plain(other.roundup_power2_divisions[i]))
        };
        let splits_alike = || {
            let is_beyond = |max: Option<u64>| max.is_none_or(|max| self.block < max);
            conf.max_split_size == other.max_split_size || [conf, other].iter().all(|c| is_beyond(c.max_split_size))
        };
        let collects_alike = || {
            let threshold = |c: &AllocConf| c.garbage_collection_threshold;
            (threshold(conf) == threshold(other) && a.1 == b.1) || (self.is_free(a) && self.is_free(b))
        };
        collects_alike() && splits_alike() && rounds_alike() && Self::may_be_same(conf, other)
    }

    /// True if two settings differ only in options that act beyond some size, so that a run can show them to be equivalent.
    pub fn may_be_same(a: &AllocConf, b: &AllocConf) -> bool {
        let rest = |c: &AllocConf| AllocConf {
            max_split_size: None,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; 16],
            ..c.clone()
        };
        rest(a) == rest(b)
    }

    /// True if the run stayed below the limit and garbage collection released nothing.
    fn is_free(&self, (conf, limit): (&AllocConf, Option<u64>)) -> bool {
        limit.is_none_or(|limit| {
            let threshold = conf.garbage_collection_threshold;
            self.asked <= limit && (threshold <= 0.0 || self.reserved <= (threshold * limit as f64) as u64)
        })
    }
}
