//! [`Command`]: everything a person can ask for by name. Menus, the palette, shortcuts and help are derived from this list.

use egui::{Key, KeyboardShortcut, Modifiers};

use super::workspace::Workspace;
use crate::app::data::colours::ColourBy;
use crate::app::views::ViewKind;

/// Something a person can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Choose files in the desktop's dialog.
    Open,
    /// Type a path.
    OpenPath,
    /// Choose a folder with one recording a rank.
    OpenRanks,
    /// Choose two recordings and hold one against the other.
    CompareFiles,
    /// Watch a folder for new recordings, or stop watching.
    Watch,
    /// Save the window as PNG or SVG.
    SavePicture,
    /// Save the recording in front as a snapshot, a live watch as a session.
    SaveRecording,
    /// Choose a trace, timeline or counters of the run in front.
    AddFile,
    /// Make a memory problem happen.
    Probe,
    /// Run the requests of the recording in front on a card.
    Replay,
    /// Paste the text of an out-of-memory error.
    Explain,
    /// Watch this machine's GPUs.
    WatchMachine,
    /// Show the welcome page.
    Welcome,
    /// Close the tab in front.
    Close,
    /// Activate the tab to the right.
    NextTab,
    /// Activate the tab to the left.
    PreviousTab,
    /// Leave.
    Quit,
    /// Find commands, stacks, addresses.
    Palette,
    /// The query or filter field of the view in front; the palette where none has one.
    FindInView,
    /// Dark, light, as the system says.
    ToggleTheme,
    /// The list of shortcuts and gestures.
    Help,
    /// The window's settings.
    Settings,
    /// Edit the user's own rules for roles.
    RoleRules,
    /// Show the whole recording.
    ZoomFit,
    /// Halve the visible range about the cursor.
    ZoomIn,
    /// Double the visible range about the cursor.
    ZoomOut,
    /// Move the visible range back.
    PanLeft,
    /// Move the visible range forward.
    PanRight,
    /// Count events on the horizontal axis, or show wall-clock time.
    ToggleAxis,
    /// Cursor one event back.
    EventBack,
    /// Cursor one event on.
    EventForward,
    /// Cursor to the first event.
    First,
    /// Cursor to the last event.
    Last,
    /// Cursor to the highest reserved bytes.
    Peak,
    /// Cursor to the peak before this one.
    PreviousPeak,
    /// Cursor to the peak after this one.
    NextPeak,
    /// Cursor to the next out-of-memory event, round and round.
    OutOfMemory,
    /// Put the marker A (0) or B (1) at the cursor.
    SetMarker(usize),
    /// Take A and B away.
    ClearMarkers,
    /// Select the allocation before this one by the same stack.
    PreviousSameStack,
    /// Select the allocation after this one by the same stack.
    NextSameStack,
    /// Ask for all allocations by the selection's stack.
    QueryStack,
    /// Zoom to the selection's life.
    FitSelection,
    /// Let go of the range, the query, the selection: innermost first. The zoom stays.
    Clear,
    /// The window before when that changed last, else the selection before.
    SelectionBack,
    /// The selection after.
    SelectionForward,
    /// Copy the selected block's address.
    CopyAddress,
    /// Copy the selected block's stack.
    CopyStack,
    /// Colour blocks by this.
    Colour(ColourBy),
    /// Switch to a workspace.
    Workspace(Workspace),
    /// Put the workspace's panes back.
    ResetLayout,
    /// Bring a view to the front, adding it when it is not in the workspace.
    Show(ViewKind),
}

/// What has to be there for a command to make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// A loaded recording in front.
    Recording,
    /// A selected allocation or block.
    Selection,
    /// A recording with an out-of-memory event.
    OutOfMemory,
    /// Something that can be saved: a recording, a finished run of the probe, a live watch.
    Saveable,
}

const CTRL: Modifiers = Modifiers::COMMAND;
const NONE: Modifiers = Modifiers::NONE;
const ALT: Modifiers = Modifiers::ALT;

