"""growing.py OUT NAME bug|ok: programs whose memory grows for good (bug), and ones that grow, as they should, up to a bound (ok); truth of peaks."""
import collections, functools, queue, threading, weakref
import torch, torchvision, transformers
from torch import nn
from torch.nn import functional as F
from twins import D, LM, lm_step, prog, run


def conv(width=64):
    return nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(8),
                         nn.Flatten(), nn.Linear(width * 64, 256)).to(D)

@prog
def replay(bug):
    """An agent's frames on the GPU: in a list without end, or in a ring that is filled."""
    m, head = conv(), nn.Linear(256, 6).to(D)
    opt = torch.optim.Adam([*m.parameters(), *head.parameters()], 1e-4)
    frames, place = ([] if bug else torch.empty(400, 3, 84, 84, device=D)), 0
    for i in range(60):
        for k in range(8):
            frame = torch.rand(3, 84, 84, device=D)
            if bug: frames.append(frame)
            else: frames[place % 400] = frame
            place += 1
        pick = torch.randint(0, min(place, 400), (32,)).tolist()
        x = torch.stack([frames[p] for p in pick])
        loss = head(m(x)).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def deque_replay(bug):
    """The same with a deque: without a length, or with one."""
    m, head = conv(), nn.Linear(256, 6).to(D)
    opt = torch.optim.Adam([*m.parameters(), *head.parameters()], 1e-4)
    memory = collections.deque(maxlen=None if bug else 120)
    for i in range(80):
        for k in range(4): memory.append((torch.rand(3, 84, 84, device=D), torch.rand(6, device=D)))
        pick = [memory[p] for p in torch.randint(0, len(memory), (32,)).tolist()]
        x, y = torch.stack([p[0] for p in pick]), torch.stack([p[1] for p in pick])
        loss = F.mse_loss(head(m(x)), y)
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def lazy_cache(bug):
    """A dataset that is moved to the GPU as it is first read: in each epoch anew with another key, or once."""
    m, cache = conv(), {}
    opt = torch.optim.SGD(m.parameters(), 0.01)
    def item(epoch, i):
        key = (epoch, i) if bug else i
        if key not in cache: cache[key] = torch.randn(3, 128, 128).to(D)
        return cache[key]
    for epoch in range(4):
        for b in range(12):
            x = torch.stack([item(epoch, b * 16 + k) for k in range(16)])
            loss = m(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()

@prog
def cached_encoder(bug):
    """Prompts are encoded once and kept: all of them, or the last 16."""
    enc = transformers.BertModel(transformers.BertConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, intermediate_size=2048)).to(D).eval()
    @functools.lru_cache(maxsize=None if bug else 16)
    def encode(prompt):
        with torch.no_grad():
            return enc(torch.randint(0, 30000, (4, 128), device=D)).last_hidden_state
    for i in range(90):
        (encode(f'prompt {i}') @ encode(f'prompt {max(i - 3, 0)}').transpose(1, 2)).mean().item()

@prog
def metric_epochs(bug):
    """A metric keeps predictions of an epoch; it is never reset, or at the end of each epoch."""
    m, head = conv(), nn.Linear(256, 4000).to(D)
    opt = torch.optim.SGD([*m.parameters(), *head.parameters()], 0.01)
    class Metric:
        def __init__(s): s.preds = []
        def update(s, p): s.preds.append(p.detach())
        def compute(s): return torch.stack([p.argmax(1).float().mean() for p in s.preds]).mean().item()
        def reset(s): s.preds.clear()
    metric = Metric()
    for epoch in range(5):
        for b in range(12):
            o = head(m(torch.randn(64, 3, 64, 64, device=D)))
            loss = F.cross_entropy(o, torch.randint(0, 4000, (64,), device=D))
            opt.zero_grad(); loss.backward(); opt.step()
            metric.update(o)
        metric.compute()
        if not bug: metric.reset()

