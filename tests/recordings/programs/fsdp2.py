import tempfile
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
from truth import T

device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device == "cuda" else "gloo", store=dist.FileStore(tempfile.mktemp(), 1), rank=0, world_size=1)
if device == "cuda":
    torch.cuda.set_device(0)
T.begin()
T.phase("load")
mesh = init_device_mesh(device, (1,))
model = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=8, vocab_size=8192, use_cache=False)).to(device)
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
T.opt(optimizer)
T.at("loaded")
for step in range(5):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    ids = torch.randint(0, 8192, (8, 192)).to(device)
    T.phase("forward", step)
    out = model(ids, labels=ids)
    T.at("forward_end", step, inputs=ids, outputs=out)
    T.phase("backward", step)
    out.loss.backward()
    T.at("backward_end", step, inputs=ids, outputs=out)
    T.phase("optimizer", step)
    optimizer.step()
    T.at("optimizer_end", step, inputs=ids, outputs=out)
    optimizer.zero_grad()
    T.at("zero_grad_end", step, inputs=ids, outputs=out)
T.finish()
