//! The stack of the failed request: the user's own frames; frames of frameworks are folded.

use egui::Ui;

use crate::app::state::Action;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::{Cut, label, recorded_by, row, section};
use vramscope_core::model::{Frame, StackId, StackTable};
use vramscope_core::tables::is_framework;
use vramscope_core::units::counted;

#[derive(Default)]
pub(super) struct Frames {
    shows_framework: bool,
}

impl Frames {
    pub(super) fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, stack: StackId) {
        section(ui, "The request came from", "most recent first", false);
        let stacks = &cx.data.recording.stacks;
        let frames: Vec<Frame> = stacks.frames(stack).iter().filter_map(|&f| stacks.frame(f)).collect();
        egui::Frame::NONE.inner_margin(egui::Margin::symmetric(16, 0)).show(ui, |ui| {
            ui.set_width(ui.available_width());
            if frames.is_empty() {
                label::paragraph(ui, "Not recorded. Stacks are recorded with:", Type::Body, cx.tokens.text2);
                ui.add_space(6.0);
                let line = cx.words().say(vramscope_core::diagnose::source_limits::records_stacks(&cx.data.recording));
                recorded_by(ui, &line);
                return;
            }
            let is_own = |f: &Frame| !is_framework(stacks, *f);
            // Frames are folded only when some, but not all, are the user's.
            let folds = frames.iter().any(is_own) && !frames.iter().all(is_own);
            let mut at = 0;
            for run in frames.chunk_by(|a, b| !is_own(a) && !is_own(b)) {
                match run {
                    [first, ..] if folds && !self.shows_framework && !is_own(first) => {
                        let text = counted(run.len() as u64, "framework frame", "framework frames");
                        self.shows_framework |= row::fold(ui, &text, 0.0);
                    }
                    run => run.iter().enumerate().for_each(|(i, frame)| row(ui, cx, at + i, *frame, is_own(frame))),
                }
                at += run.len();
            }
            if folds && self.shows_framework && row::fold(ui, "Fold framework frames", 0.0) {
                self.shows_framework = false;
            }
        });
    }
}

/// A row with number, function and location. A click opens the line.
fn row(ui: &mut Ui, cx: &ViewContext<'_>, index: usize, frame: Frame, own: bool) {
    let (t, stacks) = (cx.tokens, &cx.data.recording.stacks);
    let (rect, response) = row::clicked(ui, 20.0, egui::Role::Link, || stacks.location(frame));
    label::text_in(ui.painter(), rect, &index.to_string(), Type::Mono, t.text3);
    let place = if own { t.accent } else { t.text3 };
    // Keeps the end, because the line number matters most.
    let location = label::without_start(ui.painter(), &stacks.location(frame), Type::Mono, rect.width() * 0.7);
    let location = label::text_in_right(ui.painter(), rect, &location, Type::Mono, place);
    let room = rect.across(rect.left() + 20.0, location.left() - 8.0);
    label::text_in(ui.painter(), room, stacks.text(frame.name), Type::Mono, if own { t.text1 } else { t.text3 });
    let (tip, can_open) = tip_of(stacks, frame);
    if response.on_hover_text(tip).clicked() && can_open {
        cx.actions.send(Action::OpenSource { file: stacks.text(frame.file).to_owned(), line: frame.line });
    }
}

/// A frame's tooltip, and whether its line can be opened. For C++ the file is often unknown; the tooltip is then the whole name,
/// which the row may have cut.
pub(super) fn tip_of(stacks: &StackTable, frame: Frame) -> (&str, bool) {
    match stacks.text(frame.file) {
        "" | "??" => (stacks.text(frame.name), false),
        file => (file, frame.line > 0 && !stacks.frame_is_unresolved(frame)),
    }
}

#[cfg(test)]
mod tests {
    use crate::app::views::autopsy::frames::tip_of;
    use vramscope_core::model::{Frame, StackTableBuilder};

    #[test]
    fn a_frame_without_a_file_tells_its_name_and_opens_nothing() {
        let mut b = StackTableBuilder::new();
        let mut frame = |name: &str, file: &str, line: u32| {
            let (name, file) = (b.string(name), b.string(file));
            Frame { name, file, line }
        };
        let frames =
            [frame("at::empty", "", 0), frame("at::empty", "??", 0), frame("??", "libc.so.6", 64), frame("f", "/a.py", 7)];
        let told = frames.map(|frame| tip_of(b.table(), frame));
        assert_eq!(told, [("at::empty", false), ("at::empty", false), ("libc.so.6", false), ("/a.py", true)]);
    }
}