@prog
def memory_bank(bug):
    """Keys of a contrastive loss: joined to what is there, or the oldest go."""
    q, k = conv(), conv()
    opt = torch.optim.SGD(q.parameters(), 0.01)
    bank = torch.randn(512, 256, device=D)
    for i in range(60):
        x = torch.randn(128, 3, 48, 48, device=D)
        with torch.no_grad():
            for a, b in zip(q.parameters(), k.parameters()): b.lerp_(a, 0.01)
            key = F.normalize(k(x), dim=1)
        query = F.normalize(q(x), dim=1)
        loss = F.cross_entropy(torch.cat([(query * key).sum(1, True), query @ bank.T], 1), torch.zeros(128, dtype=torch.long, device=D))
        opt.zero_grad(); loss.backward(); opt.step()
        bank = torch.cat([bank, key]) if bug else torch.cat([key, bank])[:4096]

@prog
def prefetch(bug):
    """A thread moves batches to the GPU ahead: into a queue without a bound, or of three."""
    m = conv(32); opt = torch.optim.SGD(m.parameters(), 0.01)
    q = queue.Queue(0 if bug else 3)
    def produce():
        for i in range(50): q.put(torch.randn(64, 3, 96, 96).to(D))
        q.put(None)
    t = threading.Thread(target=produce); t.start()
    if bug: t.join()
    while (x := q.get()) is not None:
        loss = m(x).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()
        del x
    t.join()

@prog
def frames_memory(bug):
    """Video segmentation remembers features of frames: of all, or of the last seven."""
    m = torchvision.models.resnet18(weights=None).to(D).eval()
    body = nn.Sequential(*list(m.children())[:-2])
    attend = nn.MultiheadAttention(512, 8, batch_first=True).to(D).eval()
    remembered = collections.deque(maxlen=None if bug else 7)
    with torch.inference_mode():
        for i in range(60):
            f = body(torch.randn(1, 3, 512, 512, device=D)).flatten(2).transpose(1, 2)
            if remembered:
                f = f + attend(f, torch.cat(list(remembered), 1), torch.cat(list(remembered), 1), need_weights=False)[0]
            remembered.append(f)
            f.mean().item()

@prog
def curriculum(bug):
    """Sequences get longer from stage to stage, as they should; with the losses' graphs kept, or not."""
    m = LM(8000, 256, 4).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4); total = 0
    for T in (64, 128, 192, 256, 384, 512):
        for i in range(5):
            loss, _ = lm_step(m, opt, 8, T, 8000)
            total = total + (loss if bug else loss.detach())
            del _
    total.item()

@prog
def progressive(bug):
    """A network that grows a block each stage with a new optimizer; the earlier optimizers are kept, or not."""
    blocks, kept = nn.ModuleList(), []
    for stage in range(6):
        blocks.append(nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to(D))
        opt = torch.optim.Adam(blocks.parameters(), 1e-4)
        if bug: kept.append(opt)
        for i in range(5):
            x = torch.randn(256, 1024, device=D)
            for b in blocks: x = x + b(x)
            loss = x.square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            del x, loss

@prog
def static_kv(bug):
    """A server that answers one request after the other: the caches of answered ones stay, or one static cache serves all."""
    cfg = transformers.LlamaConfig(num_hidden_layers=4, hidden_size=512, intermediate_size=1376, num_attention_heads=8, num_key_value_heads=8, vocab_size=8000)
    m = transformers.LlamaForCausalLM(cfg).to(D).half().eval(); sessions = {}
    static = transformers.StaticCache(config=cfg, max_cache_len=512)
    with torch.inference_mode():
        for r in range(16):
            x = torch.randint(0, 8000, (4, 256), device=D)
            if bug: cache = transformers.DynamicCache()
            else: static.reset(); cache = static
            at = torch.arange(256, device=D)
            for t in range(12):
                x = m(x, past_key_values=cache, cache_position=at, use_cache=True).logits[:, -1:].argmax(-1)
                at = at[-1:] + 1
            if bug: sessions[r] = cache
            del cache

@prog
def weak_cycle(bug):
    """An object holds tensors and itself: the collector is off as many trainers do, or it runs every ten steps."""
    import gc; gc.disable()
    m = conv(); opt = torch.optim.SGD(m.parameters(), 0.01)
    class Out:
        def __init__(s, o): s.o = o; s.me = s
    for i in range(50):
        out = Out(m(torch.randn(64, 3, 96, 96, device=D)))
        loss = out.o.square().mean()
        opt.zero_grad(); loss.backward(); opt.step()
        if not bug and i % 10 == 9: gc.collect()

