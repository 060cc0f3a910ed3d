"""habits.py OUT NAME bug|ok: habits that cost memory and look harmless; each with its mended twin; truth of peaks."""
import json, os, sys, traceback
import torch, torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from twins import D, prog, run

class Block(nn.Module):
    def __init__(s, d, h=8, act=F.gelu):
        super().__init__()
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.qkv, s.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        s.up, s.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        s.h, s.act = h, act

    def forward(s, x):
        B, T, C = x.shape
        q, k, v = s.qkv(s.n1(x)).view(B, T, 3, s.h, C // s.h).permute(2, 0, 3, 1, 4)
        x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))
        return x + s.down(s.act(s.up(s.n2(x))))

class LM(nn.Module):
    def __init__(s, V=16000, d=512, L=6, act=F.gelu):
        super().__init__()
        s.emb = nn.Embedding(V, d)
        s.blocks = nn.ModuleList([Block(d, act=act) for _ in range(L)])
        s.norm = nn.LayerNorm(d)
        s.head = nn.Linear(d, V, bias=False)

    def body(s, x):
        h = s.emb(x)
        for b in s.blocks:
            h = b(h)
        return s.norm(h)

    def forward(s, x):
        return s.head(s.body(x))

def tokens(B, T, V=16000):
    x = torch.randint(0, V, (B, T + 1), device=D)
    return x[:, :-1], x[:, 1:].reshape(-1)

def train(m, opt, loss_of, steps=5):
    for i in range(steps):
        loss = loss_of(m)
        opt.zero_grad()
        loss.backward()
        opt.step()


@prog
def hand_ce(bug):
    """Cross entropy written by hand: softmax, log, gather."""
    m = LM(L=4).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    def loss_of(m):
        x, y = tokens(8, 256)
        o = m(x).view(-1, 16000)
        if bug:
            p = torch.softmax(o, -1)
            return -torch.log(p + 1e-9).gather(1, y[:, None]).mean()
        return F.cross_entropy(o, y)
    train(m, opt, loss_of)

@prog
def relu_copy(bug):
    """Convolutions with ReLU that is not in place."""
    layers, c = [], 3
    for k in range(8):
        layers += [nn.Conv2d(c, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=not bug)]; c = 64
    m = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(D)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    def loss_of(m):
        return F.cross_entropy(m(torch.randn(16, 3, 192, 192, device=D)), torch.randint(0, 10, (16,), device=D))
    train(m, opt, loss_of)

@prog
def gan_detach(bug):
    """The discriminator's step sees the generated images with the generator's graph."""
    class G(nn.Module):
        def __init__(s):
            super().__init__()
            s.net = nn.Sequential(nn.ConvTranspose2d(64, 256, 4, 4), nn.BatchNorm2d(256), nn.ReLU(), nn.ConvTranspose2d(256, 128, 4, 4), nn.BatchNorm2d(128), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, 4), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 3, 3, padding=1), nn.Tanh())
        def forward(s, z): return s.net(z)
    class Disc(nn.Module):
        def __init__(s):
            super().__init__()
            s.net = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(128, 1, 4, 2, 1))
        def forward(s, x): return s.net(x)
    g, d = G().to(D), Disc().to(D)
    og, od = torch.optim.Adam(g.parameters(), 1e-4), torch.optim.Adam(d.parameters(), 1e-4)
    bce = F.binary_cross_entropy_with_logits
    for i in range(6):
        real = torch.randn(64, 3, 64, 64, device=D)
        fake = g(torch.randn(64, 64, 1, 1, device=D))
        a, b = d(real), d(fake if bug else fake.detach())
        ld = bce(a, torch.ones_like(a)) + bce(b, torch.zeros_like(b))
        od.zero_grad(); ld.backward(); od.step()
        if bug: fake = g(torch.randn(64, 64, 1, 1, device=D))
        b = d(fake); lg = bce(b, torch.ones_like(b))
        og.zero_grad(); lg.backward(); og.step()

@prog
def resume_ckpt(bug):
    """A run is resumed; the loaded checkpoint stays on the GPU while it trains."""
    m = torchvision.models.resnet101(num_classes=100); opt = torch.optim.Adam(m.parameters(), 1e-4)
    for p in m.parameters(): p.grad = torch.zeros_like(p)
    opt.step(); opt.zero_grad()
    torch.save({'model': m.state_dict(), 'opt': opt.state_dict()}, f'/tmp/ckpt_{os.getpid()}.pt')
    m = torchvision.models.resnet101(num_classes=100).to(D); opt = torch.optim.Adam(m.parameters(), 1e-4)
    ck = torch.load(f'/tmp/ckpt_{os.getpid()}.pt', map_location=D if bug else 'cpu')
    m.load_state_dict(ck['model']); opt.load_state_dict(ck['opt'])
    def loss_of(m):
        return F.cross_entropy(m(torch.randn(16, 3, 160, 160, device=D)), torch.randint(0, 100, (16,), device=D))
    train(m, opt, loss_of)
    ck.clear()

