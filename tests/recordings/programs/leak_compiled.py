import os
import torch
import torch.nn as nn
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 512)).to(device)
T.model(model)
fast = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
T.opt(optimizer)
history = []
for step in range(10):
    T.step(step)
    x = torch.randn(1024, 256).to(device)
    T.label("inputs", x)
    optimizer.zero_grad()
    out = fast(x)
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    if LEAK:
        history.append(out)  # LEAK
    else:
        history.append(loss.item())
    T.at("step_end", step)
T.finish()
