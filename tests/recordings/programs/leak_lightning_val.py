import os
import lightning as L
import timm
import torch
import torch.nn.functional as F
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = timm.create_model("resnet10t", pretrained=False, num_classes=10)
        self.feats = []

    def validation_step(self, batch, i):
        x, y = batch
        T.label("inputs", batch)
        f = self.net.forward_features(x)
        if not LEAK:
            f = f.mean((2, 3))
            self.feats.clear()
        self.feats.append(f)  # LEAK

    def on_validation_start(self):
        T.model(self)

    def on_validation_batch_start(self, batch, i):
        T.step(i)

    def on_validation_batch_end(self, out, batch, i):
        T.at("step_end", i)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 12 * 16

    def __getitem__(self, i):
        return torch.randn(3, 96, 96), i % 10


loader = torch.utils.data.DataLoader(Data(), batch_size=16)
trainer = L.Trainer(accelerator="gpu" if device == "cuda" else "cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.validate(Net(), loader)
T.finish()
