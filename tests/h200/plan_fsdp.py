"""FSDP2 over several cards: a small transformer at one batch, three steps, a recording and the counters of each rank, for `vramscope plan`.

    torchrun --nproc-per-node 2 tests/h200/plan_fsdp.py OUT BATCH
"""
import gzip, json, os, pickle, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy

class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.heads = heads
    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, d))
        return x + self.mlp(self.norm2(x))

class Model(nn.Module):
    def __init__(self, words=8192, d=1024, layers=12):
        super().__init__()
        self.embed = nn.Embedding(words, d)
        self.blocks = nn.ModuleList(Block(d, 16) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, words, bias=False)
    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

def main(out, batch, length, steps=3):
    rank = dist.get_rank()
    torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=200000, stacks="python")
    torch.manual_seed(0)
    model = Model().cuda()
    for block in model.blocks:
        fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(steps):
        ids = torch.randint(0, 8192, (batch, length), device="cuda")
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    name = f"{out}/fsdp.b{batch}.rank{rank}"
    with gzip.open(name + ".pickle.gz", "wb", 6) as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    stats = torch.cuda.memory_stats()
    json.dump({"batch": batch, "rank": rank, "allocated": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"],
               "active": stats["active_bytes.all.peak"]}, open(name + ".json", "w"))
    torch.cuda.memory._record_memory_history(enabled=None)

if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"])); dist.init_process_group("nccl")
    main(sys.argv[1], int(sys.argv[2]), 512)
    dist.destroy_process_group()
