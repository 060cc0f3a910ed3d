//! How to record with each framework, to copy.

use egui::Ui;

use crate::app::theme::{Tokens, Type};
use crate::app::widgets::code::CodeWell;
use crate::app::widgets::label;

struct Recipe {
    name: &'static str,
    code: &'static str,
    is_python: bool,
    text: &'static str,
}

const RECIPES: [Recipe; 7] = [
    Recipe {
        name: "Any program, when it fails",
        code: "vramscope run --at-oom snapshots train.py\nvramscope run --at-oom snapshots torchrun --nproc-per-node 8 train.py",
        is_python: false,
        text: "The program needs no change. Each rank leaves a snapshot when memory runs out, at an error that nobody catches, and when it is \
               ended; `vramscope snap PID` asks for one. It keeps the newest 100,000 events.",
    },
    Recipe {
        name: "Plain PyTorch",
        code: "import vramscope\n\nwith vramscope.record(\"train.pickle\"):          # before the model is built\n    \
               for batch in vramscope.steps(loader):       # exact steps\n        train(batch)",
        is_python: true,
        text: "A few steps are enough. Without the package the welcome page has the same in PyTorch's own calls.",
    },
    Recipe {
        name: "Hugging Face Trainer",
        code: "import vramscope\n\ntrainer = Trainer(..., callbacks=[vramscope.HuggingFaceCallback(\"snapshots\", steps=(1, 4))])",
        is_python: true,
        text: "Marks each step, writes a snapshot after steps 1 to 3, and one when memory runs out.",
    },
    Recipe {
        name: "Lightning",
        code: "import vramscope\n\ntrainer = Trainer(..., callbacks=[vramscope.LightningCallback(\"snapshots\", steps=(1, 4))])",
        is_python: true,
        text: "The same for `lightning` and `pytorch_lightning`.",
    },
    Recipe {
        name: "Accelerate",
        code: "import vramscope\n\naccelerator = Accelerator(log_with=[vramscope.AccelerateTracker(\"snapshots\", steps=(1, 4))])\n\
               accelerator.init_trackers(\"run\")",
        is_python: true,
        text: "A step ends with `accelerator.log`. For a program that is to stay as it is: `vramscope run --at-oom snapshots accelerate launch \
               train.py`",
    },
    Recipe {
        name: "torchtitan",
        code: "vramscope run --at-oom snapshots torchrun --nproc-per-node 8 -m torchtitan.train --job.config_file train.toml",
        is_python: false,
        text: "Or let torchtitan write them, with `enable_memory_snapshot = true` below `[profiling]`; open the folder afterwards, and all ranks \
               stand side by side.",
    },
    Recipe {
        name: "vLLM",
        code: "vramscope run --at-oom snapshots vllm serve MODEL",
        is_python: false,
        text: "The engine runs in a process of its own, which is caught too. Weights and the cache of keys and values are taken at the start, so \
               a snapshot by `vramscope snap PID` shows them.",
    },
];

pub(super) fn draw(ui: &mut Ui, t: &Tokens) {
    for (i, recipe) in RECIPES.iter().enumerate() {
        if i > 0 {
            ui.add_space(18.0);
        }
        label::paragraph(ui, recipe.name, Type::LeadStrong, t.text1);
        ui.add_space(6.0);
        let well = CodeWell::new(recipe.code).copy(true);
        if recipe.is_python { well.python() } else { well }.show(ui);
        ui.add_space(6.0);
        label::rich_paragraph(ui, recipe.text, Type::Body, t.text2, t.text1);
    }
    ui.add_space(16.0);
    let lacks = "What a recording that you have lacks, and the line for it: `vramscope doctor FILE`";
    label::rich_paragraph(ui, lacks, Type::Body, t.text2, t.text1);
}
