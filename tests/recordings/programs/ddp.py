import tempfile
import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from truth import T

device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device == "cuda" else "gloo", store=dist.FileStore(tempfile.mktemp(), 1), rank=0, world_size=1)
T.begin()
T.phase("load")
net = torchvision.models.resnet18(num_classes=100).to(device)
ddp = DDP(net, device_ids=[0] if device == "cuda" else None)
T.model(net)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
T.opt(optimizer)
T.at("loaded")
for step in range(5):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    x, y = torch.randn(16, 3, 96, 96).to(device), torch.randint(0, 100, (16,)).to(device)
    T.phase("forward", step)
    loss = torch.nn.functional.cross_entropy(ddp(x), y)
    T.at("forward_end", step, inputs=[x, y], outputs=loss)
    T.phase("backward", step)
    loss.backward()
    T.at("backward_end", step, inputs=[x, y], outputs=loss)
    T.phase("optimizer", step)
    optimizer.step()
    T.at("optimizer_end", step, inputs=[x, y], outputs=loss)
    optimizer.zero_grad()
    T.at("zero_grad_end", step, inputs=[x, y], outputs=loss)
T.finish()