@prog
def graph_stats(bug):
    """Statistics of activations by a hook: tensors are kept in a list for the run, or as numbers."""
    m = torchvision.models.resnet18(num_classes=10).to(D); opt = torch.optim.SGD(m.parameters(), 0.01); seen = collections.defaultdict(list)
    for name, layer in m.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda l, i, o, n=name: seen[n].append(o.detach().mean((2, 3)) if bug else o.mean().item()))
    for i in range(40):
        loss = F.cross_entropy(m(torch.randn(64, 3, 64, 64, device=D)), torch.randint(0, 10, (64,), device=D))
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def trials(bug):
    """A search over hidden sizes in one process: each study's model and optimizer stay in its result, or go."""
    results = []
    for width in (512, 1024, 768, 2048, 1536, 3072):
        m = nn.Sequential(nn.Linear(1024, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)).to(D)
        opt = torch.optim.AdamW(m.parameters())
        for i in range(8):
            loss = F.cross_entropy(m(torch.randn(512, 1024, device=D)), torch.randint(0, 10, (512,), device=D))
            opt.zero_grad(); loss.backward(); opt.step()
        results.append((loss.item(), m, opt) if bug else (loss.item(), width))
        del m, opt, loss

@prog
def ensemble(bug):
    """Snapshots of the weights for an ensemble: of every epoch, or of the last three."""
    import copy
    m = torchvision.models.resnet18(num_classes=10).to(D); opt = torch.optim.SGD(m.parameters(), 0.1)
    shots = collections.deque(maxlen=None if bug else 3)
    for epoch in range(12):
        for i in range(4):
            loss = F.cross_entropy(m(torch.randn(32, 3, 64, 64, device=D)), torch.randint(0, 10, (32,), device=D))
            opt.zero_grad(); loss.backward(); opt.step()
        shots.append(copy.deepcopy(m).eval())
        with torch.no_grad(): torch.stack([s(torch.randn(32, 3, 64, 64, device=D)) for s in shots]).mean(0).argmax(1).cpu()

@prog
def splats(bug):
    """Points are added as a scene is learnt, up to a bound; the optimizer is made anew each time. Or without a bound."""
    pos = torch.randn(60000, 59, device=D, requires_grad=True); opt = torch.optim.Adam([pos], 1e-3)
    target = torch.randn(59, 64, device=D)
    for i in range(60):
        loss = (pos @ target).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()
        if i % 4 == 3 and (bug or len(pos) < 150000):
            pos = torch.cat([pos.detach(), pos.detach()[:15000] + 0.01]).requires_grad_(); opt = torch.optim.Adam([pos], 1e-3)

@prog
def clients(bug):
    """Federated rounds: each client trains a copy; the clients' copies of all rounds are kept, or their mean alone."""
    import copy
    m = conv(128); history = []
    for r in range(10):
        copies = []
        for c in range(4):
            local = copy.deepcopy(m); opt = torch.optim.SGD(local.parameters(), 0.01, momentum=0.9)
            for i in range(2):
                loss = local(torch.randn(32, 3, 64, 64, device=D)).square().mean()
                opt.zero_grad(); loss.backward(); opt.step()
            copies.append(local.state_dict())
        m.load_state_dict({k: torch.stack([c[k] for c in copies]).mean(0) for k in copies[0]})
        if bug: history.append(copies)

@prog
def scaler_log(bug):
    """Losses and gradient norms on the GPU for a plot at the end; with their graphs, or detached: a few bytes each."""
    m = LM(8000, 256, 2).to(D); opt = torch.optim.AdamW(m.parameters()); log = []
    for i in range(40):
        x = torch.randint(0, 8000, (4, 129), device=D)
        loss = F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad(); loss.backward(); opt.step()
        log.append(loss * 2 if bug else loss.detach() * 2)

if __name__ == '__main__': run()
