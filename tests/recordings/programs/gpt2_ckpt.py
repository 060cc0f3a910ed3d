import torch
from transformers import GPT2Config, GPT2LMHeadModel
from torch.utils.checkpoint import set_checkpoint_early_stop
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=256, n_head=4, vocab_size=8192, n_positions=256, use_cache=False)).to(device)
model.gradient_checkpointing_enable({"use_reentrant": False})
model.train()
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
T.opt(optimizer)
T.at("loaded")
# an instant inside backward, where recomputed activations live: after the gradient of a middle block's last parameter
now = {"step": 0}
model.transformer.h[3].mlp.c_fc.weight.register_post_accumulate_grad_hook(lambda p: T.at("inside_backward", now["step"]))
for step in range(5):
    if step == 2:
        T.mid()
    now["step"] = step
    T.step(step)
    T.phase("input", step)
    ids = torch.randint(0, 8192, (8, 256)).to(device)
    T.phase("forward", step)
    with set_checkpoint_early_stop(False):
        out = model(input_ids=ids, labels=ids)
    T.at("forward_end", step, inputs=ids, outputs=out)
    T.phase("backward", step)
    out.loss.backward()
    T.at("backward_end", step, inputs=ids, outputs=out)
    T.phase("optimizer", step)
    optimizer.step()
    T.at("optimizer_end", step, inputs=ids, outputs=out)
    optimizer.zero_grad()
T.finish()
