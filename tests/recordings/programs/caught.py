"""caught.py OUT NAME bug|ok: programs that catch an out-of-memory error and go on, each with a mended twin; truth of peaks."""
import sys, code
import torch, torchvision
from torch import nn
from torch.nn import functional as F
from twins import D, LM, Block, prog, run

OOM = torch.OutOfMemoryError
def cap(gib): torch.cuda.set_per_process_memory_fraction(gib * 2**30 / torch.cuda.get_device_properties(0).total_memory)

def train(m, opt, B, T=256, V=16000):
    x = torch.randint(0, V, (B, T + 1), device=D)
    loss = F.cross_entropy(m(x[:, :-1]).view(-1, V), x[:, 1:].reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()

@prog
def retry_in_except(bug):
    """Tries again with half the batch: inside the except block, or behind it."""
    cap(6); m = LM().to(D); opt = torch.optim.AdamW(m.parameters())
    for i in range(6):
        B = 8
        try:
            if i == 3: B = 80
            train(m, opt, B)
        except OOM as e:
            if bug:
                for B in (40, 20, 10, 4):
                    try: train(m, opt, B); break
                    except OOM: pass
            else: B = 0
        if B == 0:
            for B in (40, 20, 10, 4):
                try: train(m, opt, B); break
                except OOM: pass

@prog
def kept_error(bug):
    """Keeps what went wrong to report it at the end: the exceptions, or their text."""
    cap(6); m = LM().to(D); opt = torch.optim.AdamW(m.parameters()); errors = []
    for i in range(8):
        try: train(m, opt, 80 if i in (2, 5) else 16)
        except OOM as e: errors.append(e if bug else str(e))
    print(len(errors), 'failed')

def try_size(m, opt, B, bug):
    try:
        x = torch.randn(B, 3, 224, 224, device=D)
        loss = F.cross_entropy(m(x), torch.randint(0, 1000, (B,), device=D))
        opt.zero_grad(); loss.backward(); opt.step()
        return B
    except OOM:
        if bug: return try_size(m, opt, B // 2, bug)
    opt.zero_grad(); torch.cuda.empty_cache()
    return try_size(m, opt, B // 2, bug)

@prog
def find_batch(bug):
    """Searches the largest batch in the first step: calls itself inside the except block, or behind it."""
    cap(8); m = torchvision.models.resnet50().to(D); opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    B = try_size(m, opt, 256, bug); print('batch', B)
    for i in range(3): try_size(m, opt, B, bug)

@prog
def notebook(bug):
    """A cell fails; the next cell runs with a smaller batch. IPython and the interactive interpreter keep sys.last_traceback."""
    cap(6); env = dict(m=LM().to(D), train=train); env['opt'] = torch.optim.AdamW(env['m'].parameters())
    shell = code.InteractiveInterpreter(env)
    shell.showtraceback = lambda: sys.__dict__.update(last_value=sys.exc_info()[1]) if bug else None
    shell.runsource('train(m, opt, 80)')
    for i in range(4): shell.runsource('train(m, opt, 24)')

@prog
def skip_batch(bug):
    """A long batch is skipped: healthy both ways."""
    cap(6); m = LM().to(D); opt = torch.optim.AdamW(m.parameters())
    for i in range(8):
        try: train(m, opt, 80 if i == 4 else 16)
        except OOM: opt.zero_grad(); continue

class Fallback(nn.Module):
    """Attention that keeps its scores, and goes through the heads in parts where they do not fit."""
    def __init__(s, d=512, h=8):
        super().__init__(); s.n, s.qkv, s.o, s.h = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d), h
    def forward(s, x):
        B, T, C = x.shape
        q, k, v = s.qkv(s.n(x)).view(B, T, 3, s.h, C // s.h).permute(2, 0, 3, 1, 4)
        try: a = (q @ k.transpose(-2, -1) / 8).softmax(-1) @ v
        except OOM: a = torch.cat([(q[:, i:i+1] @ k[:, i:i+1].transpose(-2, -1) / 8).softmax(-1) @ v[:, i:i+1] for i in range(s.h)], 1)
        return x + s.o(a.transpose(1, 2).reshape(B, T, C))

@prog
def fallback(bug):
    """A layer falls back to parts: healthy, what came before is needed. `bug` has an embedding before it."""
    cap(4); m = nn.Sequential(*([nn.Embedding(1000, 512)] if bug else []), *[Fallback() for _ in range(6)]).to(D).eval()
    with torch.no_grad():
        for i in range(5):
            x = torch.randint(0, 1000, (2, 6144), device=D) if bug else torch.randn(2, 6144, 512, device=D)
            m(x)

@prog
def fallback_train(bug):
    """The same with a backward pass; the first layer falls back."""
    cap(8); m = nn.Sequential(*([nn.Embedding(1000, 512)] if bug else []), *[Fallback() for _ in range(3)]).to(D); opt = torch.optim.SGD(m.parameters(), 0.1)
    for i in range(5):
        T = 5600 if i == 2 else 2048
        x = torch.randint(0, 1000, (2, T), device=D) if bug else torch.randn(2, T, 512, device=D)
        try: m(x).mean().backward(); opt.step(); opt.zero_grad()
        except OOM: opt.zero_grad()

@prog
def accumulate_skip(bug):
    """Micro-batches; one fails and is left out: healthy both ways."""
    cap(6); m = LM().to(D); opt = torch.optim.AdamW(m.parameters())
    for i in range(6):
        for j in range(3):
            try:
                B = 80 if (i, j) == (2, 1) else 8
                x = torch.randint(0, 16000, (B, 257), device=D)
                F.cross_entropy(m(x[:, :-1]).view(-1, 16000), x[:, 1:].reshape(-1)).backward()
            except OOM: pass
        opt.step(); opt.zero_grad()

@prog
def generate_retry(bug):
    """Inference: a large batch of prompts fails; tried again in halves inside the except block, or behind it."""
    cap(3); m = LM().to(D).eval()
    def answer(x):
        with torch.no_grad(): return m(x)[:, -1].argmax(-1)
    for i in range(5):
        x = torch.randint(0, 16000, (64 if i == 2 else 16, 512), device=D); failed = False
        try: answer(x)
        except OOM:
            failed = True
            if bug: [answer(p) for p in x.split(16)]
        if failed and not bug: [answer(p) for p in x.split(16)]

if __name__ == '__main__': run()
