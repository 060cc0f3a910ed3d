"""mistakes.py OUT NAME bug|ok: mistakes that people make, each with its mended twin; truth of peaks."""
import contextlib, copy, gc, json, os, sys, time, traceback
import torch, torchvision, timm, transformers
from torch import nn
from torch.nn import functional as F
from twins import D, LM, Block, lm_step, prog, run


@prog
def notebook_rerun(bug):
    """A notebook's cell is run three times; a list of old results keeps the models."""
    outs = []
    model = opt = None
    for cell in range(3):
        if not bug:
            model = opt = None
        model = torchvision.models.resnet50(num_classes=100).to(D)
        opt = torch.optim.AdamW(model.parameters(), 1e-3)
        for i in range(4):
            x, y = torch.randn(16, 3, 160, 160, device=D), torch.randint(0, 100, (16,), device=D)
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            del x, y, loss
        if bug:
            outs.append((model, opt))

@prog
def kfold_keep(bug):
    """Each fold's best model is kept on the GPU."""
    kept = []
    for fold in range(4):
        model = timm.create_model('vit_small_patch16_224', num_classes=50).to(D)
        opt = torch.optim.Adam(model.parameters(), 1e-4)
        for i in range(3):
            x, y = torch.randn(12, 3, 224, 224, device=D), torch.randint(0, 50, (12,), device=D)
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            del x, y, loss
        kept.append(model if bug else {k: v.cpu() for k, v in model.state_dict().items()})
        del model, opt

@prog
def old_optimizer(bug):
    """Fine-tuning begins with a new optimizer; the scheduler of the first keeps its state."""
    m = LM().to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    for i in range(4):
        lm_step(m, opt); sch.step()
    if not bug:
        del sch, opt
    opt2 = torch.optim.AdamW(m.parameters(), 1e-5)
    for i in range(4):
        lm_step(m, opt2)

@prog
def ckpt_on_gpu(bug):
    """A checkpoint is loaded to the GPU and stays in a variable."""
    m = LM()
    torch.save({'model': m.state_dict()}, 'checkpoint.pt')
    ck = torch.load('checkpoint.pt', map_location=D if bug else 'cpu')
    m = LM().to(D)
    m.load_state_dict(ck['model'])
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(5):
        lm_step(m, opt, 6, 256)

@prog
def hook_features(bug):
    """A forward hook stores each layer's output of each step."""
    m = timm.create_model('resnet50', num_classes=100).to(D)
    feats = []
    for l in (m.layer1, m.layer2, m.layer3, m.layer4):
        l.register_forward_hook(lambda mod, i, o: feats.append(o if bug else o.detach().mean((2, 3)).cpu()))
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    for i in range(8):
        x, y = torch.randn(12, 3, 160, 160, device=D), torch.randint(0, 100, (12,), device=D)
        loss = F.cross_entropy(m(x), y)
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def teacher_grad(bug):
    """Distillation runs the teacher with a graph."""
    t = torchvision.models.resnet101(num_classes=100).to(D)
    s = torchvision.models.resnet18(num_classes=100).to(D)
    opt = torch.optim.Adam(s.parameters(), 1e-3)
    for i in range(4):
        x = torch.randn(24, 3, 160, 160, device=D)
        with contextlib.nullcontext() if bug else torch.no_grad():
            tt = t(x)
        ss = s(x)
        loss = F.kl_div(ss.log_softmax(-1), tt.detach().softmax(-1), reduction='batchmean')
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def eval_graph(bug):
    """Validation after each epoch without no_grad."""
    m = LM().to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for ep in range(3):
        m.train()
        for i in range(3):
            lm_step(m, opt, 4, 256)
        m.eval()
        tot = 0
        with contextlib.nullcontext() if bug else torch.no_grad():
            for i in range(3):
                x = torch.randint(0, 16000, (16, 257), device=D)
                o = m(x[:, :-1])
                tot += F.cross_entropy(o.view(-1, 16000), x[:, 1:].reshape(-1)).item()
        opt.zero_grad()

@prog
def preds_on_gpu(bug):
    """Predictions of a whole test set are collected on the GPU."""
    m = timm.create_model('vit_small_patch16_224', num_classes=1000).to(D).eval()
    seg = nn.Conv2d(3, 21, 3, padding=1).to(D)
    preds = []
    with torch.no_grad():
        for i in range(40):
            x = torch.randn(8, 3, 224, 224, device=D)
            m(x)
            o = seg(x).softmax(1)
            preds.append(o if bug else o.argmax(1).to(torch.uint8).cpu())

@prog
def data_on_gpu(bug):
    """All batches are moved to the GPU before training."""
    batches = [(torch.randn(64, 3, 64, 64), torch.randint(0, 100, (64,))) for _ in range(60)]
    if bug:
        batches = [(x.to(D), y.to(D)) for x, y in batches]
    m = torchvision.models.resnet18(num_classes=100).to(D)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for x, y in batches[:12]:
        x, y = x.to(D), y.to(D)
        loss = F.cross_entropy(m(x), y)
        opt.zero_grad(); loss.backward(); opt.step()

