"""reads.py OUT NAME bug|ok: programs that make more than they read, each with a mended twin; truth of peaks. Some twins differ in nothing that counts."""
import torch, torchvision, transformers
from torch import nn
from torch.nn import functional as F
from twins import D, LM, Block, prog, run


def llama(layers=6, width=512, vocab=32000):
    cfg = transformers.LlamaConfig(num_hidden_layers=layers, hidden_size=width, intermediate_size=3 * width, num_attention_heads=8, num_key_value_heads=8, vocab_size=vocab)
    return transformers.LlamaForCausalLM(cfg).to(D)

@prog
def decode_loop(bug):
    """A loop that generates: scores of the whole prompt, or of its last token."""
    m = llama().half().eval()
    with torch.inference_mode():
        for r in range(4):
            x = torch.randint(0, 32000, (8, 768), device=D); cache = transformers.DynamicCache()
            for t in range(10):
                o = m(x, past_key_values=cache, use_cache=True, **({} if bug else dict(logits_to_keep=1)))
                x = o.logits[:, -1:].argmax(-1)
            del o, cache

@prog
def wgan_gp(bug):
    """A gradient penalty needs create_graph; the generator's backward pass does not."""
    G = nn.Sequential(nn.Linear(128, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 3072)).to(D)
    C = nn.Sequential(nn.Linear(3072, 2048), nn.LeakyReLU(0.2), nn.Linear(2048, 2048), nn.LeakyReLU(0.2), nn.Linear(2048, 1)).to(D)
    og, oc = torch.optim.Adam(G.parameters(), 1e-4), torch.optim.Adam(C.parameters(), 1e-4)
    for i in range(8):
        real = torch.randn(4096, 3072, device=D); fake = G(torch.randn(4096, 128, device=D)).detach()
        mix = torch.lerp(real, fake, torch.rand(4096, 1, device=D)).requires_grad_()
        g, = torch.autograd.grad(C(mix).sum(), mix, create_graph=True)
        loss = C(fake).mean() - C(real).mean() + 10 * (g.norm(2, 1) - 1).square().mean()
        oc.zero_grad(); loss.backward(); oc.step()
        del g, mix, fake
        loss = -C(G(torch.randn(4096, 128, device=D))).mean()
        og.zero_grad(); loss.backward(create_graph=bug); og.step()

@prog
def pinn(bug):
    """Derivatives of a network's output are in its loss; the loss's own backward pass needs no graph."""
    m = nn.Sequential(nn.Linear(2, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1)).to(D)
    opt = torch.optim.Adam(m.parameters())
    for i in range(8):
        x = torch.rand(20000, 2, device=D, requires_grad=True)
        u = m(x)
        du, = torch.autograd.grad(u.sum(), x, create_graph=True)
        duu, = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
        loss = (du[:, 1] - duu[:, 0]).square().mean()
        opt.zero_grad(); loss.backward(create_graph=bug); opt.step()

@prog
def vmap_models(bug):
    """An ensemble of 24 small models by vmap: nothing to mend."""
    m = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to(D)
    params = {k: torch.stack([torch.randn_like(v) * 0.02 for _ in range(24)]).requires_grad_() for k, v in m.named_parameters()}
    opt = torch.optim.Adam(params.values())
    for i in range(8):
        x, y = torch.randn(4096, 256, device=D), torch.randint(0, 10, (4096,), device=D)
        o = torch.vmap(lambda p: torch.func.functional_call(m, p, (x,)))(params)
        loss = F.cross_entropy(o.flatten(0, 1), y.repeat(24))
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def bert_tuned(bug):
    """A classifier on BERT, whose vocabulary is large: nothing to mend."""
    m = transformers.BertForSequenceClassification(transformers.BertConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, intermediate_size=2048)).to(D)
    opt = torch.optim.AdamW(m.parameters(), 2e-5)
    for i in range(6):
        o = m(torch.randint(0, 30000, (16, 128), device=D), labels=torch.randint(0, 2, (16,), device=D))
        opt.zero_grad(); o.loss.backward(); opt.step()

@prog
def perplexity(bug):
    """The perplexity of a text: log-probabilities of all tokens, or of those that are there."""
    m = llama().eval()
    with torch.no_grad():
        for i in range(8):
            x = torch.randint(0, 32000, (8, 512), device=D); o = m(x).logits
            if bug: s = o[:, :-1].float().log_softmax(-1).gather(-1, x[:, 1:, None]).sum()
            else: s = sum(-F.cross_entropy(a[:-1].float(), t[1:], reduction='sum') for a, t in zip(o, x))
            s.item(); del o

@prog
def retrieval(bug):
    """The best thousand of many items by a linear layer: nothing to mend."""
    m = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 500_000)).to(D).eval()
    with torch.inference_mode():
        for i in range(8): m(torch.randn(256, 128, device=D)).topk(1000).indices.cpu()

