//! Sentences about what to free so that a failed request fits.

use super::autopsy::Autopsy;
use super::verdict::Verdict;
use crate::anatomy::Role;
use crate::diagnose::fragmentation::{RoomKind, RoomPlan, WithMore};
use crate::diagnose::vendor::Words;
use crate::tables::{LifetimeId, State};
use crate::units::{Bytes, count, counted};

impl Autopsy {
    /// What to free, in one sentence, or why freeing does not help.
    pub fn room_plan_sentence(&self, state: &State) -> String {
        if let Some(plan) = &self.room_plan {
            // Freeing one block is easier than freeing very many small ones, which are often weights and optimizer state.
            return self.one_instead().unwrap_or_else(|| plan.sentence(self.words));
        }
        if !self.has_segments {
            return "What to free is unknown: segments are not in this file.".to_owned();
        }
        if self.reserved == 0 {
            return "Nothing was reserved yet, so there is nothing to free.".to_owned();
        }
        if self.verdict == Verdict::TooLarge && self.capacity.is_some() {
            return "Freeing blocks does not help: the request is larger than the device.".to_owned();
        }
        let what = if state.segments.iter().any(|s| s.is_expandable) { "all segments and pages" } else { "all segments" };
        format!(
            "Freeing blocks does not help: no segment for this request is as large as {}, and returning {what} to the device is not enough.",
            Bytes(self.requested)
        )
    }

    /// A sentence about blocks in the plan that the program needs (weights, optimizer state), with roles from `role_of`. `None`
    /// if there are none, or if a single block is suggested instead of the plan.
    pub fn room_plan_needs(&self, state: &State, role_of: impl Fn(LifetimeId) -> Role) -> Option<String> {
        let plan = self.room_plan.as_ref().filter(|_| self.one_instead().is_none())?;
        let roles: Vec<Role> = plan.blocks.iter().map(|&i| role_of(state.blocks[i].lifetime)).collect();
        let count = |role: Role| roles.iter().filter(|&&r| r == role).count() as u64;
        let needed = [Role::Weights, Role::OptimizerState, Role::Workspaces].map(|role| (role, count(role)));
        let named: Vec<&str> = needed.iter().filter(|(_, count)| *count > 0).map(|(role, _)| role.text()).collect();
        let (all, sum) = (roles.len() as u64, needed.iter().map(|(_, count)| count).sum::<u64>());
        match sum {
            0 => None,
            _ if sum < all => {
                let hold = if sum == 1 { "holds" } else { "hold" };
                let [all, sum] = [all, sum].map(crate::units::count);
                Some(format!("Of these {all} blocks {sum} {hold} {}, which the program needs.", named.join(" and ")))
            }
            1 => Some(format!("It holds {}, which the program needs.", named.join(" and "))),
            _ => Some(format!("They hold {}, which the program needs: make something else smaller.", named.join(" and "))),
        }
    }

    /// A sentence about freeing only one block, if the plan needs several with fewer bytes in total. `None` if that is the plan
    /// itself, or if no single block is sufficient.
    pub fn alone_sentence(&self) -> Option<String> {
        if self.one_instead().is_some() {
            return None;
        }
        let more = self.room_plan.as_ref().is_none_or(|plan| plan.blocks.len() > 1);
        let least = self.alone.smallest.filter(|_| more)?;
        Some(match self.alone.count {
            1 => format!("Freeing one block of {} instead is also enough.", Bytes(least.size)),
            n => {
                let n = count(n as u64);
                format!("Freeing any one of {n} blocks instead is also enough; the smallest has {}.", Bytes(least.size))
            }
        })
    }
}

impl Autopsy {
    /// A sentence about single blocks that each make room, shown first if the plan with the fewest bytes frees very many blocks.
    pub fn one_instead(&self) -> Option<String> {
        /// Up to this many blocks can be looked at one by one.
        const FEW: usize = 20;
        self.room_plan.as_ref().filter(|plan| plan.blocks.len() > FEW)?;
        let least = Bytes(self.alone.smallest?.size);
        Some(match self.alone.count {
            1 => format!("Freeing one block of {least} would make room."),
            n => format!("Freeing any one of {} blocks would make room; the smallest has {least}.", count(n as u64)),
        })
    }
}

