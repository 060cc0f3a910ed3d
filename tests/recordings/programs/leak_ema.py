import copy
import os
import timm
import torch
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = timm.create_model("resnet10t", pretrained=False, num_classes=10).to(device)
T.model(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
T.opt(optimizer)
averages = []
for step in range(8):
    T.step(step)
    x, y = torch.randn(16, 3, 64, 64).to(device), torch.randint(0, 10, (16,)).to(device)
    T.label("inputs", [x, y])
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
    if not LEAK:
        averages.clear()
    averages.append(copy.deepcopy(model).requires_grad_(False))  # LEAK
    T.at("step_end", step)
T.finish()
