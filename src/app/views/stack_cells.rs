//! A call stack in two cells of a table: the function that allocates, and the line of the user's code that called it.

use egui::{Painter, Rect};

use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Cell, label};
use vramscope_core::model::{FrameId, StackId, StackTable};
use vramscope_core::tables::{function_label, innermost, is_framework, own_frame, tell_apart, without_stack};

/// A function and its place: `forward`, `workloads.py:21`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameText {
    pub name: String,
    pub place: String,
}

impl FrameText {
    /// The text of a frame; empty when the frame is not in the table.
    pub fn of(stacks: &StackTable, frame: FrameId) -> Self {
        stacks.frame(frame).map_or_else(Self::default, |f| FrameText {
            name: function_label(stacks.text(f.name)).to_owned(),
            place: stacks.location(f),
        })
    }

    /// Paints the name, then the location in monospace. Without room for both, the name shrinks, that of a library's frame to a little
    /// under half, then the start of the file name is cut. The line number always stays, because users look for it.
    pub fn paint(&self, p: &Painter, t: &Tokens, rect: Rect, place_is_own: bool) {
        let wide = |text: &str, kind| label::width(p, text, kind);
        let (name, place) = (wide(&self.name, Type::Body), wide(&self.place, Type::Mono));
        if self.place.is_empty() || name + GAP + place <= rect.width() {
            let named = label::text_in(p, rect, &self.name, Type::Body, t.text1);
            let rest = rect.with_min_x(named.right() + GAP);
            label::text_in(p, rest, &self.place, Type::Mono, if place_is_own { t.accent } else { t.text3 });
            return;
        }
        // The user knows the files of the program; of a library the function says more.
        let kept = if place_is_own { 0.0 } else { name.min(rect.width() * 0.45) };
        let most = (rect.width() - GAP - kept).max(0.0);
        let letter = (place / self.place.chars().count().max(1) as f32).max(1.0);
        let short = shorten_place(&self.place, (most / letter) as usize);
        let from = rect.right() - wide(&short, Type::Mono).max(most.min(place));
        // A few letters of a name say nothing.
        let room = rect.with_max_x((from - GAP).max(rect.left()));
        let is_named = room.width() >= LEAST_NAME;
        let left = if is_named { label::text_in(p, room, &self.name, Type::Body, t.text1).right() + GAP } else { rect.left() };
        let rest = rect.with_min_x(left);
        label::text_in(p, rest, &short, Type::Mono, if place_is_own { t.accent } else { t.text3 });
    }

    /// What to show after a stack's name: only the function when the name already is its location.
    pub fn beside(&self, name: &str) -> String {
        if name == self.place || name.split_whitespace().any(|word| word == self.place) { self.name.clone() } else { self.line() }
    }

    pub fn line(&self) -> String {
        if self.place.is_empty() { self.name.clone() } else { format!("{} {}", self.name, self.place) }
    }
}

const GAP: f32 = 8.0;
const LEAST_NAME: f32 = 40.0;

/// Shortens `modelling_llama.py:1024` to `most` letters: `…g_llama.py:1024`. The line number is never cut.
pub(super) fn shorten_place(place: &str, most: usize) -> String {
    let Some((file, line)) = place.rsplit_once(':') else { return place.to_owned() };
    let letters: Vec<char> = file.chars().collect();
    if place.chars().count() <= most {
        return place.to_owned();
    }
    let keep = most.saturating_sub(line.chars().count() + 2).min(letters.len());
    let end: String = letters[letters.len() - keep..].iter().collect();
    format!("…{end}:{line}")
}

/// The frames that distinguish a stack, innermost first, at most `most`: those of the user's own code, or the innermost ones when
/// there are none.
pub(super) fn telling_frames(stacks: &StackTable, stack: StackId, most: usize) -> Vec<FrameText> {
    let frames = stacks.frames(stack);
    let is_own = |f: &&FrameId| stacks.frame(**f).is_some_and(|f| !is_framework(stacks, f));
    let own: Vec<FrameText> = frames.iter().filter(is_own).take(most).map(|&f| FrameText::of(stacks, f)).collect();
    let from = innermost(stacks, stack).and_then(|first| frames.iter().position(|&f| f == first)).unwrap_or(0);
    if own.is_empty() { frames[from..].iter().take(most).map(|&f| FrameText::of(stacks, f)).collect() } else { own }
}

