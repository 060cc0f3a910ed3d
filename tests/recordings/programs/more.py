"""more.py OUT NAME bug|ok: eight more programs that need more memory than they must, each with a mended twin; truth of peaks."""
import torch, torchvision, transformers
from torch import nn
from torch.nn import functional as F
from twins import D, LM, prog, run


@prog
def second_pass(bug):
    """The model runs a second time for the accuracy; with a graph, or without."""
    m = torchvision.models.resnet34(num_classes=100).to(D); opt = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(6):
        x, y = torch.randn(64, 3, 160, 160, device=D), torch.randint(0, 100, (64,), device=D)
        loss = F.cross_entropy(m(x), y)
        with torch.set_grad_enabled(bug):
            acc = (m(x).argmax(1) == y).float().mean()
        opt.zero_grad(); loss.backward(); opt.step(); acc.item()

@prog
def token_logps(bug):
    """Log-probabilities of chosen tokens through a log-softmax over the whole vocabulary."""
    m = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=32000)).to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-5)
    for i in range(5):
        x = torch.randint(0, 32000, (8, 257), device=D); adv = torch.randn(8, 256, device=D)
        logits = m(x).logits[:, :-1]
        if bug:
            logp = logits.log_softmax(-1).gather(-1, x[:, 1:, None]).squeeze(-1)
        else:
            logp = torch.stack([-F.cross_entropy(l, t, reduction='none') for l, t in zip(logits, x[:, 1:])])
        loss = -(logp * adv).mean()
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def lbfgs(bug):
    """L-BFGS keeps a long history of flat copies."""
    m = nn.Sequential(nn.Linear(1024, 4096), nn.Tanh(), nn.Linear(4096, 1024)).to(D)
    opt = torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=20, history_size=100 if bug else 5)
    x, y = torch.randn(256, 1024, device=D), torch.randn(256, 1024, device=D)
    def closure():
        opt.zero_grad(); loss = F.mse_loss(m(x), y); loss.backward(); return loss
    for i in range(6): opt.step(closure)

@prog
def sample_grads(bug):
    """Gradients of each sample at once, as for differential privacy."""
    m = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 100)).to(D)
    params = dict(m.named_parameters())
    def loss_of(p, x, y): return F.cross_entropy(torch.func.functional_call(m, p, (x[None],)), y[None])
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(5):
        x, y = torch.randn(128, 1024, device=D), torch.randint(0, 100, (128,), device=D)
        total = {k: torch.zeros_like(v) for k, v in params.items()}
        for a, b in zip(x.chunk(1 if bug else 16), y.chunk(1 if bug else 16)):
            g = torch.vmap(torch.func.grad(loss_of), (None, 0, 0))({k: v.detach() for k, v in params.items()}, a, b)
            norm = torch.sqrt(sum(v.flatten(1).square().sum(1) for v in g.values())).clamp(min=1)
            for k in total: total[k] += torch.einsum('b...,b->...', g[k], 1 / norm)
            del g
        for k, p in m.named_parameters(): p.grad = total[k] / 128
        opt.step(); opt.zero_grad()

@prog
def upsampled(bug):
    """A segmentation is enlarged class by class, and then the best class is taken."""
    m = nn.Sequential(nn.Conv2d(3, 64, 7, 4, 3), nn.ReLU(), nn.Conv2d(64, 150, 3, 1, 1)).to(D).eval()
    with torch.inference_mode():
        for i in range(6):
            o = m(torch.randn(2, 3, 1024, 1024, device=D))
            if bug: p = F.interpolate(o, size=(1024, 1024), mode='bilinear').argmax(1)
            else: p = F.interpolate(o.argmax(1, keepdim=True).float(), size=(1024, 1024)).long()[:, 0]
            p.cpu(); del o, p

@prog
def beams(bug):
    """An encoder's output is repeated for each beam, in each step of the decoder."""
    m = nn.TransformerDecoderLayer(512, 8, batch_first=True).to(D).eval()
    with torch.inference_mode():
        enc = torch.randn(16, 2048, 512, device=D)
        x = torch.randn(16 * 8, 1, 512, device=D)
        for i in range(12):
            if bug: x = torch.cat([x, m(x, enc.repeat_interleave(8, 0))[:, -1:]], 1)
            else: x = torch.cat([x, torch.cat([m(a, enc[k:k + 1].expand(8, -1, -1))[:, -1:] for k, a in enumerate(x.chunk(16))])], 1)

@prog
def jacobian(bug):
    """The whole Jacobian in one pass, or in chunks of rows."""
    m = nn.Sequential(nn.Linear(512, 2048), nn.Tanh(), nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 512)).to(D)
    x = torch.randn(32, 512, device=D)
    for i in range(5):
        j = torch.func.jacrev(lambda v: m(v), chunk_size=None if bug else 16)(x)
        j.diagonal(dim1=1, dim2=3).sum().item(); del j

@prog
def all_latents(bug):
    """A sampler keeps the image of every step, and the last is used."""
    m = nn.Sequential(nn.Conv2d(4, 64, 3, 1, 1), nn.SiLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.SiLU(), nn.Conv2d(64, 4, 3, 1, 1)).to(D)
    for r in range(3):
        x = torch.randn(16, 4, 256, 256, device=D); kept = []
        with torch.no_grad():
            for t in range(50):
                x = x - 0.01 * m(x)
                if bug: kept.append(x)
        x.cpu()

run()
