import torch
import torch.nn as nn
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
T.model(net)


class Adam:
    def __init__(self, params, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8):
        self.params, self.lr, self.b1, self.b2, self.eps, self.t = list(params), lr, b1, b2, eps, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]
        self.state = {"m": self.m, "v": self.v}

    @torch.no_grad()
    def update(self):
        self.t += 1
        for i, p in enumerate(self.params):
            g = p.grad
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * g
            self.v[i] = self.b2 * self.v[i] + (1 - self.b2) * g * g
            mh = self.m[i] / (1 - self.b1**self.t)
            vh = self.v[i] / (1 - self.b2**self.t)
            p -= self.lr * mh / (vh.sqrt() + self.eps)
            p.grad = None


adam = Adam(net.parameters())
T.opt(adam)
T.at("loaded")
for step in range(3):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    x, y = torch.randn(512, 784).to(device), torch.randint(0, 10, (512,)).to(device)
    T.phase("forward", step)
    loss = nn.functional.cross_entropy(net(x), y)
    T.at("forward_end", step, inputs=[x, y], outputs=loss)
    T.phase("backward", step)
    loss.backward()
    T.at("backward_end", step, inputs=[x, y], outputs=loss)
    T.phase("optimizer", step)
    adam.update()
    T.at("optimizer_end", step, inputs=[x, y], outputs=loss)
T.finish()
