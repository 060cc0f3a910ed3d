import os
import timm
import torch
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, img_size=96, depth=4).to(device)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
T.opt(optimizer)
features = []


def remember(module, args, output):
    if LEAK:
        features.append(output.detach())  # LEAK
    else:
        features.append(output.detach().norm().item())


model.blocks[2].register_forward_hook(remember)
for step in range(10):
    T.step(step)
    x, y = torch.randn(16, 3, 96, 96).to(device), torch.randint(0, 10, (16,)).to(device)
    T.label("inputs", [x, y])
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    T.at("step_end", step)
T.finish()
