import os
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=4096, n_positions=128, use_cache=False)).to(device)
T.model(model)
optimizers = {}
for step in range(8):
    T.step(step)
    ids = torch.randint(0, 4096, (8, 128)).to(device)
    T.label("inputs", ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4 / (step + 1))
    if LEAK:
        optimizers[step] = optimizer  # LEAK
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    T.at("step_end", step)
T.finish()
