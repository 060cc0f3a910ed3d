//! [`Reach`]: how far a run came. Settings that act only beyond that change nothing, which saves running it again.

use crate::model::{AllocConf, TorchVersion};

/// The highest values of a run, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The largest request, before rounding.
    pub request: u64,
    /// The largest free block, new segments among them.
    pub block: u64,
    /// The most that was reserved when a request found no free block.
    pub reserved: u64,
    /// The highest sum of [`reserved`](Self::reserved) and the segment that the request needed.
    pub asked: u64,
}

impl Reach {
    /// The higher value of two runs, field by field.
    pub fn or(self, other: Reach) -> Reach {
        Reach {
            request: self.request.max(other.request),
            block: self.block.max(other.block),
            reserved: self.reserved.max(other.reserved),
            asked: self.asked.max(other.asked),
        }
    }

    /// True when the same requests under other settings and another limit are served in the same way, block by block:
    ///
    /// - sizes are rounded alike up to the largest request,
    /// - no block was as large as `max_split_size` is, before or after,
    /// - limit and `garbage_collection_threshold` stay as they are, or neither is ever met, before or after,
    /// - everything else stays as it is.
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

    /// True when some run may show two settings to be the same: they differ only in what acts beyond some size.
    pub fn may_be_same(a: &AllocConf, b: &AllocConf) -> bool {
        let rest = |c: &AllocConf| AllocConf {
            max_split_size: None,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; 16],
            ..c.clone()
        };
        rest(a) == rest(b)
    }

    /// No limit was met, and nothing was given back on the way to it.
    fn is_free(&self, (conf, limit): (&AllocConf, Option<u64>)) -> bool {
        limit.is_none_or(|limit| {
            let threshold = conf.garbage_collection_threshold;
            self.asked <= limit && (threshold <= 0.0 || self.reserved <= (threshold * limit as f64) as u64)
        })
    }
}
