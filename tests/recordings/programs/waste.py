"""waste.py OUT NAME bug|ok: more of what mistakes.py begins, each with its mended twin; truth of peaks."""
import contextlib, copy, gc, json, os, sys, time, traceback
import torch, torchvision, timm, transformers
from torch import nn
from torch.nn import functional as F
from twins import D, LM, Block, lm_step, prog, run


@prog
def hidden_states(bug):
    """Every step asks the model for all hidden states and keeps the output until the next."""
    cfg = transformers.GPT2Config(n_layer=8, n_embd=512, n_head=8, vocab_size=16000)
    m = transformers.GPT2LMHeadModel(cfg).to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(5):
        x = torch.randint(0, 16000, (8, 512), device=D)
        o = m(x, labels=x, output_hidden_states=bug)
        opt.zero_grad(); o.loss.backward(); opt.step()
        if not bug: del o

@prog
def attentions_out(bug):
    """An encoder in use returns the attention matrices of every layer."""
    cfg = transformers.BertConfig(num_hidden_layers=8, hidden_size=512, num_attention_heads=8, intermediate_size=2048, attn_implementation='eager' if bug else 'sdpa')
    m = transformers.BertModel(cfg).to(D).eval()
    with torch.no_grad():
        for i in range(5):
            x = torch.randint(0, 30000, (16, 512), device=D)
            o = m(x, output_attentions=bug)
            o.last_hidden_state.mean().item()
            del o

@prog
def unfrozen(bug):
    """Only the head is given to Adam, but the backbone still gets gradients."""
    m = timm.create_model('vit_base_patch16_224', num_classes=100).to(D)
    if not bug:
        for n, p in m.named_parameters():
            p.requires_grad_(n.startswith('head'))
    opt = torch.optim.AdamW(m.head.parameters(), 1e-3)
    for i in range(5):
        x, y = torch.randn(32, 3, 224, 224, device=D), torch.randint(0, 100, (32,), device=D)
        loss = F.cross_entropy(m(x), y)
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def unfrozen_lora(bug):
    """LoRA adapters are put on by hand, the base weights are not frozen."""
    class Lo(nn.Module):
        def __init__(s, base, r=8):
            super().__init__()
            s.base = base
            s.a = nn.Linear(base.in_features, r, bias=False); s.b = nn.Linear(r, base.out_features, bias=False)
        def forward(s, x): return s.base(x) + s.b(s.a(x))
    m = LM(L=8, d=768)
    if not bug: m.requires_grad_(False)
    ps = []
    for bl in m.blocks:
        bl.qkv, bl.o = Lo(bl.qkv), Lo(bl.o)
        for l in (bl.qkv, bl.o): ps += [*l.a.parameters(), *l.b.parameters()]
    m.to(D)
    opt = torch.optim.AdamW(ps, 1e-4)
    for i in range(5):
        lm_step(m, opt)

@prog
def summed_micro(bug):
    """The losses of four micro-batches are summed and one backward follows."""
    m = LM().to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(4):
        opt.zero_grad(); total = 0
        for k in range(4):
            x = torch.randint(0, 16000, (4, 257), device=D)
            loss = F.cross_entropy(m(x[:, :-1]).view(-1, 16000), x[:, 1:].reshape(-1)) / 4
            if bug: total = total + loss
            else: loss.backward()
        if bug: total.backward()
        opt.step()

