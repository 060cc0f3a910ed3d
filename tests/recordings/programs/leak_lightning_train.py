import os
import lightning as L
import torch
import torch.nn.functional as F
import torchvision
from truth import T

LEAK = os.environ.get("LEAK") == "1"
T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.resnet18(num_classes=10)
        self.outs = []

    def training_step(self, batch, i):
        x, y = batch
        T.label("inputs", batch)
        out = self.net(x)
        loss = F.cross_entropy(out, y)
        if LEAK:
            self.outs.append({"loss": loss, "image": x, "out": out})  # LEAK
        else:
            self.outs.append({"loss": loss.item()})
        return loss

    def configure_optimizers(self):
        o = torch.optim.SGD(self.parameters(), lr=0.01)
        T.opt(o)
        return o

    def on_fit_start(self):
        T.model(self)

    def on_train_batch_start(self, batch, i):
        T.step(self.global_step)

    def on_train_batch_end(self, out, batch, i):
        T.at("step_end", i)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 10 * 16

    def __getitem__(self, i):
        return torch.randn(3, 64, 64), i % 10


loader = torch.utils.data.DataLoader(Data(), batch_size=16)
trainer = L.Trainer(max_epochs=1, accelerator="gpu" if device == "cuda" else "cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Net(), loader)
T.finish()
