//! The data model of a recording: plain immutable data shared by every layer. No IO, no threads, no UI.
//!
//! Sizes and addresses are `u64` bytes, times `i64` microseconds since the Unix epoch, ids `u32` or `u16` newtypes. Tables are
//! stored in columns so that a recording of fourteen million events takes less memory than its file takes on disk.

mod annotation;
mod bands;
mod capabilities;
pub(crate) mod conf;
mod conf_text;
mod device;
mod event;
mod live;
mod ops;
mod progress;
mod recording;
mod report;
mod sample;
mod segment;
mod source_totals;
mod stack;
mod stats;
mod trials;
mod version;

pub use annotation::{Annotation, Annotations};
pub use bands::{CATEGORIES, CategoryBands};
pub use capabilities::{Capabilities, Known};
pub use conf::AllocConf;
pub use conf_text::ConfError;
pub use device::{DeviceId, DeviceKind, DeviceRecording, Settings};
pub use event::{Action, EventId, EventTable, Note, NoteKind};
pub use live::{
    CallCost, Gap, HelperState, HostPoint, LiveMark, LiveTrack, MarkKind, ProcessPoint, ProcessTrack, Reading, TorchFigures,
};
pub use ops::{OpKind, OpLane, OpTable};
pub use progress::{Cancelled, PreviewPoint, Progress, Stage};
pub use recording::{Added, Clock, Format, NoSuchDevice, Recording, SnapshotLists, Source};
pub use report::{LoadReport, LoadWarning, WarningKind};
pub use sample::{Bands, Sample, SampleSeries};
pub use segment::{Block, BlockState, PoolId, PoolKey, Segment, SizeClass, StreamId};
pub use source_totals::{Beyond, SourceTotal, SourceTotals};
pub use stack::{Frame, FrameId, StackId, StackTable, StackTableBuilder, StrId};
pub use stats::{Counter, Gauge, MemoryStats, StatsKind};
pub use version::TorchVersion;
