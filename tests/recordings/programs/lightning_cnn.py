import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        c = []
        for a, b in ((3, 32), (32, 64), (64, 128), (128, 256)):
            c += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]
        self.net = nn.Sequential(*c, nn.Flatten(), nn.Linear(256 * 16, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
        self.count = 0

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, i):
        x, y = batch
        T.phase("forward", self.global_step)
        loss = F.cross_entropy(self(x), y)
        T.at("forward_end", self.global_step, inputs=batch, outputs=loss)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, i):
        x, y = batch
        T.phase("evaluation", self.global_step)
        out = self(x)
        T.at("inside_evaluation", self.global_step, inputs=batch, outputs=out)
        self.log("val", F.cross_entropy(out, y))

    def configure_optimizers(self):
        o = torch.optim.AdamW(self.parameters(), lr=1e-3)
        T.opt(o)
        return o

    def on_fit_start(self):
        T.model(self)
        T.at("loaded")

    def on_train_batch_start(self, batch, i):
        if self.global_step == 2:
            T.mid()
        T.step(self.global_step)

    def on_before_backward(self, loss):
        T.phase("backward", self.global_step)

    def on_after_backward(self):
        T.at("backward_end", self.global_step)

    def on_before_optimizer_step(self, optimizer):
        T.phase("optimizer", self.global_step)

    def on_train_batch_end(self, out, batch, i):
        T.at("optimizer_end", self.global_step - 1)
        T.phase("between", self.global_step)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * 64

    def __getitem__(self, i):
        return torch.randn(3, 64, 64), i % 10


T.phase("load")
loader = torch.utils.data.DataLoader(Data(), batch_size=64)
trainer = L.Trainer(max_epochs=2, limit_train_batches=4, limit_val_batches=2, accelerator="gpu" if device == "cuda" else "cpu", devices=1, logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Digits(), loader, loader)
T.finish()
