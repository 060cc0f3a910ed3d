//! [`Command`]: everything a user can run by name. Menus, the palette, shortcuts and help are derived from this list.

use std::borrow::Cow;

use egui::{Key, KeyboardShortcut, Modifiers};
use strum::IntoEnumIterator as _;

use super::colour_by::ColourBy;
use super::view_kind::ViewKind;
use super::workspace::Workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumIter)]
pub enum Command {
    /// Choose files in the desktop's dialog.
    Open,
    /// Ask for a path with the window's own path field.
    OpenPath,
    /// Choose a folder with one recording per rank.
    OpenRanks,
    CompareFiles,
    /// Watch a folder for new recordings, or stop watching.
    WatchFolder,
    /// Save the recording in front as a snapshot, or the live watch in front as a session.
    SaveRecording,
    /// Save a report on the recording in front, as HTML or Markdown.
    SaveReport,
    SavePicture,
    /// Add a trace, a timeline or counters of the same run to the recording in front.
    AddFile,
    /// Run the probe, which provokes a memory problem on a real card.
    Probe,
    /// Replay the requests of the recording in front on a real card.
    Replay,
    /// Paste the text of an out-of-memory error.
    Explain,
    WatchMachine,
    Welcome,
    Close,
    /// Open the tab again that was closed last.
    Reopen,
    NextTab,
    PreviousTab,
    /// Search commands, stacks and addresses.
    Palette,
    /// Focus the query or filter field of the view in front, or open the palette when it has none.
    FindInView,
    /// Switch between the dark and the light theme.
    ToggleTheme,
    /// Make everything in the window larger.
    LargerInterface,
    SmallerInterface,
    UsualInterface,
    Help,
    /// Show five steps on a sample.
    Tour,
    /// Show how to record with each framework.
    HowToRecord,
    Manual,
    About,
    Settings,
    RoleRules,
    /// Move the cursor to the next out-of-memory event; after the last comes the first.
    OutOfMemory,
    /// Move the cursor to the most reserved bytes.
    Peak,
    PreviousPeak,
    NextPeak,
    First,
    Last,
    EventBack,
    EventForward,
    /// Set marker A (0) or B (1) at the cursor.
    SetMarker(usize),
    ClearMarkers,
    /// Select the previous allocation with the same stack.
    PreviousSameStack,
    /// Select the next allocation with the same stack.
    NextSameStack,
    ZoomFit,
    /// Halve the visible range around the cursor.
    ZoomIn,
    /// Double the visible range around the cursor.
    ZoomOut,
    PanLeft,
    PanRight,
    /// Query all allocations with the selection's stack.
    QueryStack,
    FitSelection,
    /// Switch the horizontal axis between events and wall-clock time.
    ToggleAxis,
    /// Clear the range, the query or the selection, innermost first. The zoom stays.
    Clear,
    /// Undo the last change of the visible window, the selection or the panes, whichever came last.
    Undo,
    /// Like [`Undo`](Self::Undo), but also returns to the previous workspace: when that changed last, or when nothing else is
    /// left to undo.
    SelectionBack,
    /// Select again what [`SelectionBack`](Self::SelectionBack) left.
    SelectionForward,
    CopyAddress,
    CopyStack,
    Colour(ColourBy),
    Workspace(Workspace),
    ResetLayout,
    /// Bring a view to the front; add it when the workspace lacks it.
    Show(ViewKind),
    Quit,
}

/// What a command needs before it can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Recording,
    Selection,
    OutOfMemory,
    /// Something that can be saved: a recording, a finished probe run or a live watch.
    Saveable,
}

impl Command {
    /// Every command, in the order of their declaration. The palette lists them in this order.
    pub fn all() -> Vec<Command> {
        let each = |command| match command {
            Command::SetMarker(_) => vec![Command::SetMarker(0), Command::SetMarker(1)],
            Command::Colour(_) => ColourBy::ALL.iter().copied().map(Command::Colour).collect(),
            Command::Workspace(_) => Workspace::ALL.iter().copied().map(Command::Workspace).collect(),
            Command::Show(_) => ViewKind::all().map(Command::Show).collect(),
            command => vec![command],
        };
        Command::iter().flat_map(each).collect()
    }

    /// The text in menus and in the palette.
    pub fn text(self) -> String {
        self.spec().text.into_owned()
    }

