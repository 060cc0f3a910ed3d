//! Free memory inside reserved memory: the holes, what keeps them small, and the cheapest way to make room for a request.

mod alone;
mod blockers;
mod holes;
mod release;
mod room_plan;
mod servers;
#[cfg(test)]
mod tests;

pub use self::alone::{Alone, Single, enough_alone};
pub use self::blockers::{Blocker, blockers, blockers_with_segments, facts_of};
pub use self::holes::{Holes, holes};
pub use self::release::cheapest_release;
pub use self::room_plan::{RoomKind, RoomPlan, WithMore, cheapest_hole, cheapest_plan, cheapest_plan_most};
pub use self::servers::Servers;
