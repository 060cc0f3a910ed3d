//! Private pools: CUDA graphs and `MemPool`s route requests into them.

use super::block::{BlockIx, PoolIx};
use super::caching::{CachingAllocator, EventSink, LARGE, SMALL};
use super::error::AllocError;
use super::memory::DeviceMemory;
use super::pool::{Pool, PrivatePool, Route};
use crate::model::{PoolKey, SizeClass};

impl<M: DeviceMemory, S: EventSink> CachingAllocator<M, S> {
    /// True during a capture, when requests must not touch events or the cache. Up to 2.12 any route counts as a capture.
    pub fn is_capturing(&self) -> bool {
        self.routed_request || if self.version.is_at_least(13) { self.captures > 0 } else { !self.routes.is_empty() }
    }

    /// Marks the beginning of a stream capture (counted by PyTorch 2.13 and later).
    pub fn begin_capture(&mut self) {
        self.captures += 1;
    }

    /// Marks the end of a stream capture.
    pub fn end_capture(&mut self) {
        self.captures = self.captures.saturating_sub(1);
    }

    /// Creates a private pool, or increases its use count.
    ///
    /// # Errors
    /// If the pool's use count was already 0.
    pub fn create_pool(&mut self, id: PoolKey) -> Result<(), AllocError> {
        match self.private_at.get(&id).copied() {
            Some(at) if self.private[at].use_count <= 0 => Err(AllocError::Pool("use_count")),
            Some(at) => {
                self.private[at].use_count += 1;
                Ok(())
            }
            None => {
                self.private_pool(id);
                Ok(())
            }
        }
    }

    /// Routes requests of one stream, or of all, into the pool until [`end_pool`](Self::end_pool). Increases its use count.
    ///
    /// # Errors
    /// If the pool already has a route; the use count stays increased, as in PyTorch.
    pub fn begin_pool(&mut self, id: PoolKey, stream: Option<u64>) -> Result<(), AllocError> {
        self.create_pool(id)?;
        if self.routes.iter().any(|r| r.id == id) {
            return Err(AllocError::Pool("beginAllocateToPool: already recording to mempool_id"));
        }
        self.routes.push(Route { id, stream });
        Ok(())
    }

    /// Ends the route; the use count stays.
    ///
    /// # Errors
    /// If there is no such route.
    pub fn end_pool(&mut self, id: PoolKey) -> Result<(), AllocError> {
        match self.routes.iter().position(|r| r.id == id) {
            Some(at) => {
                self.routes.remove(at);
                Ok(())
            }
            None => Err(AllocError::Pool("not recording")),
        }
    }

    /// Decreases the use count. At 0 the pool's cache may be released.
    ///
    /// # Errors
    /// If there is no such pool.
    pub fn release_pool_share(&mut self, id: PoolKey) -> Result<(), AllocError> {
        let Some(pool) = self.private_mut(id) else {
            return Err(AllocError::Pool("no such pool"));
        };
        pool.use_count -= 1;
        if pool.use_count == 0 && !self.freeable.contains(&id) {
            self.freeable.push(id);
        }
        Ok(())
    }

    /// Sets whether the default pool may use cached blocks of this pool instead of failing.
    pub fn set_use_on_oom(&mut self, id: PoolKey, on: bool) {
        self.use_on_oom.retain(|&k| k != id);
        if on {
            self.use_on_oom.push(id);
        }
    }

    /// Makes this pool hand out its blocks without splitting them.
    pub fn set_no_split(&mut self, id: PoolKey) {
        self.no_split.push(id);
    }

    pub(crate) fn private_of(&self, id: PoolKey) -> Option<&PrivatePool> {
        self.private_at.get(&id).and_then(|&at| self.private.get(at))
    }

    fn private_mut(&mut self, id: PoolKey) -> Option<&mut PrivatePool> {
        self.private_at.get(&id).and_then(|&at| self.private.get_mut(at))
    }

    /// The index of a private pool; creates it with a use count of 1 if it is new.
    pub(crate) fn private_pool(&mut self, id: PoolKey) -> usize {
        if let Some(&at) = self.private_at.get(&id) {
            return at;
        }
        self.private_at.insert(id, self.private.len());
        let large = self.pools.len() as PoolIx;
        self.pools.push(Pool::new(SizeClass::Large, Some(id)));
        self.pools.push(Pool::new(SizeClass::Small, Some(id)));
        self.private.push(PrivatePool { id, use_count: 1, segments: 0, large, small: large + 1 });
        self.private.len() - 1
    }

    /// The pool for a request: that of the newest route that applies to its stream.
    pub(crate) fn pool_for(&self, class: SizeClass, stream: u64) -> PoolIx {
        for route in self.routes.iter().rev() {
            if route.stream.is_none_or(|s| s == stream)
                && let Some(pool) = self.private_of(route.id)
            {
                return if class == SizeClass::Small { pool.small } else { pool.large };
            }
        }
        if class == SizeClass::Small { SMALL } else { LARGE }
    }

    /// Takes a cached block from a private pool that may help on out of memory.
    pub(crate) fn take_from_helping_pool(
        &mut self,
        pool: PoolIx,
        rounded: u64,
        stream: u64,
    ) -> Result<Option<BlockIx>, AllocError> {
        if self.pools[usize::from(pool)].owner.is_some() {
            return Ok(None);
        }
        let class = self.class_of(pool);
        for id in self.use_on_oom.clone() {
            self.begin_pool(id, None)?;
            let helper = self.pool_for(class, stream);
            let found = self.take_best_fit(helper, rounded, stream, false);
            self.end_pool(id)?;
            self.release_pool_share(id)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    pub(crate) fn count_private_segment(&mut self, pool: PoolIx, by: i64) {
        if let Some(owner) = self.pools[usize::from(pool)].owner
            && let Some(p) = self.private_mut(owner)
        {
            p.segments += by;
        }
    }

    /// PyTorch counts one unmap per growth, although a growth may map several times, and asserts that the counts match.
    pub(crate) fn uncount_unmapped(&mut self, pool: PoolIx) -> Result<(), AllocError> {
        if let Some(owner) = self.pools[usize::from(pool)].owner
            && let Some(p) = self.private_mut(owner)
        {
            if p.segments <= 0 {
                return Err(AllocError::Pool("assert cudaMalloc_count"));
            }
            p.segments -= 1;
        }
        Ok(())
    }

    /// Removes an unused pool that PyTorch believes to be empty. Any remaining blocks stay alive.
    pub(crate) fn destroy_if_empty(&mut self, id: PoolKey) {
        if self.private_of(id).is_some_and(|p| p.segments == 0) {
            self.private.retain(|p| p.id != id);
            self.private_at = self.private.iter().enumerate().map(|(i, p)| (p.id, i)).collect();
            self.freeable.retain(|&k| k != id);
        }
    }
}