    /// One sentence for hover and help; empty where the text says enough.
    pub fn tooltip(self) -> &'static str {
        self.spec().tooltip
    }

    /// The shortcuts; the first is the one that is shown.
    pub fn shortcuts(self) -> Vec<KeyboardShortcut> {
        self.spec().shortcuts
    }

    /// The first shortcut as text: `Ctrl+K`, `[`, `?`; empty when there is none.
    pub fn keys(self) -> String {
        self.shortcuts().first().map(written).unwrap_or_default()
    }

    /// True when the command works while a dialog is open: it closes the dialog or replaces it.
    pub fn works_in_dialogs(self) -> bool {
        self.spec().works_in_dialogs
    }

    /// True when every press counts (cursor, window, tabs, selections). Other commands run once however often a frame saw the key.
    pub fn moves(self) -> bool {
        self.spec().moves
    }

    pub fn needs(self) -> Needs {
        self.spec().needs
    }

    /// Text, tooltip, shortcuts and conditions of every command.
    fn spec(self) -> Spec {
        use Command as C;
        const ALT: Modifiers = Modifiers::ALT;
        const CTRL: Modifiers = Modifiers::COMMAND;
        const CTRL_SHIFT: Modifiers = CTRL.plus(SHIFT);
        const NONE: Modifiers = Modifiers::NONE;
        const SHIFT: Modifiers = Modifiers::SHIFT;
        match self {
            C::Open => says("Open a recording…")
                .tip(
                    "Allocator snapshots, profiler traces, memory timelines, JAX memory \
                    profiles and saved memory_viz pages, compressed or not.",
                )
                .key(CTRL, Key::O)
                .in_dialogs(),
            C::OpenPath => {
                says("Open a path…").tip("Type or paste a path, for desktops with no file dialog.").key(CTRL_SHIFT, Key::O)
            }
            C::OpenRanks => {
                says("Open a folder of ranks…").tip("One snapshot a rank: peaks, outliers and the first to fail, side by side.")
            }
            C::CompareFiles => says("Compare two recordings…")
                .tip("What only one of them holds, by call stack, each at its peak.")
                .key(CTRL, Key::D),
            C::WatchFolder => says("Watch a folder, or stop watching…")
                .tip("Snapshots that a trainer writes when it runs out of memory are opened or offered as they appear."),
            C::SaveRecording => says("Save this recording…")
                .tip("As a PyTorch snapshot, which memory_viz and Python's pickle open too; a live watch as a session.")
                .key(CTRL, Key::S)
                .needs(Needs::Saveable),
            C::SaveReport => says("Save a report…")
                .tip("One page to send, with pictures to hover over, that works offline; or Markdown for an issue.")
                .needs(Needs::Recording),
            C::SavePicture => says("Save a picture…")
                .tip(
                    "PNG of the window as it is, or SVG whose lines and text scale; a \
                    pane's header has the same for the pane.",
                )
                .in_dialogs(),
            C::AddFile => says("Add a trace to this recording…")
                .tip(
                    "A profiler trace, a memory timeline or memory_stats of the same run: \
                    allocations gain operators, modules and categories.",
                )
                .needs(Needs::Recording),
            C::Probe => says("Run the probe…")
                .tip("Leaks, fragmentation, full cards: made to happen on a simulated card or this one, and recorded.")
                .key(CTRL, Key::P),
            C::Replay => says("Run these requests on a card…")
                .tip("The same requests in the same order, on a simulated card or this one, under settings of your choice.")
                .needs(Needs::Recording),
            C::Explain => says("Explain an OOM message…")
                .tip("Paste the text of the error: what its figures mean, and what to do. No file needed.")
                .key(CTRL, Key::E)
                .in_dialogs(),
            C::WatchMachine => says("Watch GPUs live")
                .tip("Every byte of each GPU over time: driver, processes, and PyTorch's own figures where a helper runs."),
            C::Welcome => says("Welcome"),
            C::Close => says("Close tab").key(CTRL, Key::W),
            C::Reopen => says("Open the closed tab again").key(CTRL_SHIFT, Key::T).by_press(),
            C::NextTab => says("Next tab").key(CTRL, Key::Tab).by_press(),
            C::PreviousTab => says("Previous tab").key(CTRL_SHIFT, Key::Tab).by_press(),
            C::Palette => says("Find…")
                .tip("Find a command, a stack, a segment, or the block that holds an address.")
                .key(CTRL, Key::K)
                .in_dialogs(),
            C::FindInView => says("Find in the view in front")
                .tip("Type into the query or filter field of the view in front.")
                .key(CTRL, Key::F),
            C::ToggleTheme => says("Switch between light and dark").in_dialogs(),
            // egui itself listens to these keys.
            C::LargerInterface => says("Larger interface").key(CTRL, Key::Plus).in_dialogs().by_press(),
            C::SmallerInterface => says("Smaller interface").key(CTRL, Key::Minus).in_dialogs().by_press(),
            C::UsualInterface => says("Interface at its usual size").key(CTRL, Key::Num0).in_dialogs(),
            C::Help => says("Shortcuts and gestures").key(NONE, Key::F1).key(SHIFT, Key::Questionmark).in_dialogs(),
            C::Tour => says("Take the tour").tip("Five steps on a sample: what each part of the window tells.").in_dialogs(),
            C::HowToRecord => {
                says("How to record…").tip("Lines to copy: PyTorch, Trainer, Lightning, torchtitan, vLLM.").in_dialogs()
            }
            C::Manual => says("Manual").in_dialogs(),
            C::About => says("About vramscope").in_dialogs(),
            C::Settings => says("Settings…").key(CTRL, Key::Comma).in_dialogs(),
            C::RoleRules => says("Role rules…"),
            C::OutOfMemory => says("Go to the out-of-memory event")
                .tip("Moves every view to the request that failed; of several to the last first, then round.")
                .key(NONE, Key::O)
                .needs(Needs::OutOfMemory)
                .by_press(),
            C::Peak => says("Go to the peak")
                .tip("Moves every view to the instant with most memory in use.")
                .key(NONE, Key::P)
                .needs(Needs::Recording),
            C::PreviousPeak => says("Go to the previous peak").key(NONE, Key::OpenBracket).needs(Needs::Recording).by_press(),
            C::NextPeak => says("Go to the next peak").key(NONE, Key::CloseBracket).needs(Needs::Recording).by_press(),
            C::First => says("Go to the first event").key(NONE, Key::Home).needs(Needs::Recording),
            C::Last => says("Go to the last event").key(NONE, Key::End).needs(Needs::Recording),
            C::EventBack => {
                says("One event back").key(NONE, Key::Comma).key(NONE, Key::ArrowLeft).needs(Needs::Recording).by_press()
            }
            C::EventForward => {
                says("One event on").key(NONE, Key::Period).key(NONE, Key::ArrowRight).needs(Needs::Recording).by_press()
            }
            C::SetMarker(0) => says("Set marker A at the cursor")
                .tip("Leaks lists what was allocated after A and lives at B; Compare shows what changed between them.")
                .key(SHIFT, Key::A)
                .needs(Needs::Recording),
            C::SetMarker(_) => says("Set marker B at the cursor")
                .tip("Leaks lists what was allocated after A and lives at B; Compare shows what changed between them.")
                .key(SHIFT, Key::B)
                .needs(Needs::Recording),
            C::ClearMarkers => says("Clear the markers A and B").key(SHIFT, Key::X).needs(Needs::Recording),
            C::PreviousSameStack => {
                says("Previous allocation of the same stack").key(NONE, Key::B).needs(Needs::Selection).by_press()
            }
            C::NextSameStack => says("Next allocation of the same stack").key(NONE, Key::N).needs(Needs::Selection).by_press(),
            C::ZoomFit => says("Show the whole recording").key(NONE, Key::A).needs(Needs::Recording),
            C::ZoomIn => says("Zoom in").key(NONE, Key::W).needs(Needs::Recording).by_press(),
            C::ZoomOut => says("Zoom out").key(NONE, Key::S).needs(Needs::Recording).by_press(),
            C::PanLeft => says("Pan left").key(SHIFT, Key::ArrowLeft).needs(Needs::Recording).by_press(),
            C::PanRight => says("Pan right").key(SHIFT, Key::ArrowRight).needs(Needs::Recording).by_press(),
            C::QueryStack => says("Show all allocations with this stack")
                .tip("Lists them, dims everything else in all views, and draws their bytes as a curve.")
                .key(SHIFT, Key::S)
                .needs(Needs::Selection),
            C::FitSelection => says("Zoom to the selection's life").key(NONE, Key::F).needs(Needs::Selection),
            C::ToggleAxis => says("Switch between events and wall clock")
                .tip("Events spread a busy millisecond out; wall clock shows how long things took.")
                .key(NONE, Key::T)
                .needs(Needs::Recording),
            C::Clear => says("Clear, innermost first")
                .tip("Lets go of the range, then the query, then the selection. The zoom stays; A shows everything.")
                .key(NONE, Key::Escape)
                .needs(Needs::Recording)
                .in_dialogs()
                .by_press(),
            C::Undo => says("Undo zoom, selection or change of panes")
                .tip("Takes back whichever came last. It stays in the workspace.")
                .key(CTRL, Key::Z)
                .needs(Needs::Recording)
                .by_press(),
            C::SelectionBack => says("Back")
                .tip("To the zoom, selection or workspace before, whichever changed last.")
                .key(ALT, Key::ArrowLeft)
                .needs(Needs::Recording)
                .by_press(),
            C::SelectionForward => {
                says("Redo selection").key(CTRL_SHIFT, Key::Z).key(ALT, Key::ArrowRight).needs(Needs::Recording).by_press()
            }
            C::CopyAddress => says("Copy address").key(CTRL_SHIFT, Key::A).needs(Needs::Selection),
            C::CopyStack => says("Copy stack").key(CTRL_SHIFT, Key::C).needs(Needs::Selection),
            C::Quit => says("Quit").key(CTRL, Key::Q).in_dialogs(),
            C::Colour(by) => says(format!("Colour by {}", by.text())).needs(Needs::Recording),
            C::Workspace(w) => {
                const KEYS: [Key; 6] = [Key::Num1, Key::Num2, Key::Num3, Key::Num4, Key::Num5, Key::Num6];
                let key = Workspace::ALL.iter().position(|&x| x == w).and_then(|i| KEYS.get(i));
                let about = w.view().map_or("", ViewKind::about);
                let spec = says(format!("Workspace: {}", w.title())).tip(about).needs(Needs::Recording);
                match key {
                    Some(&key) => spec.key(CTRL, key),
                    None => spec,
                }
            }
            C::ResetLayout => says("Reset the layout").needs(Needs::Recording),
            C::Show(view) => says(format!("View: {}", view.title())).tip(view.about()).needs(Needs::Recording),
        }
    }
}