impl Command {
    /// Every command, in the order the palette lists them.
    #[must_use]
    pub fn all() -> Vec<Command> {
        use Command as C;
        let mut all = vec![
            C::Open,
            C::OpenPath,
            C::OpenRanks,
            C::CompareFiles,
            C::Watch,
            C::SaveRecording,
            C::SavePicture,
            C::AddFile,
            C::Probe,
            C::Replay,
            C::Explain,
            C::WatchMachine,
            C::Welcome,
            C::Close,
            C::NextTab,
            C::PreviousTab,
            C::Palette,
            C::FindInView,
            C::ToggleTheme,
            C::Help,
            C::Settings,
            C::RoleRules,
            C::OutOfMemory,
            C::Peak,
            C::PreviousPeak,
            C::NextPeak,
            C::First,
            C::Last,
            C::EventBack,
            C::EventForward,
            C::SetMarker(0),
            C::SetMarker(1),
            C::ClearMarkers,
            C::PreviousSameStack,
            C::NextSameStack,
            C::ZoomFit,
            C::ZoomIn,
            C::ZoomOut,
            C::PanLeft,
            C::PanRight,
            C::QueryStack,
            C::FitSelection,
            C::ToggleAxis,
            C::Clear,
            C::SelectionBack,
            C::SelectionForward,
            C::CopyAddress,
            C::CopyStack,
        ];
        all.extend(ColourBy::ALL.map(C::Colour));
        all.extend(Workspace::ALL.iter().copied().map(C::Workspace));
        all.push(C::ResetLayout);
        all.extend(ViewKind::all().map(C::Show));
        all.push(C::Quit);
        all
    }

