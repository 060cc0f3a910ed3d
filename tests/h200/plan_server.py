"""A server of a language model in plain PyTorch: weights, a KV cache made at start-up, CUDA graphs for decoding, then a load of requests.

Usage: plan_server.py KV_MIB CAP_MIB OUT. Writes OUT.json, and OUT.pickle.gz where OUT is not a dash. Exits with 3 where memory runs out.
"""

import gzip
import json
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

kv_mib, cap_mib, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
if cap_mib:
    torch.cuda.set_per_process_memory_fraction(cap_mib * 2**20 / torch.cuda.mem_get_info()[1])
if out != "-":
    torch.cuda.memory._record_memory_history(max_entries=2_000_000, stacks="python")
D, HEADS, LAYERS, VOCAB, LONGEST, BLOCK = 1024, 16, 12, 32000, 2048, 16


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x, cache, slots, table, lengths):
        q, k, v = self.qkv(x).view(*x.shape[:-1], 3, HEADS, D // HEADS).unbind(-3)
        cache[0].index_copy_(0, slots, k.reshape(-1, HEADS, D // HEADS))
        cache[1].index_copy_(0, slots, v.reshape(-1, HEADS, D // HEADS))
        if table is None:
            y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True).transpose(1, 2)
        else:
            keys, values = cache[0][table], cache[1][table]
            mask = (torch.arange(table.shape[1], device=x.device) < lengths[:, None])[:, None, None]
            y = F.scaled_dot_product_attention(q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask).transpose(1, 2)
        return self.o(y.reshape(x.shape))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.attention = nn.LayerNorm(D), nn.LayerNorm(D), Attention()
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x, *where):
        x = x + self.attention(self.n1(x), *where)
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, D), nn.Linear(D, VOCAB, bias=False)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids, kv_cache, slots, table=None, lengths=None):
        x = self.embed(ids)
        for layer, cache in zip(self.layers, kv_cache):
            x = layer(x, cache, slots, table, lengths)
        return self.head(x[:, -1])


@torch.inference_mode()
def serve():
    model = Model().to(torch.bfloat16).cuda()
    slots_each = kv_mib * 2**20 // (LAYERS * 2 * D * 2)
    kv_cache = [torch.zeros(2, slots_each, HEADS, D // HEADS, dtype=torch.bfloat16, device="cuda") for _ in range(LAYERS)]
    graphs, pool = {}, None
    for size in (16, 8, 4, 2, 1):
        inputs = {
            "ids": torch.zeros(size, 1, dtype=torch.long, device="cuda"),
            "slots": torch.zeros(size, dtype=torch.long, device="cuda"),
            "table": torch.zeros(size, LONGEST, dtype=torch.long, device="cuda"),
            "lengths": torch.ones(size, dtype=torch.long, device="cuda"),
        }
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(inputs["ids"], kv_cache, inputs["slots"], inputs["table"], inputs["lengths"])
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            logits = model(inputs["ids"], kv_cache, inputs["slots"], inputs["table"], inputs["lengths"])
        pool = pool or graph.pool()
        graphs[size] = (graph, inputs, logits)
    torch.manual_seed(1)
    for wave in range(6):
        lengths = torch.randint(64, 1536, (16,)).tolist() if wave else [LONGEST - 32] * 8
        lengths = [n for i, n in enumerate(lengths) if sum(lengths[: i + 1]) + 32 * (i + 1) <= slots_each]
        starts = [sum(lengths[:i]) + 32 * i for i in range(len(lengths))]
        for start, n in zip(starts, lengths):
            prompt = torch.randint(0, VOCAB, (1, n), device="cuda")
            logits = model(prompt, kv_cache, torch.arange(start, start + n, device="cuda"))
            token = torch.softmax(logits.float(), -1).argmax(-1)
        size = min(s for s in graphs if s >= min(len(lengths), 16))
        graph, inputs, logits = graphs[size]
        for step in range(8):
            for i, (start, n) in enumerate(zip(starts, lengths)):
                inputs["slots"][i] = start + n + step
                inputs["table"][i] = torch.arange(start, start + LONGEST, device="cuda").clamp_(max=slots_each - 1)
                inputs["lengths"][i] = n + step + 1
            graph.replay()
            inputs["ids"][: len(lengths)] = torch.softmax(logits.float(), -1).argmax(-1, keepdim=True)[: len(lengths)]


failed = ""
try:
    serve()
    torch.cuda.synchronize()
except torch.OutOfMemoryError as error:
    failed = str(error).splitlines()[0]
if out != "-":
    torch.cuda.memory._dump_snapshot(out + ".pickle")
    with open(out + ".pickle", "rb") as f, gzip.open(out + ".pickle.gz", "wb", 6) as g:
        g.write(f.read())
    os.remove(out + ".pickle")
    stats = torch.cuda.memory_stats()
    peaks = {"reserved": stats["reserved_bytes.all.peak"], "allocated": stats["allocated_bytes.all.peak"], "failed": failed}
    with open(out + ".json", "w") as f:
        json.dump(peaks | {"kv_mib": kv_mib, "cap_mib": cap_mib}, f)
print(kv_mib, cap_mib, failed or "served", flush=True)
sys.exit(3 if failed else 0)
