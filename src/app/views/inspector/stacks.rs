//! Call stacks: the user's frames with their source line, framework frames dimmed and folded, links that open the editor.

use std::sync::Arc;

use egui::{Role, Ui, vec2};

use crate::app::jobs::Derived;
use crate::app::platform::editor::place::{PathPrefix, line_of};
use crate::app::state::Action;
use crate::app::theme::Type;
use crate::app::theme::visuals::PAD_PANE;
use crate::app::views::ViewContext;
use crate::app::widgets::{CodeWell, Cut, Icon, external_link, icon_button, label, padded, pane, recorded_by, row, segmented};
use vramscope_core::anatomy;
use vramscope_core::diagnose::source_limits::records_stacks;
use vramscope_core::model::{Frame, StackId, StackTable};
use vramscope_core::tables::{function_label, innermost, is_framework, stack_text};
use vramscope_core::units::counted;

/// One entry of the listed stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A frame of the user's own code, by its index in the stack.
    Own(usize),
    /// A run of framework frames: from, to.
    Framework(usize, usize),
}

/// Groups frames: the user's frames and `line` (the frame that names the stack) are listed singly, other framework frames in
/// runs.
pub fn parts(stacks: &StackTable, frames: &[Frame], line: Option<Frame>) -> Vec<Part> {
    let mut out: Vec<Part> = Vec::new();
    let line = line.and_then(|line| frames.iter().position(|f| *f == line));
    for (i, frame) in frames.iter().enumerate() {
        if !is_framework(stacks, *frame) || Some(i) == line {
            out.push(Part::Own(i));
        } else if let Some(Part::Framework(_, to)) = out.last_mut() {
            *to = i + 1;
        } else {
            out.push(Part::Framework(i, i + 1));
        }
    }
    out
}

impl Part {
    fn frames(&self) -> usize {
        match self {
            Part::Own(_) => 1,
            Part::Framework(from, to) => to - from,
        }
    }
}

/// The parts left out of the middle of a long stack. The allocating code is at one end and the program's loop at the other; a
/// hundred rows would hide everything below.
pub fn middle(parts: usize) -> std::ops::Range<usize> {
    const MOST: usize = 40;
    const FIRST: usize = 24;
    const LAST: usize = 8;
    if parts > MOST { FIRST..parts - LAST } else { 0..0 }
}

#[derive(Default)]
pub struct Stacks {
    chosen: usize,
    shows_framework: bool,
    /// The middle of a long stack is shown.
    shows_middle: bool,
    source: Derived<(StackId, Vec<PathPrefix>), Vec<Option<String>>>,
}

impl Stacks {
    /// Shows one of the stacks of a card, with tabs to choose.
    pub fn show(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, stacks: &[(&'static str, StackId)]) {
        let t = cx.tokens;
        self.chosen = self.chosen.min(stacks.len().saturating_sub(1));
        let Some(&(_, stack)) = stacks.get(self.chosen) else { return };
        let table = &cx.data.recording.stacks;
        padded(ui, |ui| {
            ui.horizontal(|ui| {
                if stacks.len() > 1 {
                    let names: Vec<&str> = stacks.iter().map(|s| s.0).collect();
                    segmented(ui, "Stack", &mut self.chosen, &names);
                } else {
                    ui.label(Type::Caption.text("Stack").color(t.text3));
                }
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    if stack.is_some() && icon_button(ui, Icon::Copy, "Copy the stack").clicked() {
                        cx.actions.send(Action::Copy(stack_text(table, stack)));
                    }
                    if ui.available_width() > 110.0 {
                        ui.label(Type::Caption.text("most recent first").color(t.text3));
                    }
                });
            });
            ui.add_space(6.0);
        });
        let frames: Vec<Frame> = table.frames(stack).iter().filter_map(|&f| table.frame(f)).collect();
        if frames.is_empty() {
            padded(ui, |ui| {
                let line = records_stacks(&cx.data.recording);
                let others_have = !cx.data.names.is_empty() && line.starts_with("torch.cuda.memory");
                let (why, line) = match others_have {
                    true => (
                        "None for this block: it is older than the history, or C++ code allocated it, as in the backward pass. This records C++ frames too:",
                        "torch.cuda.memory._record_memory_history(context=\"alloc\", stacks=\"all\")",
                    ),
                    false => ("not recorded. This line records call stacks:", line),
                };
                label::paragraph(ui, why, Type::Body, t.text3);
                ui.add_space(6.0);
                recorded_by(ui, &cx.words().say(line));
            });
            return;
        }
        let source = self.source(cx, stack, &frames);
        let all = parts(table, &frames, anatomy::line_of(table, stack).and_then(|f| table.frame(f)));
        let long = middle(all.len());
        let left_out = if self.shows_middle { 0..0 } else { long.clone() };
        for (at, part) in all.iter().enumerate() {
            if left_out.contains(&at) {
                let frames: usize = all[left_out.clone()].iter().map(Part::frames).sum();
                let text = format!("{} between", counted(frames as u64, "frame", "frames"));
                self.shows_middle |= at == left_out.start && row::fold(ui, &text, PAD_PANE);
                continue;
            }
            match *part {
                Part::Own(i) => {
                    frame_row(ui, cx, i, frames[i], false);
                    if let Some(line) = source.as_ref().and_then(|s| s.get(i)).and_then(|l| l.as_deref()) {
                        padded(ui, |ui| {
                            ui.add_space(2.0);
                            CodeWell::new(line).number(frames[i].line).python().show(ui);
                            ui.add_space(6.0);
                        });
                    }
                }
                Part::Framework(from, to) if self.shows_framework => {
                    for i in from..to {
                        frame_row(ui, cx, i, frames[i], true);
                    }
                }
                Part::Framework(from, to) => {
                    let inner = innermost(table, stack).and_then(|f| table.frame(f)).filter(|f| frames[from..to].contains(f));
                    let names = function_label(table.text(inner.unwrap_or(frames[from]).name));
                    let n = counted((to - from) as u64, "framework frame", "framework frames");
                    let text = if to - from == 1 { format!("{n}: {names}") } else { format!("{n}, innermost {names}") };
                    self.shows_framework |= row::fold(ui, &text, PAD_PANE);
                }
            }
        }
        if self.shows_middle && !long.is_empty() && row::fold(ui, "Fold the middle of the stack", PAD_PANE) {
            self.shows_middle = false;
        }
        let folds = self.shows_framework && frames.iter().any(|f| is_framework(table, *f));
        if folds && row::fold(ui, "Fold framework frames", PAD_PANE) {
            self.shows_framework = false;
        }
    }

