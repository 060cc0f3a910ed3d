import torch
from transformers import GPT2Config, GPT2LMHeadModel
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = GPT2LMHeadModel._from_config(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=8192, n_positions=256, use_cache=False), attn_implementation="eager").to(device)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=False)
T.opt(optimizer)
T.at("loaded")
accumulate = 4
for i in range(16):
    step, part = divmod(i, accumulate)
    if i == 8:
        T.mid()
    if part == 0:
        T.step(step)
    T.microstep(i)
    T.phase("input", step)
    ids = torch.randint(0, 8192, (4, 192)).to(device)
    T.phase("forward", step)
    loss = model(input_ids=ids, labels=ids).loss / accumulate
    T.at("forward_end", step, inputs=ids, outputs=loss)
    T.phase("backward", step)
    loss.backward()
    T.at("backward_end", step, inputs=ids, outputs=loss)
    if part == accumulate - 1:
        T.phase("optimizer", step)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        T.at("optimizer_end", step, inputs=ids, outputs=loss)
        optimizer.zero_grad(set_to_none=True)
        T.at("zero_grad_end", step, inputs=ids, outputs=loss)
T.finish()
