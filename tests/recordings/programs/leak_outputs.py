import os
import torch
import torchvision
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=8).to(device)
T.model(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
T.opt(optimizer)
predictions = []
for step in range(9):
    T.step(step)
    x, y = torch.randn(4, 3, 128, 128).to(device), torch.randint(0, 8, (4, 128, 128)).to(device)
    T.label("inputs", [x, y])
    optimizer.zero_grad()
    out = model(x)["out"]
    torch.nn.functional.cross_entropy(out, y).backward()
    optimizer.step()
    if LEAK:
        predictions.append(out)  # LEAK
    else:
        predictions.append(out.argmax(1).float().mean().item())
    T.at("step_end", step)
T.finish()
