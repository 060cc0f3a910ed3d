"""plan_warm.py OUT resnet|gpt|swin BATCH 0|1: five steps, recorded from the start or, after a warm-up of two, from the third; with PyTorch's own peaks."""
import sys, json, torch, torchvision
from torch.nn import functional as F
from twins import LM, D
out, name, b, warm = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(0)
def rec(): torch.cuda.memory._record_memory_history(max_entries=300000, stacks='python')
if not warm: rec()
if name == 'resnet':
    m = torchvision.models.resnet34(num_classes=100).to(D); opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    def step():
        x, y = torch.randn(b, 3, 160, 160, device=D), torch.randint(0, 100, (b,), device=D)
        loss = F.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
elif name == 'gpt':
    m = LM(16000, 512, 6).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    def step():
        x = torch.randint(0, 16000, (b, 257), device=D)
        with torch.autocast('cuda', torch.bfloat16): loss = F.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        opt.zero_grad(); loss.backward(); opt.step()
else:
    m = torchvision.models.swin_t(num_classes=100).to(D); opt = torch.optim.AdamW(m.parameters(), 1e-4)
    def step():
        x, y = torch.randn(b, 3, 224, 224, device=D), torch.randint(0, 100, (b,), device=D)
        loss = F.cross_entropy(m(x), y); opt.zero_grad(); loss.backward(); opt.step()
for i in range(5):
    if warm and i == 2: torch.cuda.synchronize(); rec()
    step()
torch.cuda.synchronize()
s = torch.cuda.memory_stats()
torch.cuda.memory._dump_snapshot(f'{out}/{name}_w{warm}_b{b}.pickle')
json.dump(dict(reserved=s['reserved_bytes.all.peak'], allocated=s['allocated_bytes.all.peak']), open(f'{out}/{name}_w{warm}_b{b}.json', 'w'))
