import timm
import torch
from truth import T

T.begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
T.phase("load")
model = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=100, img_size=160, depth=6).to(device)
T.model(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
T.opt(optimizer)
criterion = torch.nn.CrossEntropyLoss()
T.at("loaded")


def one_epoch(loader_len, first):
    model.train()
    for i in range(first, first + loader_len):
        T.step(i)
        T.phase("input", i)
        images = torch.randn(16, 3, 160, 160).to(device)
        target = torch.randint(0, 100, (16,)).to(device)
        T.phase("forward", i)
        output = model(images)
        loss = criterion(output, target)
        T.at("forward_end", i, inputs=[images, target], outputs=[output, loss])
        T.phase("zero_grad", i)
        optimizer.zero_grad()
        T.at("zero_grad_end", i, inputs=[images, target], outputs=[output, loss])
        T.phase("backward", i)
        loss.backward()
        T.at("backward_end", i, inputs=[images, target], outputs=[output, loss])
        T.phase("optimizer", i)
        optimizer.step()
        T.at("optimizer_end", i, inputs=[images, target], outputs=[output, loss])


one_epoch(2, 0)
T.mid()
one_epoch(3, 2)
T.finish()