/// The innermost frame, and the innermost frame of the user's code when that is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StackCells {
    pub allocated_in: FrameText,
    pub called_from: Option<FrameText>,
}

impl StackCells {
    pub fn of(stacks: &StackTable, stack: StackId) -> Self {
        let Some(first) = innermost(stacks, stack) else {
            return StackCells {
                allocated_in: FrameText { name: without_stack(stack).to_owned(), place: String::new() },
                called_from: None,
            };
        };
        let own = own_frame(stacks, stack).filter(|&f| f != first);
        StackCells { allocated_in: FrameText::of(stacks, first), called_from: own.map(|f| FrameText::of(stacks, f)) }
    }

    pub fn paint_first(&self, c: &Cell<'_>) {
        self.allocated_in.paint(c.p, c.t, c.rect, self.called_from.is_none());
    }

    /// Paints the calling line of the user's code, when it is another one.
    pub fn paint_caller(&self, c: &Cell<'_>) {
        if let Some(own) = &self.called_from {
            own.paint(c.p, c.t, c.rect, true);
        }
    }

    /// The cells of several rows. Rows with equal names get the caller that tells them apart.
    pub fn of_rows(stacks: &StackTable, rows: &[StackId]) -> Vec<Self> {
        let plain: Vec<(StackId, String)> = rows.iter().map(|&stack| (stack, StackCells::of(stacks, stack).line())).collect();
        let apart = tell_apart(stacks, &plain);
        rows.iter()
            .zip(apart)
            .map(|(&stack, by)| {
                let cells = StackCells::of(stacks, stack);
                StackCells { called_from: by.map(|by| FrameText::of(stacks, by.frame)).or(cells.called_from.clone()), ..cells }
            })
            .collect()
    }

    pub fn line(&self) -> String {
        match &self.called_from {
            Some(own) => format!("{}, called from {}", self.allocated_in.line(), own.line()),
            None => self.allocated_in.line(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_once() {
        let frame = FrameText { name: "__init__".to_owned(), place: "serve.py:6".to_owned() };
        assert_eq!(frame.beside("serve.py:6"), "__init__");
        assert_eq!(frame.beside("train.py:9"), "__init__ serve.py:6");
    }
    use vramscope_core::model::{Frame, StackTableBuilder};

    #[test]
    fn a_place_keeps_its_line() {
        assert_eq!(shorten_place("workloads.py:21", 15), "workloads.py:21");
        assert_eq!(shorten_place("workloads.py:21", 11), "…oads.py:21");
        assert_eq!(shorten_place("workloads.py:21", 2), "…:21");
        assert_eq!(shorten_place("no line", 3), "no line");
    }

    #[test]
    fn a_framework_frame_is_named_with_the_users_line_that_called_it() {
        let mut b = StackTableBuilder::new();
        let mut frame = |name: &str, file: &str, line| {
            let (name, file) = (b.string(name), b.string(file));
            b.frame(Frame { name, file, line })
        };
        let torch = frame("forward", "/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", 134);
        let own = frame("forward", "/home/me/model.py", 23);
        let (both, alone) = (b.stack(&[torch, own]), b.stack(&[own]));
        let table = b.finish();
        assert_eq!(StackCells::of(&table, both).line(), "forward linear.py:134, called from forward model.py:23");
        assert_eq!(StackCells::of(&table, alone).called_from, None);
        assert_eq!(StackCells::of(&table, StackId::NONE).line(), vramscope_core::tables::NO_STACK);
        let told = |stack| telling_frames(&table, stack, 4).iter().map(FrameText::line).collect::<Vec<_>>();
        assert_eq!(told(both), ["forward model.py:23"]);
        assert_eq!(told(StackId::NONE), [""; 0]);
    }
}