    /// Source lines of own frames whose file is on this machine, read off the UI thread.
    fn source(&mut self, cx: &ViewContext<'_>, stack: StackId, frames: &[Frame]) -> Option<Arc<Vec<Option<String>>>> {
        let recording = Arc::clone(&cx.data.recording);
        let (frames, folders) = (frames.to_vec(), cx.source_folders.to_vec());
        let shown = self.source.get(cx.jobs, "source lines", &(stack, folders.clone()), move |_| {
            let table = &recording.stacks;
            let line = |frame: &Frame| {
                (!is_framework(table, *frame)).then(|| line_of(table.text(frame.file), frame.line, &folders)).flatten()
            };
            Some(frames.iter().map(line).collect())
        });
        shown.fresh()
    }
}

fn frame_row(ui: &mut Ui, cx: &ViewContext<'_>, index: usize, frame: Frame, dim: bool) {
    let t = cx.tokens;
    let table = &cx.data.recording.stacks;
    let name = table.text(frame.name);
    let location = table.location(frame);
    let (rect, response) = row::told(ui, 20.0, Role::Label, || format!("{index} {name} {location}"));
    // C++ names are longer than any row, so the tooltip has the full name.
    response.on_hover_text(format!("{name}\n{location}"));
    let inner = rect.shrink2(vec2(PAD_PANE, 0.0));
    let painter = ui.painter();
    let number = label::text(painter, inner.left_center(), egui::Align2::LEFT_CENTER, &index.to_string(), Type::Mono, t.text3);
    let half = inner.width() * 0.55;
    let link_room = inner.with_min_x(inner.right() - half);
    let mut link_ui = pane::child_from_right(ui, link_room, ("frame", index));
    let file = table.text(frame.file);
    let can_open = !table.frame_is_unresolved(frame) && frame.line > 0;
    // Keeps the end with the line number, which matters most. The link's arrow takes 18 points.
    let location = label::without_start(ui.painter(), &location, Type::Mono, half - 18.0);
    let taken = if dim || !can_open {
        label::text_in_right(ui.painter(), link_room, &location, Type::Mono, t.text3).width()
    } else {
        let link = external_link(&mut link_ui, &location).on_hover_text(format!("Open {file}:{}", frame.line));
        if link.clicked() {
            cx.actions.send(Action::OpenSource { file: file.to_owned(), line: frame.line });
        }
        link_ui.min_rect().width()
    };
    let left = (inner.left() + 20.0).max(number.right() + 6.0);
    let room = rect.across(left, inner.right() - taken - 8.0);
    label::text_in(ui.painter(), room, name, Type::MonoStrong, if dim { t.text3 } else { t.text1 });
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::model::StackTableBuilder;

    #[test]
    fn a_long_stack_keeps_its_two_ends() {
        assert!(middle(40).is_empty());
        assert_eq!((middle(41), middle(200)), (24..33, 24..192));
    }

    #[test]
    fn framework_frames_gather_in_runs() {
        let mut b = StackTableBuilder::new();
        let mut frame = |file: &str| {
            let (name, file) = (b.string("f"), b.string(file));
            Frame { name, file, line: 1 }
        };
        let torch = frame("/x/site-packages/torch/a.py");
        let own = frame("/home/me/train.py");
        let frames = [torch, torch, own, torch, own];
        assert_eq!(parts(b.table(), &frames, None), [Part::Framework(0, 2), Part::Own(2), Part::Framework(3, 4), Part::Own(4)]);
        // The framework frame that names the stack is not folded.
        assert_eq!(parts(b.table(), &frames, Some(torch))[..3], [Part::Own(0), Part::Framework(1, 2), Part::Own(2)]);
    }
}
