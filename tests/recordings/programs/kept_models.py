"""kept_models.py OUT: tries four learning rates and keeps each model with its gradients and its optimizer."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
kept = []
x, y = torch.randn(8192, 1024, device="cuda"), torch.randint(0, 10, (8192,), device="cuda")
for rate in (1e-2, 1e-3, 1e-4, 1e-5):
    layers = [nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for _ in range(3):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    kept.append((loss.item(), model, optimizer))
torch.cuda.synchronize()
torch.cuda.memory._dump_snapshot(f"{sys.argv[1]}/kept_models.pickle")
