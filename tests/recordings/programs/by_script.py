"""by_script.py OUT: four programs whose weights, gradients or passes are not where a module and an optimizer put them. Lines of the
recordings are those of a longer version."""
import copy
import sys

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

D = "cuda"


def splat():
    """Weights that a script makes, as Gaussian splatting does: no module has them."""
    n = 400_000
    weights = [nn.Parameter(torch.randn(n, k, device=D)) for k in (3, 3, 45, 1, 3, 4)]
    optimizer = torch.optim.Adam([dict(params=[p], lr=1e-3) for p in weights], eps=1e-15)
    camera = torch.randn(3, 3, device=D)
    for _ in range(6):
        place, color, harmonics, opacity, scale, turn = weights
        seen = place @ camera
        shade = torch.sigmoid(color + (harmonics.view(n, 15, 3) * torch.cos(torch.arange(15, device=D))[None, :, None]).sum(1))
        size = (torch.exp(scale) * F.normalize(turn)[:, :3]).pow(2).sum(1, keepdim=True)
        alpha = torch.sigmoid(opacity) * torch.exp(-size)
        image = torch.zeros(65_536, 3, device=D).index_add(0, (seen[:, 0].abs() * 1000).long() % 65_536, shade * alpha)
        ((image - 0.5).abs().mean() + 1e-6 * seen.norm(dim=1).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


def half_manual():
    """fp16 weights with fp32 copies, whose gradients are cast by hand."""
    model = torchvision.models.resnet50().to(D).half()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()
    masters = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, 0.1, momentum=0.9)
    for _ in range(4):
        x, y = torch.randn(32, 3, 192, 192, device=D).half(), torch.randint(0, 1000, (32,), device=D)
        model.zero_grad()
        (F.cross_entropy(model(x).float(), y) * 1024).backward()
        for p, master in zip(model.parameters(), masters):
            master.grad = p.grad.float() / 1024
        optimizer.step()
        with torch.no_grad():
            for p, master in zip(model.parameters(), masters):
                p.copy_(master)


def graphed():
    """A model captured into CUDA graphs: its warm-up and capture run passes that are no steps."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(1024, 10)).to(D)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model = torch.cuda.make_graphed_callables(model, (torch.randn(4096, 1024, device=D),))
    for _ in range(5):
        loss = F.cross_entropy(model(torch.randn(4096, 1024, device=D)), torch.randint(0, 10, (4096,), device=D))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def dit_ema():
    """Autocast beside an average of the weights, which has no gradients and no copies."""
    layer = nn.TransformerEncoderLayer(384, 6, 1536, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 8).to(D)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for _ in range(5):
        x = torch.randn(32, 256, 384, device=D)
        with torch.autocast(D, torch.bfloat16):
            loss = F.mse_loss(model(x).float(), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(average.parameters(), model.parameters()):
                p.lerp_(q, 0.001)


for program in (splat, half_manual, graphed, dit_ema):
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    program()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(f"{sys.argv[1]}/{program.__name__}.python.pickle")
    torch.cuda.memory._record_memory_history(enabled=None)
