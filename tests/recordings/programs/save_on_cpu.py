import torch
from transformers import GPT2Config, GPT2LMHeadModel
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=8192, n_positions=256, use_cache=False)).to(device)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
T.opt(optimizer)
T.at("loaded")
for step in range(5):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    ids = torch.randint(0, 8192, (8, 256)).to(device)
    T.phase("forward", step)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = model(input_ids=ids, labels=ids).loss
    T.at("forward_end", step, inputs=ids, outputs=loss)
    T.phase("backward", step)
    loss.backward()
    T.at("backward_end", step, inputs=ids, outputs=loss)
    T.phase("optimizer", step)
    optimizer.step()
    T.at("optimizer_end", step, inputs=ids, outputs=loss)
    optimizer.zero_grad()
T.finish()
