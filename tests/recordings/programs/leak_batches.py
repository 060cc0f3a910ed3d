import os
import torch
import torchvision
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torchvision.models.resnet18(num_classes=10).to(device)
T.model(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
T.opt(optimizer)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 10 * 16

    def __getitem__(self, i):
        return torch.randn(3, 64, 64), i % 10


hard_examples = []
for step, (x, y) in enumerate(torch.utils.data.DataLoader(Data(), batch_size=16, pin_memory=device == "cuda")):
    T.step(step)
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    T.label("inputs", [x, y])
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if LEAK:
        hard_examples.append((loss.item(), x, y))  # LEAK
    else:
        hard_examples.append((loss.item(), x.cpu(), y.cpu()))
    T.at("step_end", step)
T.finish()
