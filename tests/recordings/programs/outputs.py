"""outputs.py OUT NAME bug|ok: outputs that are kept or never read, and more; each with its mended twin; truth of peaks."""
import contextlib, copy, gc, json, os, sys, time, traceback
import torch, torchvision, timm, transformers
from torch import nn
from torch.nn import functional as F
from twins import D, LM, Block, lm_step, prog, run


@prog
def logits_last(bug):
    """A reward model needs the last position only; the head runs over all."""
    m = LM(V=16000, L=4).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(5):
        x = torch.randint(0, 16000, (16, 512), device=D); y = torch.randint(0, 16000, (16,), device=D)
        h = m.emb(x) + m.pos[:512]
        for bl in m.blocks: h = bl(h)
        o = m.head(m.norm(h))[:, -1] if bug else m.head(m.norm(h)[:, -1])
        loss = F.cross_entropy(o, y); opt.zero_grad(); loss.backward(); opt.step()

@prog
def zero_before_step(bug):
    """zero_grad() between backward() and step(): nothing is ever trained."""
    m = torchvision.models.resnet18(num_classes=100).to(D); opt = torch.optim.Adam(m.parameters(), 1e-3)
    for i in range(6):
        x, y = torch.randn(64, 3, 160, 160, device=D), torch.randint(0, 100, (64,), device=D)
        loss = F.cross_entropy(m(x), y)
        if bug: loss.backward(); opt.zero_grad(); opt.step()
        else: opt.zero_grad(); loss.backward(); opt.step()

@prog
def val_cat(bug):
    """Validation keeps dense predictions of all batches on the GPU for one metric at the end."""
    m = torchvision.models.segmentation.fcn_resnet50(num_classes=21, weights=None, weights_backbone=None).to(D)
    opt = torch.optim.SGD(m.parameters(), 0.01)
    for e in range(2):
        m.train()
        for i in range(3):
            x, y = torch.randn(4, 3, 256, 256, device=D), torch.randint(0, 21, (4, 256, 256), device=D)
            loss = F.cross_entropy(m(x)['out'], y); opt.zero_grad(); loss.backward(); opt.step()
        m.eval(); preds = []
        with torch.no_grad():
            for i in range(40):
                p = m(torch.randn(4, 3, 256, 256, device=D))['out']
                preds.append(p if bug else p.argmax(1).cpu())
        (torch.cat(preds).argmax(1) if bug else torch.cat(preds)).float().mean(); del preds

@prog
def dense_embedding(bug):
    """The gradient of a large table is dense though a batch touches a few rows."""
    emb = nn.Embedding(2_000_000, 64, sparse=not bug).to(D); head = nn.Linear(64, 1).to(D)
    o1 = torch.optim.SGD(list(emb.parameters()), 0.1); o2 = torch.optim.SGD(head.parameters(), 0.1)
    for i in range(6):
        ids = torch.randint(0, 2_000_000, (4096, 20), device=D)
        loss = head(emb(ids).mean(1)).pow(2).mean()
        o1.zero_grad(); o2.zero_grad(); loss.backward(); o1.step(); o2.step()

@prog
def double_forward(bug):
    """The model runs a second time for the accuracy, with a graph."""
    m = torchvision.models.resnet34(num_classes=100).to(D); opt = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(6):
        x, y = torch.randn(64, 3, 160, 160, device=D), torch.randint(0, 100, (64,), device=D)
        o = m(x); loss = F.cross_entropy(o, y)
        acc = ((m(x) if bug else o).argmax(1) == y).float().mean()
        opt.zero_grad(); loss.backward(); opt.step(); acc.item()

@prog
def input_grad(bug):
    """Inputs require gradients although nobody reads them."""
    m = nn.Sequential(*[nn.Sequential(nn.Conv2d(3 if k == 0 else 32, 32, 3, padding=1), nn.ReLU()) for k in range(6)], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(D)
    if bug: pass
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(5):
        x = torch.randn(16, 3, 512, 512, device=D, requires_grad=bug); y = torch.randint(0, 10, (16,), device=D)
        loss = F.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()

@prog
def mask_repeat(bug):
    """An additive mask is repeated for each head and batch."""
    m = LM(V=4000, L=4).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    B, T = 16, 512
    for i in range(5):
        x = torch.randint(0, 4000, (B, T), device=D)
        mask = torch.full((T, T), float('-inf'), device=D).triu(1)
        if bug: mask = mask.repeat(B, 8, 1, 1)
        h = m.emb(x) + m.pos[:T]
        for bl in m.blocks:
            q, k, v = bl.qkv(bl.n1(h)).view(B, T, 3, 8, 64).permute(2, 0, 3, 1, 4)
            h = h + bl.o(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(B, T, 512))
            h = h + bl.down(F.gelu(bl.up(bl.n2(h))))
        loss = F.cross_entropy(m.head(m.norm(h)).view(-1, 4000), x.view(-1)); opt.zero_grad(); loss.backward(); opt.step()

@prog
def pairwise_expand(bug):
    """Distances of all pairs by broadcasting [n, 1, d] against [1, n, d]."""
    m = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(D); opt = torch.optim.Adam(m.parameters(), 1e-3)
    for i in range(5):
        z = m(torch.randn(1500, 64, device=D))
        d = (z[:, None] - z[None]).pow(2).sum(-1) if bug else torch.cdist(z, z).pow(2)
        loss = d.mean(); opt.zero_grad(); loss.backward(); opt.step()

@prog
def double_metric(bug):
    """A metric takes the logits in float64."""
    m = LM(V=16000, L=4).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(5):
        loss, o = lm_step(m, opt, B=8, T=256)
        with torch.no_grad():
            p = o.double().softmax(-1) if bug else o.amax(-1)
            p.max().item()
        del o, p, loss

@prog
def accum_outputs(bug):
    """Outputs of all micro-batches are kept to the end of the accumulation."""
    m = LM(V=16000, L=4).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for s in range(3):
        opt.zero_grad(); outs = []
        for k in range(8):
            x = torch.randint(0, 16000, (4, 257), device=D)
            o = m(x[:, :-1]); loss = F.cross_entropy(o.view(-1, 16000), x[:, 1:].reshape(-1)) / 8
            loss.backward(); outs.append(o if bug else o.argmax(-1).detach())
        opt.step(); torch.stack([q.float().mean() for q in outs]).mean().item()

run()
