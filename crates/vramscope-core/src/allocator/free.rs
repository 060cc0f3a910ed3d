//! [`FreeBlocks`]: the free blocks of one stream, sorted for best fit.

use super::block::BlockIx;
use super::pool::FreeKey;

/// Most entries per piece, so that searching and moving touch few cache lines.
const PIECE: usize = 64;

/// Sorted pieces of entries; no piece is empty. Unlike a `BTreeMap`, an entry can be removed at the place where a search found it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeBlocks(Vec<Vec<(FreeKey, BlockIx)>>);

/// Index of a piece, and of an entry in it.
pub(crate) type Place = (usize, usize);

impl FreeBlocks {
    /// The entries from `key` on, in order, with their places.
    #[inline]
    pub(crate) fn from(&self, key: FreeKey) -> impl Iterator<Item = (Place, FreeKey, BlockIx)> + '_ {
        let (mut piece, mut at) = self.place(key);
        std::iter::from_fn(move || {
            let entries = self.0.get(piece)?;
            let (found, (key, block)) = ((piece, at), entries[at]);
            (piece, at) = if at + 1 < entries.len() { (piece, at + 1) } else { (piece + 1, 0) };
            Some((found, key, block))
        })
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockIx> + '_ {
        self.0.iter().flatten().map(|(_, block)| *block)
    }

    /// Blocks before `key`, from the last to the first.
    pub(crate) fn before(&self, key: FreeKey) -> impl Iterator<Item = BlockIx> + '_ {
        self.0.iter().flatten().rev().skip_while(move |(k, _)| *k >= key).map(|(_, block)| *block)
    }

    pub(crate) fn insert(&mut self, key: FreeKey, block: BlockIx) {
        let (mut piece, mut at) = self.place(key);
        if piece == self.0.len() {
            match self.0.last() {
                Some(last) => (piece, at) = (piece - 1, last.len()),
                None => self.0.push(Vec::with_capacity(PIECE + 1)),
            }
        }
        let entries = &mut self.0[piece];
        match entries.get_mut(at) {
            // In a damaged file, blocks may overlap.
            Some(entry) if entry.0 == key => entry.1 = block,
            _ => entries.insert(at, (key, block)),
        }
        if entries.len() > PIECE {
            let mut upper = Vec::with_capacity(PIECE + 1);
            upper.extend(entries.drain(PIECE / 2..));
            self.0.insert(piece + 1, upper);
        }
    }

    pub(crate) fn remove(&mut self, key: FreeKey) {
        let place = self.place(key);
        if self.0.get(place.0).is_some_and(|entries| entries[place.1].0 == key) {
            self.remove_at(place);
        }
    }

    /// Removes the entry at a place returned by [`from`](Self::from).
    pub(crate) fn remove_at(&mut self, (piece, at): Place) {
        self.0[piece].remove(at);
        if self.0[piece].is_empty() {
            self.0.remove(piece);
        }
    }

    /// The place of the first entry that is not before `key`, or the end.
    #[inline]
    fn place(&self, key: FreeKey) -> Place {
        let piece = self.0.partition_point(|entries| entries.last().is_some_and(|(last, _)| *last < key));
        (piece, self.0.get(piece).map_or(0, |entries| entries.partition_point(|(k, _)| *k < key)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn pieces_hold_what_a_map_holds() {
        let mut seed = 7u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let (mut pieces, mut map) = (FreeBlocks::default(), BTreeMap::new());
        for i in 0..20_000u32 {
            let key = FreeKey::at_least(1 + random(900));
            // Grows to hundreds of entries and shrinks to none, twice.
            if (i / 5_000 % 2 == 0) == (random(4) > 0) {
                pieces.insert(key, BlockIx(i));
                map.insert(key, BlockIx(i));
            } else if random(2) == 0 {
                pieces.remove(key);
                map.remove(&key);
            } else {
                let found = pieces.from(key).next();
                if let Some((place, key, _)) = found {
                    pieces.remove_at(place);
                    map.remove(&key);
                }
            }
            assert!(pieces.0.iter().all(|entries| (1..=PIECE).contains(&entries.len())));
            assert_eq!(pieces.from(key).map(|(_, k, b)| (k, b)).next(), map.range(key..).next().map(|(k, b)| (*k, *b)));
            assert_eq!(pieces.before(key).next(), map.range(..key).next_back().map(|(_, b)| *b));
            if i % 97 == 0 {
                assert!(pieces.blocks().eq(map.values().copied()));
                assert!(pieces.before(key).eq(map.range(..key).rev().map(|(_, b)| *b)));
                assert!(pieces.from(key).map(|(_, k, b)| (k, b)).eq(map.range(key..).map(|(k, b)| (*k, *b))));
            }
        }
    }
}