@prog
def dp_hooks(bug):
    """Gradients of each sample by an einsum in hooks, for the whole batch or for a part of it."""
    m = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 100)).to(D); opt = torch.optim.SGD(m.parameters(), 0.1)
    seen, each = {}, {}
    for l in m:
        if isinstance(l, nn.Linear):
            l.register_forward_hook(lambda l, i, o: seen.__setitem__(l, i[0].detach()))
            l.register_full_backward_hook(lambda l, gi, go: each.__setitem__(l, torch.einsum('no,ni->noi', go[0], seen[l])))
    for i in range(6):
        x, y = torch.randn(128, 1024, device=D), torch.randint(0, 100, (128,), device=D)
        total = {l: torch.zeros_like(l.weight) for l in m if isinstance(l, nn.Linear)}
        for a, b in zip(x.split(128 if bug else 16), y.split(128 if bug else 16)):
            F.cross_entropy(m(a), b, reduction='sum').backward()
            norm = sum(g.flatten(1).square().sum(1) for g in each.values()).sqrt().clamp(min=1)
            for l, g in each.items(): total[l] += torch.einsum('noi,n->oi', g, 1 / norm)
            each.clear(); seen.clear()
        for l in total: l.weight.grad = total[l] / 128
        opt.step(); opt.zero_grad()

@prog
def grpo(bug):
    """Log-probabilities of a reference: through a log-softmax over all tokens, or row by row."""
    m, ref = LM(32000, 512, 4).to(D), LM(32000, 512, 4).to(D).requires_grad_(False); opt = torch.optim.AdamW(m.parameters(), 1e-5)
    def logps(o, t):
        if bug: return o.float().log_softmax(-1).gather(-1, t[..., None])[..., 0]
        return torch.stack([-F.cross_entropy(a, b, reduction='none') for a, b in zip(o, t)])
    for i in range(6):
        x = torch.randint(0, 32000, (12, 257), device=D)
        with torch.no_grad(): r = logps(ref(x[:, :-1]), x[:, 1:])
        p = logps(m(x[:, :-1]), x[:, 1:])
        loss = -(p * torch.randn(12, 1, device=D)).mean() + 0.04 * ((r - p).exp() - (r - p) - 1).mean()
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def lora_merged(bug):
    """Adapters that are added to the weight in each pass, which autograd keeps; or beside it."""
    class Lora(nn.Module):
        def __init__(s, d):
            super().__init__()
            s.w = nn.Parameter(torch.randn(4 * d, d) * 0.02, requires_grad=False); s.v = nn.Parameter(torch.randn(d, 4 * d) * 0.02, requires_grad=False)
            s.a, s.b = nn.Parameter(torch.randn(8, d) * 0.02), nn.Parameter(torch.zeros(4 * d, 8)); s.c, s.e = nn.Parameter(torch.randn(8, 4 * d) * 0.02), nn.Parameter(torch.zeros(d, 8))
        def forward(s, x):
            if bug: return x + F.linear(F.gelu(F.linear(x, s.w + s.b @ s.a)), s.v + s.e @ s.c)
            h = F.gelu(F.linear(x, s.w) + F.linear(F.linear(x, s.a), s.b))
            return x + F.linear(h, s.v) + F.linear(F.linear(h, s.c), s.e)
    m = nn.Sequential(*[Lora(1536) for _ in range(10)]).to(D); opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad])
    for i in range(6):
        loss = m(torch.randn(512, 1536, device=D)).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def norm_by_hand(bug):
    """A norm in single precision, written out inside a half-precision model; or PyTorch's own."""
    class Norm(nn.Module):
        def __init__(s, d): super().__init__(); s.w = nn.Parameter(torch.ones(d)); s.d = d
        def forward(s, x):
            if not bug: return F.rms_norm(x, (s.d,), s.w, 1e-6)
            h = x.float(); return (h * torch.rsqrt(h.square().mean(-1, True) + 1e-6)).to(x.dtype) * s.w
    m = LM(4000, 512, 8)
    for b in m.blocks: b.n1, b.n2 = Norm(512), Norm(512)
    m = m.to(D).bfloat16(); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(6):
        x = torch.randint(0, 4000, (16, 513), device=D)
        loss = F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def dropout_by_hand(bug):
    """Dropout by a mask of floats, or PyTorch's own with a byte each."""
    class Drop(nn.Module):
        def forward(s, x):
            if not bug: return F.dropout(x, 0.1)
            return x * (torch.rand_like(x) > 0.1).float() / 0.9
    m = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), Drop()) for _ in range(12)], nn.Linear(1024, 10)).to(D); opt = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(6):
        loss = F.cross_entropy(m(torch.randn(8192, 1024, device=D)), torch.randint(0, 10, (8192,), device=D))
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def float_images(bug):
    """A data set of images on the GPU as floats, or as the bytes that they are."""
    data = torch.randint(0, 256, (12000, 3, 64, 64), device=D, dtype=torch.uint8)
    if bug: data = data.float() / 255
    m = torchvision.models.resnet18(num_classes=10).to(D); opt = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(6):
        x = data[torch.randint(0, 12000, (64,), device=D)]
        loss = F.cross_entropy(m(x if bug else x.float() / 255), torch.randint(0, 10, (64,), device=D))
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def last_reward(bug):
    """A reward from the last token: a head on all positions, or on that one."""
    m = LM(16000, 512, 6).to(D); head = nn.Linear(512, 1).to(D); opt = torch.optim.AdamW([*m.parameters(), *head.parameters()], 1e-5)
    for i in range(6):
        x = torch.randint(0, 16000, (16, 384), device=D); h = m.emb(x) + m.pos[:384]
        for b in m.blocks: h = b(h)
        o = m.head(m.norm(h))[:, -1] if bug else m.head(m.norm(h[:, -1]))
        loss = F.logsigmoid(head(h[:, -1])).mean() + o.logsumexp(-1).mean() * 1e-3
        opt.zero_grad(); loss.backward(); opt.step()

if __name__ == '__main__': run()
