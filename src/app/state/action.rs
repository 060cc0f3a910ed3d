//! [`Action`]: every change of state. Views send them; `handler` alone applies them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::choosing::Choosing;
use super::colour_by::ColourBy;
use super::command::Command;
use super::compared::Source;
use super::document_id::DocumentId;
use super::excerpt::Excerpt;
pub use super::live_status::LiveAction;
use super::selection::Item;
use super::shared::{Axis, TrackLayout};
use super::view_kind::ViewKind;
use vramscope_core::anatomy::OwnBlocks;
use vramscope_core::plan::{Plan, Setting, Size};

/// One change of state.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Run a command.
    Run(Command),
    /// Open files, each in a tab; those of one run are put together.
    Open(Vec<PathBuf>),
    /// Add a trace, a timeline or counters of the same run to the recording in front.
    Add(PathBuf),
    /// Open folders, patterns or many files as the ranks of one job, in one tab.
    OpenRanks(Vec<PathBuf>),
    /// One of two files to compare: the second one is asked for, then both are compared.
    CompareOneOf(PathBuf),
    /// Open the first file and hold it against the second, each at its peak.
    CompareFiles(PathBuf, PathBuf),
    /// Watch a folder for new recordings; `None` stops.
    WatchFolder(Option<PathBuf>),
    /// Say what the out-of-memory messages of a text mean.
    Explain(Excerpt),
    /// Read a log and say what its out-of-memory messages mean.
    ExplainLog(PathBuf),
    /// Say in the dialog why nothing was explained.
    NothingToExplain(String),
    /// Ask for a path in the window itself.
    AskPath(Choosing),
    /// Write the live session in front, from now on and what was seen so far.
    SaveSession(PathBuf),
    /// Ask for a log to explain.
    AskLog,
    /// Ask where to save a picture of a pane (its view and place), or of the window.
    AskPicture(Option<(ViewKind, egui::Rect)>),
    /// Save the picture that was asked for.
    SavePicture(PathBuf),
    /// Save the recording that was asked for as a snapshot.
    SaveRecording(PathBuf),
    /// Save a report on the recording that was asked for.
    SaveReport(PathBuf),
    /// Open the bundled sample of this index.
    OpenSample(usize),
    /// Bring a document to the front.
    Activate(DocumentId),
    /// Close a document; loading stops.
    Close(DocumentId),
    /// Show another device of the recording in front.
    SetDevice(usize),
    /// Move the cursor: the instant after this event.
    SetCursor(u32),
    /// Move the cursor and bring it into view.
    GoTo(u32),
    /// The instant of samples that views show; the newest when `None`.
    SetInstant(Option<i64>),
    /// Show this part of the axis.
    SetWindow(f64, f64),
    /// Events or wall clock.
    SetAxis(Axis),
    /// The event under the pointer, for ghost lines in other views.
    HoverEvent(Option<u32>),
    /// The thing under the pointer.
    Hover(Option<Item>),
    /// The class of the legend under the pointer: the others are dimmed while it is there.
    HoverClass(Option<u8>),
    /// Select something, or nothing.
    Select(Option<Item>),
    /// Choose a range of events that counts and findings follow, or none.
    SetRange(Option<(u32, u32)>),
    /// What block colours mean.
    SetColourBy(ColourBy),
    /// Ask for allocations by a query; one that cannot be read, or is empty, asks for nothing.
    SetQuery(String),
    /// Dim all classes but these; empty shows all.
    SetFocusClasses(Vec<u8>),
    /// The blocks of the row under the pointer: the others are dimmed while it is there.
    HoverOwn(Option<Arc<OwnBlocks>>),
    /// Dim all blocks but these, until something is selected; `None` shows all.
    KeepOwn(Option<Arc<OwnBlocks>>),
    /// Set the marker A (0) or B (1) at an event.
    SetMarker(usize, Option<u32>),
    /// Bring What-if to the front with these settings (of `PYTORCH_CUDA_ALLOC_CONF`) among those it runs, and selected.
    TrySettings(String),
    /// Fold or resize tracks of the timeline, in all documents.
    SetTracks(TrackLayout),
    /// What A (0) or B (1) of a comparison is.
    Compare(usize, Source),
    /// Run the requests of the device in front under these settings and limit, and open what the allocator did in a tab.
    OpenSimulation {
        /// As `PYTORCH_CUDA_ALLOC_CONF` takes them.
        conf: String,
        /// The most bytes that may be reserved.
        limit: Option<u64>,
    },
    /// Open a planned run, which was never made, in a tab.
    OpenPlanned(Box<PlannedRun>),
    /// Open a source location in the user's editor.
    OpenSource {
        /// File as recorded.
        file: String,
        /// Line, from 1.
        line: u32,
    },
    /// The folder that holds the source file which was asked for.
    SourcesIn(PathBuf),
    /// Put text on the clipboard.
    Copy(String),
    /// Something for the live watch in front.
    Live(LiveAction),
    /// Tell the user something once.
    Notify(String),
    /// Tell the user that something did not work.
    Complain(String),
}

impl Choosing {
    /// What choosing it does.
    pub fn action(self, path: PathBuf) -> Action {
        match self {
            Choosing::Open => Action::Open(vec![path]),
            Choosing::Add => Action::Add(path),
            Choosing::First | Choosing::Second => Action::CompareOneOf(path),
            Choosing::Ranks => Action::OpenRanks(vec![path]),
            Choosing::WatchFolder => Action::WatchFolder(Some(path)),
            Choosing::Picture => Action::SavePicture(path),
            Choosing::Save => Action::SaveRecording(path),
            Choosing::Report => Action::SaveReport(path),
            Choosing::Session => Action::SaveSession(path),
            Choosing::Log => Action::ExplainLog(path),
            Choosing::Sources => Action::SourcesIn(path),
        }
    }
}

/// A run that a plan predicts, as a recording to look at.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// The program.
    pub plan: Arc<Plan>,
    /// What its tab is called.
    pub title: String,
    /// The size.
    pub size: Size,
    /// Changes, as they are written after `--change`; empty for none.
    pub changes: String,
    /// Settings and limit.
    pub setting: Setting,
}

impl PartialEq for PlannedRun {
    fn eq(&self, other: &Self) -> bool {
        let told = |run: &PlannedRun| (run.size.clone(), run.changes.clone(), run.setting.clone());
        Arc::ptr_eq(&self.plan, &other.plan) && told(self) == told(other)
    }
}

/// Where views put their actions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Actions {
    sender: Sender<Action>,
}

impl Actions {
    /// A sender and the receiver the app drains each frame.
    pub fn channel() -> (Self, Receiver<Action>) {
        let (sender, receiver) = channel();
        (Actions { sender }, receiver)
    }

    /// Queues an action; it is applied before the next frame is drawn.
    pub fn send(&self, action: Action) {
        // The receiver lives as long as the app; after that nobody is left to act.
        let _ = self.sender.send(action);
    }

    /// Queues a command.
    pub fn run(&self, command: Command) {
        self.send(Action::Run(command));
    }
}
