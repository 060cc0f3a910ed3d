//! How to record with each framework, to copy.

use egui::{Align, Rect, Ui, pos2};

use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{CodeWell, label};

struct Recipe {
    name: &'static str,
    code: &'static str,
    is_python: bool,
    text: &'static str,
    /// A line of code that contains one of these belongs to this recipe. The first matching recipe wins.
    of_lines: &'static [&'static str],
}

const RECIPES: [Recipe; 10] = [
    Recipe {
        name: "Any program, when it fails",
        code: "vramscope run --at-oom snapshots train.py\nvramscope run --at-oom snapshots torchrun --nproc-per-node 8 train.py",
        is_python: false,
        text: "The program needs no change. Each rank leaves a snapshot when memory runs out, at an uncaught error, and when it is \
               ended; `vramscope snap PID` asks for one. It keeps the newest 100,000 events.",
        of_lines: &["vramscope run", "vramscope snap", "out_of_memory_observer"],
    },
    Recipe {
        name: "Plain PyTorch",
        code: "import vramscope\n\nwith vramscope.record(\"train.pickle\"):          # before the model is built\n    \
               for batch in vramscope.steps(loader):       # exact steps\n        train(batch)",
        is_python: true,
        text: "A few steps are enough. Without the package the welcome page has the same in PyTorch's own calls.",
        of_lines: &["_record_memory_history", "_dump_snapshot", "record_function"],
    },
    Recipe {
        name: "Hugging Face Trainer",
        code: "import vramscope\n\ntrainer = Trainer(..., callbacks=[vramscope.HuggingFaceCallback(\"snapshots\", steps=(1, 4))])",
        is_python: true,
        text: "Marks each step, writes a snapshot after steps 1 to 3, and one when memory runs out.",
        of_lines: &[],
    },
    Recipe {
        name: "Lightning",
        code: "import vramscope\n\ntrainer = Trainer(..., callbacks=[vramscope.LightningCallback(\"snapshots\", steps=(1, 4))])",
        is_python: true,
        text: "The same for `lightning` and `pytorch_lightning`.",
        of_lines: &[],
    },
    Recipe {
        name: "Accelerate",
        code: "import vramscope\n\naccelerator = Accelerator(log_with=[vramscope.AccelerateTracker(\"snapshots\", steps=(1, 4))])\n\
               accelerator.init_trackers(\"run\")",
        is_python: true,
        text: "A step ends with `accelerator.log`. For a program that is to stay as it is: `vramscope run --at-oom snapshots accelerate launch \
               train.py`",
        of_lines: &[],
    },
    Recipe {
        name: "torchtitan",
        code: "vramscope run --at-oom snapshots torchrun --nproc-per-node 8 -m torchtitan.train --job.config_file train.toml",
        is_python: false,
        text: "Or let torchtitan write them, with `enable_memory_snapshot = true` below `[profiling]`; open the folder afterwards, and all ranks \
               stand side by side.",
        of_lines: &[],
    },
    Recipe {
        name: "vLLM",
        code: "vramscope run --at-oom snapshots vllm serve MODEL",
        is_python: false,
        text: "The engine runs in a process of its own, which is caught too. Weights and the cache of keys and values are taken at the start, so \
               a snapshot by `vramscope snap PID` shows them.",
        of_lines: &[],
    },
    Recipe {
        name: "A profiler trace",
        code: "from torch.profiler import profile\n\nwith profile(profile_memory=True, with_stack=True, record_shapes=True) as p:\n    \
               for batch in loader:\n        train(batch)\np.export_chrome_trace(\"train.pt.trace.json\")",
        is_python: true,
        text: "Operators and kernels beside the memory. A snapshot of the same run has segments and addresses, which a trace does not; open both \
               together.",
        of_lines: &["torch.profiler.profile"],
    },
    Recipe {
        name: "A whole machine, live",
        code: "vramscope record session.vramscope",
        is_python: false,
        text: "Every GPU and every program on it over time, also over ssh. *Watch GPUs live* in the File menu shows this machine's.",
        of_lines: &["vramscope record"],
    },
    Recipe {
        name: "JAX",
        code: "import jax\n\njax.profiler.save_device_memory_profile(\"memory.prof\")    # at each instant that matters",
        is_python: true,
        text: "What was alive then, by the line that made it. JAX keeps no history: two profiles, compared, tell what changed.",
        of_lines: &["jax."],
    },
];

