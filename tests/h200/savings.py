"""Measures what a change saves: the peak of a small GPT-2 with and without the change, as PyTorch counts it.

python savings.py OUT writes OUT/BASE.pickle for each base and OUT/savings.json: [{"base", "change", "peak"}]. Compare with
`vramscope findings OUT/BASE.pickle --json` ("peak_after_bytes").
"""

import json
import sys
from pathlib import Path

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, LENGTH, STEPS = 8, 512, 3


def loss_of(model, ids, chunks):
    if chunks == 1:
        return model(ids, labels=ids).loss
    hidden = model.transformer(ids)[0][:, :-1].reshape(-1, model.config.n_embd)
    labels = ids[:, 1:].reshape(-1)

    def of_chunk(hidden, labels):
        return torch.nn.functional.cross_entropy(model.lm_head(hidden).float(), labels, reduction="sum")

    parts = zip(hidden.chunk(chunks), labels.chunk(chunks))
    # Early stop raises through cross_entropy, and PyTorch 2.11 loses that exception while history is recorded.
    with set_checkpoint_early_stop(False):
        return sum(checkpoint(of_chunk, h, l, use_reentrant=False) for h, l in parts) / labels.numel()


def run(base, attention="sdpa", gelu="gelu_new", fused=False, chunks=1, checkpoints=False, autocast=False, cache=True, out=None, layers=8):
    torch.manual_seed(0)
    if out:
        torch.cuda.memory._record_memory_history(max_entries=10_000_000)
    config = GPT2Config(n_layer=layers, activation_function=gelu, attn_implementation=attention)
    model = GPT2LMHeadModel(config).cuda().train()
    if checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    for _ in range(STEPS):
        ids = torch.randint(0, config.vocab_size, (BATCH, LENGTH), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast, cache_enabled=cache):
            loss = loss_of(model, ids, chunks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    if out:
        torch.cuda.memory._dump_snapshot(str(out / f"{base}.pickle"))
        torch.cuda.memory._record_memory_history(enabled=None)
    peak = torch.cuda.memory_stats()["active_bytes.all.peak"]
    del model, optimizer, loss, ids
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return peak


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    bases = {
        "gpt2": ({}, {"logits": {"chunks": 8}, "activations": {"checkpoints": True}, "foreach_optimizer": {"fused": True}, "written_out": {"gelu": "gelu_pytorch_tanh"}}),
        "gpt2_eager": ({"attention": "eager"}, {"attention_scores": {"attention": "sdpa"}, "activations": {"checkpoints": True}}),
        "gpt2_autocast": ({"autocast": True}, {"autocast_copies": {"cache": False}, "logits": {"chunks": 8}, "activations": {"checkpoints": True}}),
        "gpt2_chunked": ({"chunks": 8}, {"activations": {"chunks": 8, "checkpoints": True}, "written_out": {"chunks": 8, "gelu": "gelu_pytorch_tanh"}, "foreach_optimizer": {"chunks": 8, "fused": True}}),
    }
    found = []
    run("warm-up")
    for base, (options, changes) in bases.items():
        found.append({"base": base, "change": None, "peak": run(base, out=out, **options)})
        for change, other in changes.items():
            found.append({"base": base, "change": change, "peak": run(base, **{**options, **other})})
            print(found[-1], flush=True)
            (out / "savings.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
