"""derivatives.py OUT: programs that differentiate more than once, each recorded from the start."""
import sys

import torch
from torch import nn
from torch.nn import functional as F

out = sys.argv[1]


def hessian():
    """Three rounds of power iteration: four Hessian-vector products go through one graph, no optimizer steps."""
    layers = [nn.Linear(512, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1)]
    model = nn.Sequential(*layers).cuda()
    weights = list(model.parameters())
    x, y = torch.randn(20000, 512, device="cuda"), torch.randn(20000, 1, device="cuda")
    for _ in range(3):
        loss = F.mse_loss(model(x), y)
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        vectors = [torch.randn_like(w) for w in weights]
        for _ in range(4):
            product = sum((g * v).sum() for g, v in zip(gradients, vectors))
            vectors = torch.autograd.grad(product, weights, retain_graph=True)
            norm = sum((v * v).sum() for v in vectors).sqrt()
            vectors = [v / norm for v in vectors]


def penalty():
    """A critic with a gradient penalty. The first lines leave the library's workspaces, made before the history as in a notebook;
    the critic's activations are as large as these."""
    layers = []
    for inputs, outputs in [(3, 128), (128, 256), (256, 512)]:
        layers += [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.LeakyReLU(0.2)]
    critic = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 64, 1)).cuda()
    optimizer = torch.optim.Adam(critic.parameters(), 1e-4)
    for _ in range(4):
        x = torch.randn(256, 3, 64, 64, device="cuda", requires_grad=True)
        (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        loss = critic(torch.randn(256, 3, 64, 64, device="cuda")).mean() + (gradient.flatten(1).norm(dim=1) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


a = torch.randn(1024, 1024, device="cuda", requires_grad=True)
F.linear(a, a, a[0]).sum().backward()
del a
for program in (hessian, penalty):
    torch.cuda.empty_cache()
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    program()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(f"{out}/{program.__name__}.pickle")
    torch.cuda.memory._record_memory_history(enabled=None)
