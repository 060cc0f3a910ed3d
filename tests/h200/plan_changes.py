"""Runs with and without a change, for the tables of docs/PLAN.md. Usage: plan_changes.py MODEL CHANGE BATCH LENGTH STEPS OUT

Writes OUT.pickle.gz and OUT.json (PyTorch's own peaks). MODEL is gpt (autocast), gpt_fp32, gpt_kept (the loop keeps its logits), gpt_varying
(each step another length), llama (bf16, transformers) or cnn (keeps the raw images). CHANGE is none, chunks, 8bit, del, checkpoint, fused, or some of them
with a plus between.
"""

import gzip
import json
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

kind, changes, out = sys.argv[1], sys.argv[2].split("+"), sys.argv[6]
batch, length, steps = (int(a) for a in sys.argv[3:6])
torch.manual_seed(0)
torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks="python")


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(d), nn.LayerNorm(d), heads
        self.qkv, self.o, self.f1, self.f2 = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.f2(F.gelu(self.f1(self.n2(x))))


class Body(nn.Module):
    def __init__(self, d=768, heads=12, layers=8, vocab=32000, ctx=2048):
        super().__init__()
        self.e, self.p = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.nf = nn.LayerNorm(d)

    def forward(self, ids):
        x = self.e(ids) + self.p(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if "checkpoint" in changes else block(x)
        return self.nf(x)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Body(), nn.Linear(768, 32000, bias=False)

    def forward(self, ids):
        return self.head(self.body(ids))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        from transformers import LlamaConfig, LlamaModel

        config = LlamaConfig(
            hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, vocab_size=32000
        )
        self.body, self.head = LlamaModel(config), nn.Linear(1024, 32000, bias=False)

    def forward(self, ids):
        return self.head(self.hidden(ids))

    def hidden(self, ids):
        return self.body(ids, use_cache=False).last_hidden_state


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU())

        self.stages = nn.Sequential(stage(3, 64), stage(64, 128), stage(128, 256), stage(256, 512))
        self.head = nn.Linear(512, 1000)

    def forward(self, x):
        return self.head(self.stages(x).mean((2, 3)))


class EightBit(torch.optim.Optimizer):
    """Allocates the same as bitsandbytes' AdamW8bit. Its update is only an imitation, but in place like the real kernel's."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            state = self.state[p]
            if not state:
                for name in ("m", "v"):
                    if p.numel() < 4096:
                        state[name] = torch.zeros_like(p, dtype=torch.float32)
                    else:
                        state[name] = torch.zeros_like(p, dtype=torch.uint8)
                        state[name + "_most"] = torch.zeros(-(-p.numel() // 256), device=p.device)
            p.add_(p.grad, alpha=-1e-4)


def loss_of(logits, ids):
    return F.cross_entropy(logits[:, :-1].float().reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))


def chunked(model, ids):
    hidden = model.hidden(ids) if kind == "llama" else model.body(ids)
    hidden, labels = hidden[:, :-1].flatten(0, 1), ids[:, 1:].flatten()

    def part(h, y):
        return F.cross_entropy(model.head(h).float(), y, reduction="sum")

    # Early stop raises through cross_entropy, and PyTorch 2.11 loses that exception while history is recorded.
    with set_checkpoint_early_stop(False):
        parts = zip(hidden.chunk(8), labels.chunk(8))
        return sum(checkpoint(part, h, y, use_reentrant=False) for h, y in parts) / labels.numel()


model = {"llama": Llama, "cnn": Cnn}.get(kind, Gpt)().to("cuda", torch.bfloat16 if kind == "llama" else torch.float32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused="fused" in changes)
real_8bit = False
if "8bit" in changes:
    try:
        import bitsandbytes

        optimizer, real_8bit = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4), True
    except ImportError:
        optimizer = EightBit(model.parameters())
for step in range(steps):
    if kind == "cnn":
        raw = torch.rand(batch, 3, length, length, device="cuda")
        images = (raw - 0.45) / 0.22
        if "del" in changes:
            del raw
        loss = F.cross_entropy(model(images), torch.randint(0, 1000, (batch,), device="cuda"))
    else:
        now = [length, length // 2, length * 3 // 4][step % 3] if kind == "gpt_varying" else length
        ids = torch.randint(0, 32000, (batch, now), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=kind not in ("gpt_fp32", "llama")):
            if "chunks" in changes:
                loss = chunked(model, ids)
            else:
                logits = model(ids)
                loss = loss_of(logits, ids)
    if kind != "gpt_kept" or "del" in changes:
        logits = None
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if kind == "gpt_kept" and logits is not None:
        right = (logits[:, 0, 0] > 0).sum()
    del loss
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
torch.cuda.memory._dump_snapshot(out + ".pickle")
with open(out + ".pickle", "rb") as f, gzip.open(out + ".pickle.gz", "wb", 6) as g:
    g.write(f.read())
os.remove(out + ".pickle")
with open(out + ".json", "w") as f:
    names = {"reserved": "reserved_bytes.all.peak", "allocated": "allocated_bytes.all.peak"}
    json.dump({name: stats[key] for name, key in names.items()} | {"real_8bit": real_8bit, "torch": torch.__version__}, f)
