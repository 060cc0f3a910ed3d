//! State that views share, and what they can ask for: cursor, selection, workspaces, commands, actions. Imports nothing of the
//! window.

pub mod action;
pub mod choosing;
pub mod colour_by;
pub mod command;
pub mod compared;
pub mod document_id;
pub mod excerpt;
pub mod live_status;
pub mod selection;
pub mod shared;
#[cfg(test)]
pub(crate) mod toys;
pub mod tracks;
pub mod view_kind;
pub mod workspace;

pub use action::{Action, Actions, PlannedRun};
pub use choosing::{Choosing, Verdict};
pub use colour_by::ColourBy;
pub use command::{Command, Needs};
pub use compared::{Moment, Other, Source};
pub use document_id::DocumentId;
pub use excerpt::Excerpt;
pub use live_status::{LiveAction, LiveStatus, last_known};
pub use selection::Item;
pub use shared::{AskedQuery, Axis, SharedViewState, events_of_range};
pub use tracks::{Track, TrackLayout};
pub use view_kind::ViewKind;
pub use workspace::{Layouts, Workspace};
