import torch
from transformers import GPT2Config, GPT2LMHeadModel
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=8192, n_positions=256)).to(device)
# GPT-2's projections are Conv1D; a head of plain linear layers on top, as fine-tuning code has
head = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).to(device)
params = list(model.parameters()) + list(head.parameters())
T.model(model, head)
optimizer = torch.optim.AdamW(params, lr=3e-4)
T.opt(optimizer)
T.at("loaded")

for step in range(5):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    ids = torch.randint(0, 8192, (8, 256)).to(device)
    optimizer.zero_grad(set_to_none=True)
    T.phase("forward", step)
    with torch.autocast(device, dtype=torch.bfloat16):
        hidden = model.transformer(input_ids=ids).last_hidden_state
        logits = model.lm_head(head(hidden))
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
        T.at("forward_inside_autocast", step, inputs=ids, outputs=[logits, loss, hidden])
    T.at("forward_end", step, inputs=ids, outputs=[logits, loss, hidden])
    T.phase("backward", step)
    loss.backward()
    T.at("backward_end", step, inputs=ids, outputs=[logits, loss, hidden])
    T.phase("optimizer", step)
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    T.at("optimizer_end", step, inputs=ids, outputs=[logits, loss, hidden])
T.finish()
