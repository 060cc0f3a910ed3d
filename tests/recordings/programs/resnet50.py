import torch
import torch.nn.functional as F
import torchvision
from truth import T

T.begin()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
T.phase("load")
net = torchvision.models.resnet50(num_classes=100).to(device, memory_format=torch.channels_last)
T.model(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
T.opt(opt)
T.at("loaded")


def train(steps, first=0):
    net.train()
    for step in range(first, first + steps):
        T.step(step)
        T.phase("input", step)
        x = torch.randn(16, 3, 128, 128).to(device, non_blocking=True).contiguous(memory_format=torch.channels_last)
        y = torch.randint(0, 100, (16,)).to(device, non_blocking=True)
        T.phase("zero_grad", step)
        opt.zero_grad()
        T.at("zero_grad_end", step, inputs=[x, y])
        T.phase("forward", step)
        logits = net(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        T.at("forward_end", step, inputs=[x, y], outputs=[logits, loss])
        T.phase("backward", step)
        loss.backward()
        T.at("backward_end", step, inputs=[x, y], outputs=[logits, loss])
        T.phase("optimizer", step)
        opt.step()
        T.at("optimizer_end", step, inputs=[x, y], outputs=[logits, loss])


@torch.no_grad()
def validate():
    net.eval()
    for i in range(2):
        T.phase("evaluation", i)
        x = torch.randn(16, 3, 128, 128).to(device).contiguous(memory_format=torch.channels_last)
        logits = net(x)
        T.at("inside_evaluation", i, inputs=x, outputs=logits)
        logits.argmax(1).cpu()


train(2)
T.mid()
train(2, 2)
validate()
T.finish()