/// The recipe for a line of code; plain PyTorch when none matches.
fn recipe_of(line: &str) -> usize {
    RECIPES.iter().position(|r| r.of_lines.iter().any(|part| line.contains(part))).unwrap_or(1)
}

pub(super) fn draw(ui: &mut Ui, t: &Tokens, mut asked: Option<&mut (String, u8)>) {
    let wanted = asked.as_ref().map(|(line, _)| recipe_of(line));
    for (i, recipe) in RECIPES.iter().enumerate() {
        if i > 0 {
            ui.add_space(18.0);
        }
        let top = ui.cursor().min;
        let asked = asked.as_deref_mut().filter(|_| wanted == Some(i));
        let is_wanted = asked.is_some();
        ui.horizontal_top(|ui| {
            ui.add_space(if is_wanted { 14.0 } else { 0.0 });
            ui.vertical(|ui| one(ui, t, recipe, asked.as_ref().map(|(line, _)| line.as_str())));
        });
        let place = Rect::from_min_max(top, ui.min_rect().max);
        if is_wanted {
            ui.painter().rect_filled(Rect::from_min_max(top, pos2(top.x + 3.0, place.bottom())), 1.0, t.accent);
        }
        // Several times, because heights above the recipe are final only after the first frames.
        if let Some((_, times)) = asked.filter(|(_, times)| *times < 3) {
            *times += 1;
            ui.scroll_to_rect(place.expand(10.0), Some(Align::TOP));
            ui.request_repaint();
        }
    }
    ui.add_space(16.0);
    let lacks = "What a recording that you have lacks, and the line for it: `vramscope doctor FILE`";
    label::rich_paragraph(ui, lacks, Type::Body, t.text2, t.text1);
}

/// Draws a recipe. Before its code it shows the line that the recording lacks, when that is a different one.
fn one(ui: &mut Ui, t: &Tokens, recipe: &Recipe, line: Option<&str>) {
    label::paragraph(ui, recipe.name, Type::LeadStrong, t.text1);
    ui.add_space(6.0);
    let well = |ui: &mut Ui, code: &str, is_python: bool| {
        let well = CodeWell::new(code).copy(true);
        if is_python { well.python() } else { well }.show(ui);
        ui.add_space(6.0);
    };
    if let Some(line) = line.filter(|line| !recipe.code.contains(line)) {
        label::paragraph(ui, "This line records what is missing here:", Type::Body, t.text1);
        ui.add_space(4.0);
        well(ui, line, recipe.is_python);
        label::paragraph(ui, "In a whole program, or in its place:", Type::Body, t.text2);
        ui.add_space(4.0);
    }
    well(ui, recipe.code, recipe.is_python);
    label::rich_paragraph(ui, recipe.text, Type::Body, t.text2, t.text1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::diagnose::limits::RECORD;
    use vramscope_core::diagnose::source_limits::{NO_STEPS, NOT_WATCHED};

    #[test]
    fn a_line_leads_to_the_recipe_it_belongs_to() {
        let name = |line: &str| RECIPES[recipe_of(line)].name;
        assert_eq!(name(RECORD), "Plain PyTorch");
        assert_eq!(name("torch.xpu.memory._dump_snapshot(\"snapshot.pickle\")"), "Plain PyTorch");
        assert_eq!(name(NO_STEPS.1), "Plain PyTorch");
        assert_eq!(name(NOT_WATCHED.1), "A whole machine, live");
        assert_eq!(name("torch.profiler.profile(profile_memory=True, with_stack=True)"), "A profiler trace");
        assert_eq!(name("jax.profiler.save_device_memory_profile(\"memory.prof\")"), "JAX");
        assert_eq!(name("torch._C._cuda_attach_out_of_memory_observer(observer)"), "Any program, when it fails");
        assert_eq!(name("vramscope run --at-oom snapshots train.py"), "Any program, when it fails");
    }
}
