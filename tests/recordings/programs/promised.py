"""promised.py OUT: records programs that waste memory, each with the same program mended, to hold what findings promise against what
PyTorch then had. The mended ones run without a history: recomputing a checkpointed layer under one with stacks fails in PyTorch 2.11."""
import copy
import functools
import gc
import sys

import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

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


class Attention(nn.Module):
    def __init__(self, is_fused):
        super().__init__()
        self.qkv, self.out, self.is_fused = nn.Linear(512, 3 * 512), nn.Linear(512, 512), is_fused

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 8, 64).permute(2, 0, 3, 1, 4)
        if self.is_fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / 8
            mask = torch.ones(length, length, device=x.device, dtype=torch.bool).tril()
            y = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, 512))


class Block(nn.Module):
    def __init__(self, is_fused, is_checkpointed):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(512), nn.LayerNorm(512)])
        self.attention, self.is_checkpointed = Attention(is_fused), is_checkpointed
        self.mlp = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))

    def forward(self, x):
        return checkpoint(self.layer, x, use_reentrant=False) if self.is_checkpointed else self.layer(x)

    def layer(self, x):
        for norm, part in zip(self.norms, (self.attention, self.mlp)):
            x = x + part(norm(x))
        return x


def steps(model, parameters, loss_of, number=3, **settings):
    optimizer = settings.pop("optimizer", torch.optim.SGD)(parameters, lr=0.01, **settings)
    for _ in range(number):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()


def attention(is_fused, is_checkpointed):
    model = nn.Sequential(*[Block(is_fused, is_checkpointed) for _ in range(6)]).cuda()
    steps(model, model.parameters(), lambda m: m(torch.randn(8, 1024, 512, device="cuda")).square().mean())


def loss(chunks):
    body, head = nn.Sequential(*[Block(True, False) for _ in range(4)]).cuda(), nn.Linear(512, 50257, bias=False).cuda()

    def part(hidden, labels):
        return F.cross_entropy(head(hidden).float(), labels, reduction="sum")

    def whole(model):
        x, labels = torch.randn(8, 1024, 512, device="cuda"), torch.randint(0, 50257, (8 * 1024,), device="cuda")
        hidden = model(x).flatten(0, 1)
        if chunks == 1:
            return part(hidden, labels) / labels.numel()
        parts = zip(hidden.chunk(chunks), labels.chunk(chunks))
        return sum(checkpoint(part, h, y, use_reentrant=False) for h, y in parts) / labels.numel()

    steps(body, [*body.parameters(), *head.parameters()], whole)


def adam(**settings):
    model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
    work = lambda m: m(torch.randn(64, 4096, device="cuda")).square().mean()
    steps(model, model.parameters(), work, number=4, optimizer=torch.optim.AdamW, **settings)


def streams():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(2 * GIB / total)
    used = [torch.cuda.Stream() for _ in range(3)]
    for i in range(12):
        with torch.cuda.stream(used[i % 3]):
            blocks = [torch.empty(100 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(10)]
            torch.cuda.synchronize()
            del blocks


def resnet(is_checkpointed):
    model = torchvision.models.resnet50().cuda()
    if is_checkpointed:
        for block in [block for name, stage in model.named_children() if name.startswith("layer") for block in stage]:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    images = lambda m: m(torch.randn(32, 3, 224, 224, device="cuda")).square().mean()
    steps(model, model.parameters(), images, momentum=0.9)


def validate(has_graph):
    model = nn.Sequential(*[Block(True, False) for _ in range(6)]).cuda()
    work = lambda m, n: m(torch.randn(n, 1024, 512, device="cuda")).square().mean()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def validation():
        with torch.set_grad_enabled(has_graph):
            return sum(work(model, 16) for _ in range(4)).item()

    for _ in range(2):
        for _ in range(3):
            work(model, 4).backward()
            optimizer.step()
            optimizer.zero_grad()
        validation()


def predict(**settings):
    data = [{"input_ids": torch.randint(0, 50257, (256,)), "labels": torch.randint(0, 50257, (256,))} for _ in range(64)]
    settings = TrainingArguments(f"{out}/trainer", max_steps=4, per_device_train_batch_size=4, per_device_eval_batch_size=4, report_to=[], save_strategy="no", **settings)
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=50257))
    count = lambda result: {"count": len(result.predictions)}
    trainer = Trainer(model, settings, train_dataset=data, eval_dataset=data, compute_metrics=count)
    trainer.train()
    trainer.evaluate()


def distill(has_graph):
    teacher, student = torchvision.models.resnet101().cuda().eval(), torchvision.models.resnet18().cuda()

    def loss_of(model):
        x = torch.randn(32, 3, 224, 224, device="cuda")
        with torch.set_grad_enabled(has_graph):
            target = teacher(x).softmax(1)
        return F.kl_div(model(x).log_softmax(1), target, reduction="batchmean")

    steps(student, student.parameters(), loss_of, number=4, optimizer=torch.optim.AdamW)


def summed_losses():
    model, head = nn.LSTM(512, 1024, 2, batch_first=True).cuda(), nn.Linear(1024, 5000).cuda()

    def loss_of(model):
        state, total = None, 0
        for _ in range(6):
            y, state = model(torch.randn(64, 64, 512, device="cuda"), state)
            total = total + F.cross_entropy(head(y).flatten(0, 1), torch.randint(0, 5000, (64 * 64,), device="cuda"))
        return total

    steps(model, [*model.parameters(), *head.parameters()], loss_of, optimizer=torch.optim.Adam)


def state_dicts():
    model, kept = torchvision.models.vit_b_16().cuda(), []

    def loss_of(model):
        kept.append(copy.deepcopy(model.state_dict()))
        return model(torch.randn(8, 3, 224, 224, device="cuda")).square().mean()

    steps(model, model.parameters(), loss_of, number=8)


measured("result_kept", lambda: infer(False), True)
measured("result_deleted", lambda: infer(True), False)
measured("autocast_graph", lambda: autocast(True, True), True)
measured("autocast_graph_without_cache", lambda: autocast(False, True), False)
measured("autocast_no_grad", lambda: autocast(True, False), True)
measured("autocast_no_grad_without_cache", lambda: autocast(False, False), False)
measured("train", lambda: train(False), True)
measured("train_checkpointed", lambda: train(True), False)
measured("attention", lambda: attention(False, False), True)
measured("attention_fused", lambda: attention(True, False), False)
measured("attention_checkpointed", lambda: attention(False, True), False)
measured("loss", lambda: loss(1), True)
measured("loss_in_chunks", lambda: loss(8), False)
measured("adam", adam, True)
measured("adam_fused", lambda: adam(fused=True), False)
measured("resnet", lambda: resnet(False), True)
measured("resnet_checkpointed", lambda: resnet(True), False)
measured("validate", lambda: validate(True), True)
measured("validate_without_graph", lambda: validate(False), False)
measured("predict", predict, True)
measured("predict_on_cpu", lambda: predict(eval_accumulation_steps=1), False)
measured("streams", streams, True)
measured("distill", lambda: distill(True), True)
measured("distill_no_grad", lambda: distill(False), True)
measured("summed_losses", summed_losses, True)
measured("state_dicts", state_dicts, True)
