import os
import torch
import torchvision
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torchvision.models.mobilenet_v3_small(num_classes=10).to(device)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
T.opt(optimizer)
failures = []


def train_one(x, y):
    logits = model(x)
    if y.max() > 9:
        raise ValueError("label out of range")
    loss = torch.nn.functional.cross_entropy(logits, y)
    loss.backward()
    return loss.item()


for step in range(12):
    T.step(step)
    x, y = torch.randn(8, 3, 96, 96).to(device), torch.randint(0, 10, (8,)).to(device)
    if step % 2:
        y[0] = 10  # a bad record
    T.label("inputs", [x, y])
    optimizer.zero_grad()
    try:
        train_one(x, y)
        optimizer.step()
    except ValueError as e:
        if LEAK:
            failures.append(e)  # LEAK
        else:
            failures.append(str(e))
    T.at("step_end", step)
T.finish()