@prog
def ema_with_grad(bug):
    """An average of the weights is copied with its gradients."""
    m = LM().to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    lm_step(m, opt)
    if not bug:
        opt.zero_grad(set_to_none=True)
    ema = copy.deepcopy(m)
    for i in range(5):
        lm_step(m, opt)
        with torch.no_grad():
            for a, b in zip(ema.parameters(), m.parameters()):
                a.lerp_(b, 0.01)

@prog
def grads_kept_accum(bug):
    """Four losses are summed before one backward pass."""
    m = LM().to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(3):
        opt.zero_grad()
        if bug:
            total = 0
            for k in range(4):
                x = torch.randint(0, 16000, (4, 257), device=D)
                total = total + F.cross_entropy(m(x[:, :-1]).view(-1, 16000), x[:, 1:].reshape(-1)) / 4
            total.backward()
            del total
        else:
            for k in range(4):
                x = torch.randint(0, 16000, (4, 257), device=D)
                (F.cross_entropy(m(x[:, :-1]).view(-1, 16000), x[:, 1:].reshape(-1)) / 4).backward()
        opt.step()

@prog
def last_logits(bug):
    """The loop's variables hold the last step's logits while the next forward pass runs."""
    m = LM(V=32000).to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    for i in range(4):
        x = torch.randint(0, 32000, (12, 257), device=D)
        o = m(x[:, :-1])
        loss = F.cross_entropy(o.view(-1, 32000), x[:, 1:].reshape(-1))
        opt.zero_grad(); loss.backward(); opt.step()
        if not bug:
            del o, loss

@prog
def caught_oom(bug):
    """A failed batch is caught; the exception's frames keep its tensors in the program that retries inside except."""
    torch.cuda.set_per_process_memory_fraction(2.2 * 2 ** 30 / torch.cuda.get_device_properties(0).total_memory)
    m = LM().to(D)
    opt = torch.optim.AdamW(m.parameters(), 1e-4)
    lm_step(m, opt, 4, 256)
    for B in (64, 48, 8, 8, 8):
        if bug:
            try:
                lm_step(m, opt, B, 256)
            except torch.OutOfMemoryError:
                try:
                    lm_step(m, opt, B // 2, 256)
                except torch.OutOfMemoryError:
                    pass
        else:
            failed = False
            try:
                lm_step(m, opt, B, 256)
            except torch.OutOfMemoryError:
                failed = True
            if failed:
                opt.zero_grad(set_to_none=True)
                try:
                    lm_step(m, opt, B // 4, 256)
                except torch.OutOfMemoryError:
                    pass

@prog
def metric_states(bug):
    """A metric keeps all scores and targets of an epoch, as torchmetrics does with cat states."""
    m = torchvision.models.resnet18(num_classes=1000).to(D)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    scores = []
    for i in range(12):
        x, y = torch.randn(32, 3, 96, 96, device=D), torch.randint(0, 1000, (32,), device=D)
        o = m(x)
        loss = F.cross_entropy(o, y)
        opt.zero_grad(); loss.backward(); opt.step()
        big = F.interpolate(x, scale_factor=2)
        scores.append((big, o.detach()) if bug else (big.mean().item(),))

@prog
def two_models_half(bug):
    """The float32 model stays beside its half-precision copy."""
    with torch.device(D):
        m = LM(V=32000, d=768, L=8)
    h = copy.deepcopy(m).half().eval()
    if not bug:
        del m
    x = torch.randint(0, 32000, (8, 512), device=D)
    with torch.inference_mode():
        for i in range(6):
            h(x)

@prog
def retain_graph(bug):
    """An RNN's state is never detached."""
    rnn, head = nn.LSTM(256, 1024, 2, batch_first=True).to(D), nn.Linear(1024, 8000).to(D)
    emb = nn.Embedding(8000, 256).to(D)
    opt = torch.optim.SGD([*rnn.parameters(), *head.parameters(), *emb.parameters()], 1.0)
    h = None
    for i in range(10):
        x = torch.randint(0, 8000, (32, 65), device=D)
        if h is not None and not bug:
            h = tuple(t.detach() for t in h)
        if bug:
            o, h = rnn(emb(x[:, :-1]), h)
            loss = F.cross_entropy(head(o).view(-1, 8000), x[:, 1:].reshape(-1))
            opt.zero_grad(); loss.backward(retain_graph=True)
            if i % 10 == 9: opt.step()
        else:
            o, h = rnn(emb(x[:, :-1]), h)
            loss = F.cross_entropy(head(o).view(-1, 8000), x[:, 1:].reshape(-1))
            opt.zero_grad(); loss.backward()
            if i % 10 == 9: opt.step()

run()