impl WithMore {
    /// The result under the higher cap, as a sentence that follows [`RoomPlan::sentence`]; begins with a space.
    fn sentence(&self) -> String {
        let what = match self.blocks {
            0 => "nothing has to be freed".to_owned(),
            1 => format!("one block ({}) is enough", Bytes(self.bytes)),
            n => format!("{} blocks ({}) are enough", count(n as u64), Bytes(self.bytes)),
        };
        format!(" If the cap is {} or more, {what}.", Bytes(self.cap).at_least())
    }
}

impl RoomPlan {
    /// The kind of room: `one hole`, `whole segments`, `pages`, `pages and whole segments`.
    pub fn by(&self) -> &'static str {
        match (self.kind, self.pages, self.whole) {
            (RoomKind::Hole, ..) => "one hole",
            (RoomKind::Release, 0, _) => "whole segments",
            (RoomKind::Release, _, 0) => "pages",
            (RoomKind::Release, ..) => "pages and whole segments",
        }
    }

    /// What to free, in one sentence.
    pub fn sentence(&self, words: &Words) -> String {
        if self.blocks.is_empty() && self.kind == RoomKind::Release {
            return format!(
                "Nothing has to be freed: {} of reserved memory is unused. torch.{}.empty_cache() before the request gives it back, and the request fits.",
                Bytes(self.room),
                words.module
            );
        }
        let with_more = self.with_more.map_or(String::new(), |more| more.sentence());
        // The program cannot free again what it has already freed.
        let pending = match self.pending {
            0 => String::new(),
            all if all == self.bytes => " All of it is freed already, but another stream still uses it.".to_owned(),
            bytes => format!(" {} of it is freed already, but another stream still uses it.", Bytes(bytes)),
        };
        let blocks = match self.blocks.len() {
            1 => "this block".to_owned(),
            n => format!("these {} blocks", count(n as u64)),
        };
        // The plan is for the lowest possible cap; under a higher one, less may be enough.
        let cap = self.least_cap.map_or(String::new(), |cap| format!(" even if the cap is only {}", Bytes(cap)));
        format!("Freeing {blocks} ({}) would make room{cap}.{with_more}{pending}", Bytes(self.bytes))
    }

    /// The sentence for places where the blocks are not listed next to it.
    pub(super) fn advice(&self, words: &Words) -> String {
        let sentence = self.sentence(words);
        match self.blocks.len() {
            0 => sentence,
            1 => sentence.replacen("Freeing this block", "Hold less at that instant: freeing one block", 1),
            _ => sentence.replacen("Freeing these ", "Hold less at that instant: freeing ", 1),
        }
    }

    /// How the plan makes room, and whether less is enough: answers "Why?". [`search`](Self::search) says what it is based on.
    pub fn why(&self) -> String {
        let room = Bytes(self.room);
        let what = match (self.kind, self.pages, self.whole) {
            (RoomKind::Hole, ..) => format!("It leaves one hole of {room}."),
            (RoomKind::Release, 0, 1) => format!("A segment of {room} can then go back to the device."),
            (RoomKind::Release, 0, n) => format!("{} segments ({room}) can then go back to the device.", count(n as u64)),
            (RoomKind::Release, _, 0) => {
                let pages = counted(self.pages as u64, "page", "pages");
                format!("{pages} of expandable segments ({room}) can then go back to the device.")
            }
            (RoomKind::Release, ..) => {
                let (pages, whole) = (counted(self.pages as u64, "page", "pages"), self.whole as u64);
                let whole = counted(whole, "whole segment", "whole segments");
                format!("{pages} and {whole} ({room}) can then go back to the device.")
            }
        };
        let proof = match self.is_optimal {
            true if self.with_more.is_some() => "No smaller set is enough under the lowest possible cap.",
            true => "No smaller set is enough.",
            false => "A smaller set may exist.",
        };
        format!("{what} {proof}")
    }

    /// How the plan was found, in one sentence: the basis for "no smaller set".
    pub fn search(&self) -> &'static str {
        match (self.is_optimal, self.has_pages) {
            (true, false) => "Compared: every run of neighbouring blocks, and every choice of whole segments to return.",
            (true, true) => {
                "Compared: every run of neighbouring blocks, and every choice of whole segments and of pages that no live block \
                 touches then."
            }
            (false, false) => {
                "Compared: every run of neighbouring blocks. There are too many segments to compare every choice: they were chosen \
                 by live bytes for each byte that returns."
            }
            (false, true) => {
                "Compared: every run of neighbouring blocks, and choices of whole segments and pages. A smaller set may exist: there \
                 are too many choices, or what stays mapped may serve a part of the request."
            }
        }
    }
}
