import os
import torch
import torch.nn as nn
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
critic = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.SiLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.SiLU(), nn.Conv2d(64, 128, 4, 2, 1), nn.SiLU(), nn.Flatten(), nn.Linear(128 * 16, 1)).to(device)
T.model(critic)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
T.opt(optimizer)
penalties = []
for step in range(9):
    T.step(step)
    real = torch.randn(32, 3, 32, 32).to(device).requires_grad_()
    T.label("inputs", real)
    optimizer.zero_grad()
    score = critic(real)
    (g,) = torch.autograd.grad(score.sum(), real, create_graph=True)
    penalty = ((g.flatten(1).norm(dim=1) - 1) ** 2).mean()
    (penalty * 10 - score.mean()).backward(retain_graph=LEAK)
    optimizer.step()
    if LEAK:
        penalties.append(penalty)  # LEAK
    else:
        penalties.append(penalty.detach().cpu())
    T.at("step_end", step)
T.finish()
