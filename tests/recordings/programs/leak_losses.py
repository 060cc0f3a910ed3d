import os
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=192, n_head=4, vocab_size=4096, n_positions=128, use_cache=False)).to(device)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
T.opt(optimizer)
total = 0.0
for step in range(10):
    T.step(step)
    ids = torch.randint(0, 4096, (8, 128)).to(device)
    T.label("inputs", ids)
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    val = torch.randint(0, 4096, (4, 128)).to(device)
    T.label("inputs", val)
    val_loss = model(input_ids=val, labels=val).loss
    if LEAK:
        total += val_loss  # LEAK
    else:
        total += val_loss.item()
        val_loss = None
    T.at("step_end", step)
print("mean", float(total) / 10)
T.finish()
