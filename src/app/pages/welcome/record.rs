//! The right column of the welcome page: how to record a snapshot, and the basic terms with a picture of them.

use egui::{Align2, Color32, Painter, Rangef, Rect, Role, Ui, pos2, vec2};

use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Batch, CodeWell, Cut, Icon, Push, button, label, pane, row};

#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub name: &'static str,
    pub code: &'static str,
    pub text: &'static str,
}

/// The three ways. They use only calls that PyTorch has had since 2.1. The observer is called before the exception is raised. A
/// dump must come before `enabled=None`, which clears the trace. Without `context="alloc"`, stacks of frees are recorded too, and
/// PyTorch 2.11 then ends a training with `checkpoint(use_reentrant=False)` in a `SystemError`.
pub const RECIPES: [Recipe; 3] = [
    Recipe {
        name: "Whole run",
        code: "mem = torch.cuda.memory\n\
               mem._record_memory_history(context=\"alloc\",   # first\n                           stacks=\"python\")\n\
               mem._dump_snapshot(\"run.pickle\")              # last",
        text: "All but the last line go before the model is built, the last after the part you want to see. \
               Then open `run.pickle` here.",
    },
    Recipe {
        name: "At the OOM",
        code: "mem = torch.cuda.memory\n\
               mem._record_memory_history(context=\"alloc\",\n                           stacks=\"python\")\n\
               torch._C._cuda_attach_out_of_memory_observer(\n    \
               lambda *_: mem._dump_snapshot(\"oom.pickle\"))",
        text: "All lines go before the model is built. PyTorch calls the last one when memory runs out, \
               before the error is raised. Then open `oom.pickle` here.",
    },
    Recipe {
        name: "One step",
        code: "mem = torch.cuda.memory\n\
               mem._record_memory_history(context=\"alloc\",\n                           stacks=\"python\")\n\
               train_step(batch)                           # yours\n\
               mem._dump_snapshot(\"step.pickle\")\n\
               mem._record_memory_history(enabled=None)    # stop",
        text: "Around one step of a warm program. Dump before you stop: stopping clears the trace. \
               What was allocated before has no stack.",
    },
];

/// What recording costs; measured on an H200 with PyTorch 2.11.
const COSTS: [(&str, &str); 3] = [
    ("Cost", "3.6\u{a0}µs for each tensor made and freed, 2.1\u{a0}µs without recording"),
    ("Stacks", "Python stacks are cheap. stacks=\"all\" makes the dump 6 times slower"),
    ("Size", "add max_entries=100_000 to keep only the last part of a long run"),
];

const WORDS: [(&str, &str); 4] = [
    ("reserved", "what PyTorch took from the driver, in segments"),
    ("allocated", "blocks that hold live tensors"),
    ("hole", "free space between blocks, kept by PyTorch"),
    ("blocker", "a live block that keeps a hole small"),
];

/// The caption of a part of the page, underlined.
pub(super) fn heading(ui: &mut Ui, title: &str, trailing: &str) {
    let t = Tokens::of(ui);
    let (rect, _) = row::told(ui, 28.0, Role::Heading, || title);
    let line = rect.lines(8.0, 24.0);
    label::text_in(ui.painter(), line, title, Type::Caption, t.text3);
    label::text_in_right(ui.painter(), line, trailing, Type::Caption, t.text3);
    ui.painter().hline(rect.x_range(), rect.bottom() - 0.5, egui::Stroke::new(1.0, t.line));
}

/// Shows how to record. `chosen` is the selected recipe. True when the user asks for more recipes.
pub(super) fn record_ui(ui: &mut Ui, chosen: &mut usize) -> bool {
    let t = Tokens::of(ui);
    heading(ui, "Record a snapshot", "");
    ui.add_space(12.0);
    let names: Vec<&str> = RECIPES.iter().map(|r| r.name).collect();
    let recipe = RECIPES[(*chosen).min(RECIPES.len() - 1)];
    ui.horizontal(|ui| {
        button::segmented(ui, "Way to record", chosen, &names);
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            if Push::plain("Copy").icon(Icon::Copy).show(ui).clicked() {
                ui.copy_text(recipe.code.to_owned());
            }
        });
    });
    ui.add_space(8.0);
    CodeWell::new(recipe.code).python().show(ui);
    ui.add_space(10.0);
    label::rich_paragraph(ui, recipe.text, Type::Body, t.text2, t.text1);
    ui.add_space(6.0);
    let asks_more =
        button::link_with(ui, "More ways: no change to the program, Trainer, Lightning, vLLM", Type::Body, None).clicked();
    ui.add_space(8.0);
    for (term, text) in COSTS {
        pane::rule(ui);
        ui.add_space(4.0);
        row::definition(ui, term, text, 64.0);
        ui.add_space(4.0);
    }
    asks_more
}

