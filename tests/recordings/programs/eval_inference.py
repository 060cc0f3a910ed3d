import torch
import torchvision
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = torchvision.models.efficientnet_b0(num_classes=100).to(device).eval()
T.model(model)
T.at("loaded")
correct = torch.zeros((), device=device, dtype=torch.long)
T.label("outputs", correct)


@torch.inference_mode()
def evaluate(first, last):
    global correct
    for i in range(first, last):
        T.step(i)
        T.phase("evaluation", i)
        x = torch.randn(16, 3, 160, 160).to(device)
        y = torch.randint(0, 100, (16,)).to(device)
        pred = model(x)
        T.at("inside_evaluation", i, inputs=[x, y], outputs=[pred, correct])
        correct = correct + (pred.argmax(-1) == y).sum()
        T.label("outputs", correct)


evaluate(0, 2)
T.mid()
evaluate(2, 6)
T.finish()
