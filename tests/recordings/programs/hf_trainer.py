import tempfile
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from truth import T

T.begin()


class Words(torch.utils.data.Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        self.x = torch.randint(0, 8192, (n, 192), generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"input_ids": self.x[i], "labels": self.x[i]}


class Notes(TrainerCallback):
    def on_train_begin(self, args, state, control, optimizer=None, model=None, **kw):
        T.at("loaded")

    def on_step_begin(self, args, state, control, optimizer=None, **kw):
        if state.global_step == 2:
            T.mid()
        if not T.opts:
            T.opt(getattr(optimizer, "optimizer", optimizer))
        T.step(state.global_step)

    def on_pre_optimizer_step(self, args, state, control, **kw):
        T.at("backward_end", state.global_step)
        T.phase("optimizer", state.global_step)

    def on_optimizer_step(self, args, state, control, **kw):
        T.at("optimizer_end", state.global_step)
        T.phase("zero_grad", state.global_step)

    def on_step_end(self, args, state, control, **kw):
        T.at("zero_grad_end", state.global_step)
        T.phase("between", state.global_step)


class MyTrainer(Trainer):
    def compute_loss(self, model, inputs, *args, **kw):
        s = self.state.global_step
        T.phase("forward" if model.training else "evaluation", s)
        out = super().compute_loss(model, inputs, *args, **kw)
        T.at("forward_end" if model.training else "inside_evaluation", s, inputs=inputs, outputs=out)
        T.phase("backward" if model.training else "evaluation", s)
        return out


T.phase("load")
model = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, vocab_size=8192))
T.model(model)
args = TrainingArguments(output_dir=tempfile.mkdtemp(), max_steps=5, per_device_train_batch_size=8, per_device_eval_batch_size=8, eval_strategy="steps", eval_steps=4,
                         logging_steps=2, save_strategy="no", report_to="none", disable_tqdm=True, learning_rate=3e-4, seed=0, **({"use_cpu": True} if not torch.cuda.is_available() else {}))
trainer = MyTrainer(model=model, args=args, train_dataset=Words(64), eval_dataset=Words(16), callbacks=[Notes()])
trainer.train()
T.finish()