/// The basic terms, and a segment that illustrates them.
pub(super) fn words_ui(ui: &mut Ui) {
    heading(ui, "Words used everywhere", "");
    ui.add_space(14.0);
    let (rect, _) = row::told(ui, 106.0, Role::Image, || "One segment: blocks, holes between them, and a blocker");
    paint_segment(&ui.painter_at(rect.expand(4.0)), Tokens::of(ui), rect);
    ui.add_space(10.0);
    for (term, text) in WORDS {
        row::definition(ui, term, text, 84.0);
    }
}

/// The parts of the example segment: share of the width, and palette slot (`None` is a hole).
const PARTS: [(f32, Option<usize>); 7] =
    [(0.139, Some(0)), (0.124, None), (0.198, Some(2)), (0.064, Some(0)), (0.144, None), (0.244, Some(2)), (0.087, None)];
/// Index of the part that is a blocker.
const BLOCKER: usize = 3;

fn paint_segment(p: &Painter, t: &Tokens, rect: Rect) {
    let mut b = Batch::new(p).hatch_origin(rect.min);
    let bar = rect.lines(32.0, 66.0);
    let bracket = |b: &mut Batch, x: Rangef, y: f32, down: bool| {
        let (near, far) = if down { (y, y + 4.0) } else { (y - 4.0, y) };
        b.hline(x, y, 1.0, t.text3);
        for end in [x.min + 0.5, x.max - 0.5] {
            b.vline(end, Rangef::new(near, far), 1.0, t.text3);
        }
    };
    label::text(p, pos2(bar.center().x, rect.top() + 8.0), Align2::CENTER_CENTER, "one segment, reserved", Type::Body, t.text2);
    bracket(&mut b, bar.x_range(), rect.top() + 19.0, true);
    let mut x = bar.left();
    let mut places = Vec::new();
    for (share, slot) in PARTS {
        let part = bar.across(x, x + share * bar.width());
        x = part.right();
        let inner = part.with_max_x(part.right() - 1.0).shrink2(vec2(0.0, 1.0));
        match slot {
            Some(slot) => b.rect(inner, t.slot(slot)),
            None => b.hole(inner, Color32::TRANSPARENT, t.hatch, Color32::TRANSPARENT),
        }
        places.push(inner);
    }
    b.outline(bar, 1.0, t.text1);
    b.selection(places[BLOCKER].expand2(vec2(0.0, 1.0)), t.text1, t.s1);
    for (part, name) in [(1, "hole"), (2, "allocated"), (4, "hole")] {
        let place = places[part];
        bracket(&mut b, Rangef::new(place.left(), place.right()), bar.bottom() + 11.0, false);
        let at = pos2(place.center().x, bar.bottom() + 21.0);
        label::text(p, at, Align2::CENTER_CENTER, name, Type::Body, t.text2);
    }
    let middle = places[BLOCKER].center().x;
    b.vline(middle, Rangef::new(bar.bottom() + 4.0, bar.bottom() + 29.0), 1.0, t.text1);
    label::text(p, pos2(middle, bar.bottom() + 37.0), Align2::CENTER_CENTER, "blocker", Type::Strong, t.text1);
    b.paint(p);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_short_and_dump_before_they_stop() {
        for r in RECIPES {
            assert!(r.code.lines().all(|l| l.chars().count() <= 58), "{}", r.code);
            assert!(r.code.contains("_record_memory_history(context=") && r.code.contains("_dump_snapshot("));
            if let Some(stop) = r.code.find("enabled=None") {
                assert!(r.code.find("_dump_snapshot").is_some_and(|dump| dump < stop));
            }
        }
        assert!((PARTS.iter().map(|p| p.0).sum::<f32>() - 1.0).abs() < 1e-5);
    }
}
