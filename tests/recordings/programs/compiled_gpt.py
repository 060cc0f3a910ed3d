import torch
import torch.nn as nn
import torch.nn.functional as F
from truth import T


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.n1, self.n2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, s, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, d))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, v=8192, d=256, n=3):
        super().__init__()
        self.tok, self.pos = nn.Embedding(v, d), nn.Embedding(256, d)
        self.blocks = nn.ModuleList(Block(d, 4) for _ in range(n))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, v, bias=False)

    def forward(self, ids, labels):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for b in self.blocks:
            x = b(x)
        return F.cross_entropy(self.head(self.norm(x))[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
raw = GPT().to(device)
model = torch.compile(raw)
T.model(raw)
optimizer = torch.optim.AdamW(raw.parameters(), lr=3e-4)
T.opt(optimizer)
T.at("loaded")
for step in range(6):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    ids = torch.randint(0, 8192, (8, 256)).to(device)
    T.phase("forward", step)
    loss = model(ids, ids)
    T.at("forward_end", step, inputs=ids, outputs=loss)
    T.phase("backward", step)
    loss.backward()
    T.at("backward_end", step, inputs=ids, outputs=loss)
    T.phase("optimizer", step)
    optimizer.step()
    T.at("optimizer_end", step, inputs=ids, outputs=loss)
    optimizer.zero_grad()
    T.at("zero_grad_end", step, inputs=ids, outputs=loss)
T.finish()
