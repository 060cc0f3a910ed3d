import torch
from transformers import GPT2Config, GPT2LMHeadModel
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=8192, n_positions=256)).to(device)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
T.opt(optimizer)
T.at("loaded")


def train_step(step):
    T.phase("input", step)
    ids = torch.randint(0, 8192, (8, 256)).to(device)
    T.phase("forward", step)
    out = model(input_ids=ids, labels=ids)
    loss = out.loss
    T.at("forward_end", step, inputs=ids, outputs=out)
    T.phase("backward", step)
    loss.backward()
    T.at("backward_end", step, inputs=ids, outputs=out)
    T.phase("optimizer", step)
    optimizer.step()
    T.at("optimizer_end", step, inputs=ids, outputs=out)
    T.phase("zero_grad", step)
    optimizer.zero_grad()
    T.at("zero_grad_end", step, inputs=ids, outputs=out)
    return loss.detach()


for step in range(5):
    if step == 2:
        T.mid()
    T.step(step)
    train_step(step)
T.finish()