/// Everything about a command but its effect, which is in `window/commands.rs` because it needs the app.
struct Spec {
    text: Cow<'static, str>,
    tooltip: &'static str,
    shortcuts: Vec<KeyboardShortcut>,
    needs: Needs,
    works_in_dialogs: bool,
    moves: bool,
}

/// A spec with this text that needs nothing.
fn says(text: impl Into<Cow<'static, str>>) -> Spec {
    Spec { text: text.into(), tooltip: "", shortcuts: Vec::new(), needs: Needs::Nothing, works_in_dialogs: false, moves: false }
}

impl Spec {
    fn tip(self, tooltip: &'static str) -> Self {
        Spec { tooltip, ..self }
    }

    fn key(mut self, modifiers: Modifiers, key: Key) -> Self {
        self.shortcuts.push(KeyboardShortcut::new(modifiers, key));
        self
    }

    fn needs(self, needs: Needs) -> Self {
        Spec { needs, ..self }
    }

    /// Makes the command work while a dialog is open.
    fn in_dialogs(self) -> Self {
        Spec { works_in_dialogs: true, ..self }
    }

    /// Makes each press go one step further.
    fn by_press(self) -> Self {
        Spec { moves: true, ..self }
    }
}

pub fn written(shortcut: &KeyboardShortcut) -> String {
    let key = match shortcut.logical_key {
        Key::ArrowLeft => "Left",
        Key::ArrowRight => "Right",
        Key::Escape => "Esc",
        key => key.symbol_or_name(),
    };
    // Typing "?" takes Shift, but the shortcut is shown as "?" alone.
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
        assert_eq!(Command::SelectionBack.shortcuts().iter().map(written).collect::<Vec<_>>(), ["Alt+Left"]);
        assert_eq!(Command::Undo.keys(), "Ctrl+Z");
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
