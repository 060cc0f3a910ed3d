//! [`Action`]: every change of application state. Views send actions; only `handler` applies them.

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
use super::shared::Axis;
use super::tracks::TrackLayout;
use super::view_kind::ViewKind;
use vramscope_core::anatomy::OwnBlocks;
use vramscope_core::plan::{Plan, Setting, Size};

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Run(Command),
    /// Open files, each in its own tab. Files of one run are merged into one recording.
    Open(Vec<PathBuf>),
    /// Add a trace, a timeline or counters of the same run to the recording in front.
    Add(PathBuf),
    /// Open folders, patterns or many files as the ranks of one job, in one tab.
    OpenRanks(Vec<PathBuf>),
    /// Start a comparison with this file. The window then asks for the second file and compares both at their peak.
    CompareOneOf(PathBuf),
    /// Compare two files, each at its peak. The first one opens in a tab.
    CompareFiles(PathBuf, PathBuf),
    /// Watch a folder for new recordings; `None` stops.
    WatchFolder(Option<PathBuf>),
    /// Explain the out-of-memory messages in a text.
    Explain(Excerpt),
    /// Read a log and explain its out-of-memory messages.
    ExplainLog(PathBuf),
    /// Show in the dialog why there was nothing to explain.
    NothingToExplain(String),
    /// Ask for a path with the desktop's dialog.
    Choose(Choosing),
    /// Ask for a path with the window's own path field.
    AskPath(Choosing),
    /// Add another recording of the same program to the plan in front.
    PlanWith(PathBuf),
    /// Save the live session in front: what was recorded so far and what follows.
    SaveSession(PathBuf),
    /// Tell of a watch that an earlier window left unsaved, in a sentence, and offer to open or delete its file.
    OfferWatch(PathBuf, String),
    /// Open a watch that was left, and offer it no more.
    KeepWatch(PathBuf),
    DeleteWatch(PathBuf),
    AskLog,
    /// Ask where to save a picture of a pane (its view and rectangle), or of the window when `None`.
    AskPicture(Option<(ViewKind, egui::Rect)>),
    SavePicture(PathBuf),
    /// Save the recording of the save dialog as a snapshot.
    SaveRecording(PathBuf),
    /// Save a report on the recording of the save dialog.
    SaveReport(PathBuf),
    /// Open the bundled sample of this index.
    OpenSample(usize),
    /// Open the bundled watch of a GPU.
    OpenWatchSample,
    Activate(DocumentId),
    /// Move a document's tab to this place in the row.
    MoveTab(DocumentId, usize),
    /// Close a document; loading stops.
    Close(DocumentId),
    /// Show another device of the recording in front.
    SetDevice(usize),
    /// Move the cursor to the state after this event.
    SetCursor(u32),
    /// Move the cursor and bring it into view.
    GoTo(u32),
    /// The sample instant that views show (microseconds since the epoch); the newest when `None`.
    SetInstant(Option<i64>),
    SetWindow(f64, f64),
    SetAxis(Axis),
    /// The event under the pointer, for ghost lines in other views.
    HoverEvent(Option<u32>),
    Hover(Option<Item>),
    /// The legend class under the pointer. The other classes are dimmed meanwhile.
    HoverClass(Option<u8>),
    Select(Option<Item>),
    /// Choose the range of events that counts and findings cover; `None` for the whole recording.
    SetRange(Option<(u32, u32)>),
    SetColourBy(ColourBy),
    /// Set the allocation query. A query that is empty or does not parse clears it.
    SetQuery(String),
    /// Dim all classes but these; empty shows all.
    SetFocusClasses(Vec<u8>),
    /// The blocks of the row under the pointer. All other blocks are dimmed meanwhile.
    HoverOwn(Option<Arc<OwnBlocks>>),
    /// Dim all blocks but these until something is selected; `None` dims nothing.
    KeepOwn(Option<Arc<OwnBlocks>>),
    /// Set the marker A (0) or B (1) at an event.
    SetMarker(usize, Option<u32>),
    /// Show What-if, add these settings (a `PYTORCH_CUDA_ALLOC_CONF` string) to those it runs, and select them.
    TrySettings(String),
    /// Fold or resize timeline tracks, in all documents.
    SetTracks(TrackLayout),
    /// Set side A (0) or B (1) of the comparison.
    Compare(usize, Source),
    /// Simulate the requests of the device in front under these settings and limit, and open the result in a tab.
    OpenSimulation {
        /// A `PYTORCH_CUDA_ALLOC_CONF` string.
        conf: String,
        /// Most bytes that may be reserved.
        limit: Option<u64>,
    },
    /// Open a planned (predicted) run in a tab.
    OpenPlanned(Box<PlannedRun>),
    /// Activate the document with the plan from which the predicted run in front was opened.
    BackToPlan,
    /// Open a source location in the user's editor.
    OpenSource {
        /// File as recorded.
        file: String,
        /// Line, from 1.
        line: u32,
    },
    /// Show a view in this document only. When it is already in front, close it. The links of the Overview use this.
    Visit(ViewKind),
    /// Ask for the folder of the source file that was clicked, when it is not where the recording says.
    AskSourceFolder,
    /// The folder that holds the source file that was clicked.
    SourcesIn(PathBuf),
    Copy(String),
    /// An action for the live watch in front.
    Live(LiveAction),
    Notify(String),
    Complain(String),
}

impl Choosing {
    /// The action that follows when a path was chosen.
    pub fn action(self, path: PathBuf) -> Action {
        match self {
            Choosing::Open => Action::Open(vec![path]),
            Choosing::Add => Action::Add(path),
            Choosing::First | Choosing::Second => Action::CompareOneOf(path),
            Choosing::Plan => Action::PlanWith(path),
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

/// A run predicted by a plan, opened as a recording.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    pub plan: Arc<Plan>,
    pub title: String,
    pub size: Size,
    /// Changes in the syntax of `--change`; empty for none.
    pub changes: String,
    pub setting: Setting,
}

impl PartialEq for PlannedRun {
    fn eq(&self, other: &Self) -> bool {
        let told = |run: &PlannedRun| (run.size.clone(), run.changes.clone(), run.setting.clone());
        Arc::ptr_eq(&self.plan, &other.plan) && told(self) == told(other)
    }
}

/// The sending end that views use. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Actions {
    sender: Sender<Action>,
}

impl Actions {
    /// The sender, and the receiver that the app drains each frame.
    pub fn channel() -> (Self, Receiver<Action>) {
        let (sender, receiver) = channel();
        (Actions { sender }, receiver)
    }

    /// Queues an action. The app applies it before it draws the next frame.
    pub fn send(&self, action: Action) {
        // The receiver lives as long as the app. Sending fails only while the app shuts down, where it does not matter.
        let _ = self.sender.send(action);
    }

    pub fn run(&self, command: Command) {
        self.send(Action::Run(command));
    }
}
