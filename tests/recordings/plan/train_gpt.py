"""The program of gpt.b4, gpt.b8 and gpt.b16: three steps of a small GPT. Usage: train_gpt.py BATCH LENGTH OUT [CAP]"""
import sys
import torch, torch.nn as nn, torch.nn.functional as F

batch, seq, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if len(sys.argv) > 4:
    torch.cuda.set_per_process_memory_fraction(int(sys.argv[4]) / torch.cuda.mem_get_info()[1])
torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks="python")


class Block(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.n1, s.n2, s.h = nn.LayerNorm(d), nn.LayerNorm(d), h
        s.qkv, s.o, s.f1, s.f2 = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(s, x):
        b, t, d = x.shape
        q, k, v = s.qkv(s.n1(x)).view(b, t, 3, s.h, d // s.h).permute(2, 0, 3, 1, 4)
        x = x + s.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + s.f2(F.gelu(s.f1(s.n2(x))))


class LM(nn.Module):
    def __init__(s, d=768, h=12, n=8, vocab=32000, ctx=2048):
        super().__init__()
        s.e, s.p = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        s.blocks = nn.ModuleList(Block(d, h) for _ in range(n))
        s.nf, s.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)

    def forward(s, ids):
        x = s.e(ids) + s.p(torch.arange(ids.shape[1], device=ids.device))
        for block in s.blocks:
            x = block(x)
        return s.head(s.nf(x))


model = LM().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(3):
    ids = torch.randint(0, 32000, (batch, seq), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].float().reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del loss, ids, logits
torch.cuda.memory._dump_snapshot(out)
