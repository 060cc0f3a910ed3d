import torch
import timm
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = timm.create_model("convnext_atto", pretrained=False, num_classes=50).to(device)
T.model(model)


class OffloadedAdamW:
    """Master weights and moments on the CPU, as ZeRO-Offload has them."""

    def __init__(self, params, lr):
        self.gpu = list(params)
        self.cpu = [p.detach().float().cpu().requires_grad_() for p in self.gpu]
        self.inner = torch.optim.AdamW(self.cpu, lr=lr)
        self.state = {}

    def step(self):
        for g, c in zip(self.gpu, self.cpu):
            c.grad = g.grad.float().cpu()
        self.inner.step()
        with torch.no_grad():
            for g, c in zip(self.gpu, self.cpu):
                g.copy_(c.to(g.device))

    def zero_grad(self):
        for g in self.gpu:
            g.grad = None


optimizer = OffloadedAdamW(model.parameters(), 1e-3)
T.at("loaded")
for step in range(4):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    x, y = torch.randn(8, 3, 128, 128).to(device), torch.randint(0, 50, (8,)).to(device)
    T.phase("forward", step)
    loss = torch.nn.functional.cross_entropy(model(x), y)
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
