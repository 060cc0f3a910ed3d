import os
import torch
import torch.nn as nn
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Monitor(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        y = x.relu()
        if not LEAK:
            self.seen.clear()
        self.seen.append(y)  # LEAK
        return y


model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), Monitor(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), Monitor(),
                      nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)).to(device)
T.model(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
T.opt(optimizer)
for step in range(10):
    T.step(step)
    x, y = torch.randn(16, 3, 64, 64).to(device), torch.randint(0, 10, (16,)).to(device)
    T.label("inputs", [x, y])
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    T.at("step_end", step)
T.finish()