@prog
def load_peak(bug):
    """Weights are loaded to the GPU beside the model's own; the peak is the loading."""
    m = LM(V=32000, d=1024, L=12)
    torch.save(m.state_dict(), f'/tmp/w_{os.getpid()}.pt')
    m = m.to(D).eval()
    sd = torch.load(f'/tmp/w_{os.getpid()}.pt', map_location=D if bug else 'cpu')
    m.load_state_dict(sd); del sd
    with torch.inference_mode():
        for i in range(8):
            m(torch.randint(0, 32000, (2, 128), device=D)).argmax(-1).cpu()

@prog
def prefill_logits(bug):
    """Scores of every position of the prompt, where only the last is read."""
    m = LM(V=50000, d=512, L=6).to(D).eval()
    with torch.inference_mode():
        for i in range(6):
            x = torch.randint(0, 50000, (8, 512), device=D)
            o = m(x)[:, -1] if bug else m.head(m.body(x)[:, -1])
            o.softmax(-1).argmax(-1).cpu()

@prog
def ckpt_whole(bug):
    """The whole body is one checkpoint, so that backward makes everything at once."""
    m = LM(V=4000, L=12).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    def body(m, x):
        if bug: return checkpoint(m.body, x, use_reentrant=False)
        h = m.emb(x)
        for b in m.blocks: h = checkpoint(b, h, use_reentrant=False)
        return m.norm(h)
    def loss_of(m):
        x, y = tokens(16, 256, 4000)
        return F.cross_entropy(m.head(body(m, x)).view(-1, 4000), y)
    train(m, opt, loss_of)

@prog
def retain_grad(bug):
    """Code for debugging keeps every layer's output and its gradient."""
    m = LM(V=4000, L=8).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(5):
        x, y = tokens(16, 256, 4000); h = m.emb(x); kept = []
        for b in m.blocks:
            h = b(h)
            if bug: h.retain_grad(); kept.append(h)
            else: kept.append(h.detach().norm())
        loss = F.cross_entropy(m.head(m.norm(h)).view(-1, 4000), y)
        opt.zero_grad(); loss.backward(); opt.step()
        [k.grad.norm().item() for k in kept] if bug else [k.item() for k in kept]
        del kept, h, loss

class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x); y = x * s
        ctx.save_for_backward(x, s, y)
        return y * 1.0

    @staticmethod
    def backward(ctx, g):
        x, s, y = ctx.saved_tensors
        return g * (y + s * (1 - y))

@prog
def custom_fn(bug):
    """An activation of one's own saves three tensors for each layer."""
    m = LM(V=4000, L=8, act=Swish.apply if bug else F.silu).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    def loss_of(m):
        x, y = tokens(16, 256, 4000)
        return F.cross_entropy(m(x).view(-1, 4000), y)
    train(m, opt, loss_of)

@prog
def ddp_buckets(bug):
    """DDP keeps the gradients and its buckets, two copies."""
    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(20000 + os.getpid() % 20000), RANK='0', WORLD_SIZE='1')
    torch.distributed.init_process_group('nccl')
    m = LM(V=16000, d=768, L=8).to(D)
    m = nn.parallel.DistributedDataParallel(m, device_ids=[0], gradient_as_bucket_view=not bug)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    def loss_of(m):
        x, y = tokens(4, 128)
        return F.cross_entropy(m(x).view(-1, 16000), y)
    train(m, opt, loss_of)

@prog
def bench_workspace(bug):
    """cudnn.benchmark tries algorithms with workspaces of gigabytes."""
    torch.backends.cudnn.benchmark = bug
    m = torchvision.models.vgg16(num_classes=100).to(D); opt = torch.optim.SGD(m.parameters(), 0.1)
    def loss_of(m):
        return F.cross_entropy(m(torch.randn(32, 3, 224, 224, device=D)), torch.randint(0, 100, (32,), device=D))
    train(m, opt, loss_of, 4)

@prog
def onehot_dice(bug):
    """A dice loss on one-hot labels in float and softmax, where labels could be compared class by class."""
    m = torchvision.models.segmentation.fcn_resnet50(num_classes=40, weights=None, weights_backbone=None).to(D)
    opt = torch.optim.SGD(m.parameters(), 0.01)
    def loss_of(m):
        x, y = torch.randn(8, 3, 256, 256, device=D), torch.randint(0, 40, (8, 256, 256), device=D)
        p = m(x)['out'].softmax(1)
        if bug:
            t = F.one_hot(y, 40).permute(0, 3, 1, 2).float()
            return 1 - (2 * (p * t).sum((2, 3)) / ((p + t).sum((2, 3)) + 1)).mean()
        inter = torch.zeros(8, 40, device=D).scatter_add(1, y.flatten(1), p.gather(1, y[:, None]).flatten(1))
        count = torch.zeros(8, 40, device=D).scatter_add(1, y.flatten(1), torch.ones_like(y.flatten(1), dtype=torch.float))
        return 1 - (2 * inter / (p.sum((2, 3)) + count + 1)).mean()
    train(m, opt, loss_of, 4)

run()
os._exit(0)  # NCCL's threads would keep it