    /// What menus and the palette call it.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Command::Open => "Open a recording…".into(),
            Command::OpenPath => "Open a path…".into(),
            Command::OpenRanks => "Open a folder of ranks…".into(),
            Command::CompareFiles => "Compare two recordings…".into(),
            Command::SaveRecording => "Save this recording…".into(),
            Command::SavePicture => "Save a picture…".into(),
            Command::Probe => "Run the probe…".into(),
            Command::Replay => "Run these requests on a card…".into(),
            Command::Watch => "Watch a folder, or stop watching…".into(),
            Command::AddFile => "Add a trace to this recording…".into(),
            Command::Explain => "Explain an OOM message…".into(),
            Command::WatchMachine => "Watch GPUs live".into(),
            Command::Welcome => "Welcome".into(),
            Command::Close => "Close tab".into(),
            Command::NextTab => "Next tab".into(),
            Command::PreviousTab => "Previous tab".into(),
            Command::Quit => "Quit".into(),
            Command::Palette => "Find…".into(),
            Command::FindInView => "Find in the view in front".into(),
            Command::ToggleTheme => "Switch between light and dark".into(),
            Command::Help => "Shortcuts and gestures".into(),
            Command::Settings => "Settings…".into(),
            Command::RoleRules => "Role rules…".into(),
            Command::ZoomFit => "Show the whole recording".into(),
            Command::ZoomIn => "Zoom in".into(),
            Command::ZoomOut => "Zoom out".into(),
            Command::SetMarker(0) => "Set marker A at the cursor".into(),
            Command::SetMarker(_) => "Set marker B at the cursor".into(),
            Command::ClearMarkers => "Clear the markers A and B".into(),
            Command::PanLeft => "Pan left".into(),
            Command::PanRight => "Pan right".into(),
            Command::ToggleAxis => "Switch between events and wall clock".into(),
            Command::EventBack => "One event back".into(),
            Command::EventForward => "One event on".into(),
            Command::First => "Go to the first event".into(),
            Command::Last => "Go to the last event".into(),
            Command::Peak => "Go to the peak".into(),
            Command::PreviousPeak => "Go to the previous peak".into(),
            Command::NextPeak => "Go to the next peak".into(),
            Command::OutOfMemory => "Go to the out-of-memory event".into(),
            Command::PreviousSameStack => "Previous allocation of the same stack".into(),
            Command::NextSameStack => "Next allocation of the same stack".into(),
            Command::QueryStack => "Show all allocations with this stack".into(),
            Command::FitSelection => "Zoom to the selection's life".into(),
            Command::Clear => "Clear, innermost first".into(),
            Command::SelectionBack => "Back: zoom, selection or workspace".into(),
            Command::SelectionForward => "Selection forward".into(),
            Command::CopyAddress => "Copy address".into(),
            Command::CopyStack => "Copy stack".into(),
            Command::Colour(by) => format!("Colour by {}", by.text()),
            Command::Workspace(w) => format!("Workspace: {}", w.title()),
            Command::ResetLayout => "Reset the layout".into(),
            Command::Show(view) => format!("View: {}", view.title()),
        }
    }

    /// One sentence for hover and help.
    #[must_use]
    pub fn tooltip(self) -> &'static str {
        match self {
            Command::WatchMachine => {
                "Every byte of each GPU over time: driver, processes, and PyTorch's own figures where a helper runs."
            }
            Command::Open => {
                "Allocator snapshots, profiler traces, memory timelines, JAX memory profiles and saved memory_viz pages, compressed or not."
            }
            Command::SaveRecording => {
                "As a PyTorch snapshot, which memory_viz and Python's pickle open too; a live watch as a session."
            }
            Command::AddFile => {
                "A profiler trace, a memory timeline or memory_stats of the same run: allocations gain operators, modules and categories."
            }
            Command::OpenPath => "Type or paste a path, for desktops with no file dialog.",
            Command::Probe => "Leaks, fragmentation, full cards: made to happen on a simulated card or this one, and recorded.",
            Command::Replay => {
                "The same requests in the same order, on a simulated card or this one, under settings of your choice."
            }
            Command::OpenRanks => "One snapshot a rank: peaks, outliers and the first to fail, side by side.",
            Command::CompareFiles => "What only one of them holds, by call stack, each at its peak.",
            Command::SavePicture => {
                "PNG of the window as it is, or SVG whose lines and text scale; a pane's header has the same for the pane."
            }
            Command::Watch => "Snapshots that a trainer writes when it runs out of memory are opened or offered as they appear.",
            Command::Explain => "Paste the text of the error: what its figures mean, and what to do. No file needed.",
            Command::Palette => "Find a command, a stack, a segment, or the block that holds an address.",
            Command::FindInView => "Type into the query or filter field of the view in front.",
            Command::ToggleAxis => "Events spread a busy millisecond out; wall clock shows how long things took.",
            Command::SetMarker(_) => "Leaks lists what was born after A and lives at B; Compare shows what changed between them.",
            Command::OutOfMemory => "Moves every view to the request that failed; of several to the last first, then round.",
            Command::Peak => "Moves every view to the instant with most memory in use.",
            Command::QueryStack => "Lists them, dims everything else in all views, and draws their bytes as a curve.",
            Command::SelectionBack => {
                "Undoes the last zoom, or goes to the selection or the workspace before: whichever changed last."
            }
            Command::Clear => "Lets go of the range, then the query, then the selection. The zoom stays; A shows everything.",
            _ => "",
        }
    }

    /// Its shortcuts; the first is the one shown.
    #[must_use]
    pub fn shortcuts(self) -> Vec<KeyboardShortcut> {
        let key = |m, k| vec![KeyboardShortcut::new(m, k)];
        match self {
            Command::Open => key(CTRL, Key::O),
            Command::OpenPath => key(CTRL.plus(Modifiers::SHIFT), Key::O),
            Command::SaveRecording => key(CTRL, Key::S),
            Command::CompareFiles => key(CTRL, Key::D),
            Command::Explain => key(CTRL, Key::E),
            Command::Close => key(CTRL, Key::W),
            Command::NextTab => key(CTRL, Key::Tab),
            Command::PreviousTab => key(CTRL.plus(Modifiers::SHIFT), Key::Tab),
            Command::Quit => key(CTRL, Key::Q),
            Command::Palette => key(CTRL, Key::K),
            Command::FindInView => key(CTRL, Key::F),
            Command::Help => {
                vec![KeyboardShortcut::new(NONE, Key::F1), KeyboardShortcut::new(Modifiers::SHIFT, Key::Questionmark)]
            }
            Command::Settings => key(CTRL, Key::Comma),
            Command::ZoomFit => key(NONE, Key::A),
            Command::ZoomIn => key(NONE, Key::W),
            Command::ZoomOut => key(NONE, Key::S),
            Command::PanLeft => key(Modifiers::SHIFT, Key::ArrowLeft),
            Command::PanRight => key(Modifiers::SHIFT, Key::ArrowRight),
            Command::ToggleAxis => key(NONE, Key::T),
            Command::EventBack => vec![KeyboardShortcut::new(NONE, Key::Comma), KeyboardShortcut::new(NONE, Key::ArrowLeft)],
            Command::EventForward => vec![KeyboardShortcut::new(NONE, Key::Period), KeyboardShortcut::new(NONE, Key::ArrowRight)],
            Command::First => key(NONE, Key::Home),
            Command::Last => key(NONE, Key::End),
            Command::Peak => key(NONE, Key::P),
            Command::PreviousPeak => key(NONE, Key::OpenBracket),
            Command::NextPeak => key(NONE, Key::CloseBracket),
            Command::OutOfMemory => key(NONE, Key::O),
            Command::SetMarker(0) => key(Modifiers::SHIFT, Key::A),
            Command::SetMarker(_) => key(Modifiers::SHIFT, Key::B),
            Command::ClearMarkers => key(Modifiers::SHIFT, Key::X),
            Command::PreviousSameStack => key(NONE, Key::B),
            Command::NextSameStack => key(NONE, Key::N),
            Command::QueryStack => key(Modifiers::SHIFT, Key::S),
            Command::FitSelection => key(NONE, Key::F),
            Command::Clear => key(NONE, Key::Escape),
            Command::SelectionBack => key(ALT, Key::ArrowLeft),
            Command::SelectionForward => key(ALT, Key::ArrowRight),
            Command::CopyAddress => key(CTRL.plus(Modifiers::SHIFT), Key::A),
            Command::CopyStack => key(CTRL.plus(Modifiers::SHIFT), Key::C),
            Command::Workspace(w) => {
                let keys = [Key::Num1, Key::Num2, Key::Num3, Key::Num4, Key::Num5];
                let at = Workspace::ALL.iter().position(|&x| x == w).and_then(|i| keys.get(i).copied());
                at.map(|k| key(CTRL, k)).unwrap_or_default()
            }
            Command::Probe => key(CTRL, Key::P),
            Command::AddFile
            | Command::Replay
            | Command::OpenRanks
            | Command::Watch
            | Command::SavePicture
            | Command::WatchMachine
            | Command::Welcome
            | Command::RoleRules
            | Command::ToggleTheme
            | Command::Colour(_)
            | Command::ResetLayout
            | Command::Show(_) => Vec::new(),
        }
    }

    /// Its first shortcut as it is written on keys: `Ctrl+K`, `[`, `?`; empty without one.
    #[must_use]
    pub fn keys(self) -> String {
        self.shortcuts().first().map(written).unwrap_or_default()
    }

    /// True for what works while a dialog is open: it closes it, or takes its place.
    #[must_use]
    pub fn works_in_dialogs(self) -> bool {
        use Command as C;
        matches!(
            self,
            C::Clear | C::Quit | C::Open | C::Palette | C::Help | C::Settings | C::Explain | C::ToggleTheme | C::SavePicture
        )
    }

    /// True for what goes one further with each press: cursor, window, tabs, selections. Others do all they can at once.
    #[must_use]
    pub fn moves(self) -> bool {
        matches!(
            self,
            Command::EventBack
                | Command::EventForward
                | Command::PreviousPeak
                | Command::NextPeak
                | Command::OutOfMemory
                | Command::PreviousSameStack
                | Command::NextSameStack
                | Command::SelectionBack
                | Command::SelectionForward
                | Command::Clear
                | Command::ZoomIn
                | Command::ZoomOut
                | Command::PanLeft
                | Command::PanRight
                | Command::NextTab
                | Command::PreviousTab
        )
    }

    /// What it needs to make sense.
    #[must_use]
    pub fn needs(self) -> Needs {
        match self {
            Command::Open
            | Command::OpenPath
            | Command::OpenRanks
            | Command::CompareFiles
            | Command::Probe
            | Command::Watch
            | Command::SavePicture
            | Command::Explain
            | Command::WatchMachine
            | Command::Welcome
            | Command::Close
            | Command::NextTab
            | Command::PreviousTab
            | Command::Quit
            | Command::Palette
            | Command::FindInView
            | Command::ToggleTheme
            | Command::Help
            | Command::Settings
            | Command::RoleRules => Needs::Nothing,
            Command::OutOfMemory => Needs::OutOfMemory,
            Command::SaveRecording => Needs::Saveable,
            Command::PreviousSameStack
            | Command::NextSameStack
            | Command::QueryStack
            | Command::FitSelection
            | Command::CopyAddress
            | Command::CopyStack => Needs::Selection,
            _ => Needs::Recording,
        }
    }
}