@prog
def broadcast_loss(bug):
    """Predictions [B, 1] minus targets [B] make [B, B]."""
    m = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1)).to(D)
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    for i in range(8):
        x, y = torch.randn(16384, 64, device=D), torch.randn(16384, device=D)
        p = m(x)
        loss = ((p - y) ** 2).mean() if bug else ((p[:, 0] - y) ** 2).mean()
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def onehot(bug):
    """A loss by one-hot targets of the whole vocabulary."""
    m = LM(L=4).to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(5):
        x = torch.randint(0, 16000, (8, 257), device=D)
        o = m(x[:, :-1])
        if bug: loss = -(F.one_hot(x[:, 1:], 16000) * F.log_softmax(o, -1)).sum(-1).mean()
        else: loss = F.cross_entropy(o.view(-1, 16000), x[:, 1:].reshape(-1))
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def cat_results(bug):
    """Features of a data set grow by torch.cat after every batch."""
    m = torchvision.models.resnet50().to(D).eval(); m.fc = nn.Identity()
    n, B = 40, 128
    feats = torch.empty(0, 50176 // 4, device=D) if bug else torch.empty(n * B, 50176 // 4, device=D)
    with torch.no_grad():
        for i in range(n):
            x = torch.randn(B, 3, 112, 112, device=D)
            h = m.layer4(m.layer3(m.layer2(m.layer1(m.maxpool(m.relu(m.bn1(m.conv1(x)))))))).flatten(1)[:, :12544]
            if bug: feats = torch.cat([feats, h])
            else: feats[i * B:(i + 1) * B] = h

@prog
def eval_big(bug):
    """Validation runs with a batch four times as large as training's."""
    m = torchvision.models.resnet50(num_classes=100).to(D)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    for e in range(2):
        m.train()
        for i in range(4):
            x, y = torch.randn(24, 3, 160, 160, device=D), torch.randint(0, 100, (24,), device=D)
            loss = F.cross_entropy(m(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
        m.eval()
        with torch.no_grad():
            for i in range(3):
                m(torch.randn(512 if bug else 24, 3, 160, 160, device=D)).argmax(1)

@prog
def value_targets(bug):
    """Targets of a Q function are computed with their graph."""
    def net(): return nn.Sequential(nn.Linear(128, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 64)).to(D)
    q, t = net(), net()
    opt = torch.optim.Adam(q.parameters(), 1e-4)
    for i in range(8):
        s, s2, r = torch.randn(8192, 128, device=D), torch.randn(8192, 128, device=D), torch.randn(8192, device=D)
        with contextlib.nullcontext() if bug else torch.no_grad():
            y = r + 0.99 * t(s2).max(1).values
        loss = F.mse_loss(q(s).max(1).values, y)
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def penalty_graph(bug):
    """create_graph=True although no second derivative is used."""
    m = torchvision.models.resnet18(num_classes=100).to(D)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    for i in range(5):
        x, y = torch.randn(64, 3, 128, 128, device=D), torch.randint(0, 100, (64,), device=D)
        loss = F.cross_entropy(m(x), y)
        g = torch.autograd.grad(loss, list(m.parameters()), create_graph=bug)
        with torch.no_grad():
            for p, d in zip(m.parameters(), g): p -= 0.05 * d

@prog
def style_grad(bug):
    """Style transfer optimizes an image; the network's own weights get gradients."""
    m = torchvision.models.vgg16().features.to(D).eval()
    if not bug: m.requires_grad_(False)
    img = torch.randn(1, 3, 256, 256, device=D, requires_grad=True)
    opt = torch.optim.Adam([img], 0.01)
    with torch.no_grad(): target = m(torch.randn(1, 3, 256, 256, device=D))
    for i in range(6):
        loss = F.mse_loss(m(img), target)
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def tbptt(bug):
    """Hidden states are kept over windows: each backward goes through two windows as the graph is retained."""
    rnn, head = nn.GRU(512, 1024, 2, batch_first=True).to(D), nn.Linear(1024, 512).to(D)
    opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()], 1e-4)
    h, losses = None, []
    for i in range(8):
        x = torch.randn(64, 100, 512, device=D)
        if h is not None and not bug: h = h.detach()
        o, h = rnn(x, h)
        loss = F.mse_loss(head(o), x)
        opt.zero_grad(); loss.backward(retain_graph=bug)

@prog
def deep_copy_best(bug):
    """The best weights are kept by deepcopy of the model and of the optimizer, on the GPU, every epoch."""
    m = timm.create_model('convnext_tiny', num_classes=100).to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    best = []
    for e in range(4):
        for i in range(3):
            x, y = torch.randn(16, 3, 160, 160, device=D), torch.randint(0, 100, (16,), device=D)
            loss = F.cross_entropy(m(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
        if bug: best.append((copy.deepcopy(m.state_dict()), copy.deepcopy(opt.state_dict())))
        else: best = [{k: v.cpu() for k, v in m.state_dict().items()}]

@prog
def prefetch_deep(bug):
    """A loader thread puts many batches on the GPU ahead of time."""
    import collections
    m = torchvision.models.resnet18(num_classes=100).to(D)
    opt = torch.optim.SGD(m.parameters(), 0.05)
    q = collections.deque()
    for i in range(16):
        while len(q) < (12 if bug else 2): q.append((torch.randn(64, 3, 160, 160, device=D), torch.randint(0, 100, (64,), device=D)))
        x, y = q.popleft()
        loss = F.cross_entropy(m(x), y)
        opt.zero_grad(); loss.backward(); opt.step()

run()
