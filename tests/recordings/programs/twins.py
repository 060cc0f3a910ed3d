"""What mistakes.py, waste.py, outputs.py and habits.py share: programs with a mended twin, recorded with PyTorch's own peaks.

A file's programs are the functions marked with @prog; `python FILE.py OUT NAME bug|ok` runs one. NOST=no records no stacks."""
import json, os, sys, traceback
import torch
from torch import nn
from torch.nn import functional as F

D = 'cuda'
progs = {}
def prog(f):
    progs[f.__name__] = f
    return f

class Block(nn.Module):
    def __init__(s, d, h=8):
        super().__init__()
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.qkv, s.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        s.up, s.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        s.h = h

    def forward(s, x, causal=True):
        B, T, C = x.shape
        q, k, v = s.qkv(s.n1(x)).view(B, T, 3, s.h, C // s.h).permute(2, 0, 3, 1, 4)
        x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(B, T, C))
        return x + s.down(F.gelu(s.up(s.n2(x))))

class LM(nn.Module):
    def __init__(s, V=16000, d=512, L=6):
        super().__init__()
        s.emb = nn.Embedding(V, d)
        s.pos = nn.Parameter(torch.zeros(1024, d))
        s.blocks = nn.ModuleList([Block(d) for _ in range(L)])
        s.norm = nn.LayerNorm(d)
        s.head = nn.Linear(d, V, bias=False)

    def forward(s, x):
        h = s.emb(x) + s.pos[:x.shape[1]]
        for bl in s.blocks:
            h = bl(h)
        return s.head(s.norm(h))

def lm_step(m, opt, B=8, T=256, V=16000):
    x = torch.randint(0, V, (B, T + 1), device=D)
    o = m(x[:, :-1])
    loss = F.cross_entropy(o.view(-1, V), x[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss, o

def run():
    """Runs the program that the command line names, and writes the snapshot and the peaks."""
    out, name, which = sys.argv[1:4]
    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history(max_entries=300000, stacks='python', **(dict(context=None) if os.environ.get('NOST') == 'no' else {}))
    try:
        progs[name](which == 'bug')
    except Exception:
        traceback.print_exc(limit=-3)
        print('FAILED', name, which)
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(f'{out}/{name}.{which}.pickle')
    s = torch.cuda.memory_stats()
    json.dump(dict(allocated=s['allocated_bytes.all.peak'], active=s['active_bytes.all.peak'], reserved=s['reserved_bytes.all.peak'], retries=s['num_alloc_retries'], ooms=s['num_ooms']), open(f'{out}/{name}.{which}.json', 'w'))