/// A shortcut as it is written on keys.
#[must_use]
pub fn written(shortcut: &KeyboardShortcut) -> String {
    let key = match shortcut.logical_key {
        Key::ArrowLeft => "Left",
        Key::ArrowRight => "Right",
        Key::Escape => "Esc",
        key => key.symbol_or_name(),
    };
    // Shift is how "?" is typed, not a part of the shortcut's name.
    let named = if shortcut.logical_key == Key::Questionmark { Modifiers::NONE } else { shortcut.modifiers };
    let modifiers = egui::ModifierNames::NAMES.format(&named, cfg!(target_os = "macos"));
    if modifiers.is_empty() { key.to_owned() } else { format!("{modifiers}+{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortcuts_are_written_as_on_the_keys() {
        assert_eq!(Command::Palette.keys(), "Ctrl+K");
        assert_eq!(Command::PreviousPeak.keys(), "[");
        assert_eq!(Command::EventBack.shortcuts().iter().map(written).collect::<Vec<_>>(), [",", "Left"]);
        assert_eq!(Command::Help.shortcuts().iter().map(written).collect::<Vec<_>>(), ["F1", "?"]);
        assert_eq!(Command::SelectionBack.keys(), "Alt+Left");
    }

    #[test]
    fn no_two_commands_share_a_shortcut_and_each_has_a_name() {
        let mut seen: Vec<(KeyboardShortcut, Command)> = Vec::new();
        for command in Command::all() {
            assert!(!command.text().is_empty(), "{command:?}");
            for shortcut in command.shortcuts() {
                if let Some((_, other)) = seen.iter().find(|(s, _)| *s == shortcut) {
                    panic!("{command:?} and {other:?} share {shortcut:?}");
                }
                seen.push((shortcut, command));
            }
        }
    }
}
