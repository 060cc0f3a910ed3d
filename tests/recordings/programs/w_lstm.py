import torch
import torch.nn as nn
from truth import T


class Cell(nn.Module):
    """A recurrent loop inside forward."""

    def __init__(self, d):
        super().__init__()
        self.x, self.h = nn.Linear(d, 4 * d), nn.Linear(d, 4 * d, bias=False)

    def forward(self, x, h, c):
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class Model(nn.Module):
    def __init__(self, v=2048, d=256):
        super().__init__()
        self.emb, self.cell, self.out = nn.Embedding(v, d), Cell(d), nn.Linear(d, v)

    def forward(self, ids):
        x = self.emb(ids)
        h = c = x.new_zeros(x.shape[0], x.shape[2])
        hs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], h, c)
            hs.append(h)
        return self.out(torch.stack(hs, 1))


T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = Model().to(device)
T.model(model)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
T.opt(optimizer)
T.at("loaded")
for step in range(3):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    ids = torch.randint(0, 2048, (32, 25)).to(device)
    optimizer.zero_grad()
    T.phase("forward", step)
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    T.at("forward_end", step, inputs=ids, outputs=[logits, loss])
    T.phase("backward", step)
    loss.backward()
    T.at("backward_end", step, inputs=ids, outputs=[logits, loss])
    T.phase("optimizer", step)
    optimizer.step()
    T.at("optimizer_end", step, inputs=ids, outputs=[logits, loss])
T.finish()
