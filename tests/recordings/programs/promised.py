"""promised.py OUT: records programs that waste memory, each with the same program mended, to hold what findings promise against what
PyTorch then had. The mended ones run without a history: recomputing a checkpointed layer under one with stacks fails in PyTorch 2.11."""
import gc
import sys

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

out, GIB = sys.argv[1], 2**30


def measured(name, work, is_recorded):
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    if is_recorded:
        torch.cuda.memory._record_memory_history(max_entries=400_000, stacks="python")
    work()
    torch.cuda.synchronize()
    if is_recorded:
        torch.cuda.memory._dump_snapshot(f"{out}/{name}.pickle")
        torch.cuda.memory._record_memory_history(enabled=None)
    print(name, torch.cuda.memory_stats()["active_bytes.all.peak"], flush=True)


def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=768, n_head=12, vocab_size=50257)).cuda()


def infer(is_deleted):
    model = gpt2().eval()
    for _ in range(6):
        ids = torch.randint(0, 50257, (16, 512), device="cuda")
        with torch.no_grad():
            result = model(ids, use_cache=False)
        result.logits.float().mean().item()
        if is_deleted:
            del result


def autocast(has_cache, has_graph):
    layers = [nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(8)]
    model = nn.Sequential(*layers).cuda()
    for _ in range(4):
        x = torch.randn(256, 4096, device="cuda")
        with torch.set_grad_enabled(has_graph), torch.autocast("cuda", torch.bfloat16, cache_enabled=has_cache):
            y = model(x)
        y.float().sum().item()
        del y


def train(is_checkpointed):
    model = gpt2().train()
    if is_checkpointed:
        model.gradient_checkpointing_enable()
        model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(3):
        ids = torch.randint(0, 50257, (8, 512), device="cuda")
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def streams():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2 * GIB / total)
    used = [torch.cuda.Stream() for _ in range(3)]
    for i in range(12):
        with torch.cuda.stream(used[i % 3]):
            blocks = [torch.empty(100 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(10)]
            torch.cuda.synchronize()
            del blocks


measured("result_kept", lambda: infer(False), True)
measured("result_deleted", lambda: infer(True), False)
measured("autocast_graph", lambda: autocast(True, True), True)
measured("autocast_graph_without_cache", lambda: autocast(False, True), False)
measured("autocast_no_grad", lambda: autocast(True, False), True)
measured("autocast_no_grad_without_cache", lambda: autocast(False, False), False)
measured("train", lambda: train(False), True)
measured("train_checkpointed", lambda: train(True), False)
measured("streams", streams, True)
