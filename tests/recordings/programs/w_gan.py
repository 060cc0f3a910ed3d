import torch
import torch.nn as nn
from truth import T


def block(a, b):
    return nn.Sequential(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))


class Generator(nn.Module):
    def __init__(self, z=64, c=64):
        super().__init__()
        self.first = nn.Sequential(nn.ConvTranspose2d(z, 4 * c, 4, bias=False), nn.BatchNorm2d(4 * c), nn.ReLU(True))
        self.main = nn.Sequential(block(4 * c, 2 * c), block(2 * c, c), block(c, c), nn.ConvTranspose2d(c, 3, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.main(self.first(z))


class Critic(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        L = []
        for a, b in ((3, c), (c, 2 * c), (2 * c, 4 * c)):
            L += [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)]
        self.main = nn.Sequential(*L, nn.Flatten(), nn.Linear(4 * c * 64, 1))

    def forward(self, x):
        return self.main(x).squeeze(1)


T.begin()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
T.phase("load")
netG, netD = Generator().to(device), Critic().to(device)
T.model(netG, netD)
optD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
T.opt(optD, optG)
bce = nn.BCEWithLogitsLoss()
T.at("loaded")
for step in range(3):
    if step == 2:
        T.mid()
    T.step(step)
    T.phase("input", step)
    real = torch.randn(32, 3, 64, 64).to(device)
    T.phase("forward", step)
    netD.zero_grad()
    errD_real = bce(netD(real), torch.ones(32, device=device))
    T.at("forward_end", step, inputs=real, outputs=errD_real)
    T.phase("backward", step)
    errD_real.backward()
    T.phase("forward", step)
    noise = torch.randn(32, 64, 1, 1, device=device)
    fake = netG(noise)
    errD_fake = bce(netD(fake.detach()), torch.zeros(32, device=device))
    T.at("forward_end", step, inputs=[real, noise], outputs=[errD_real, fake, errD_fake])
    T.phase("backward", step)
    errD_fake.backward()
    T.at("backward_end", step, inputs=[real, noise], outputs=[errD_real, fake, errD_fake])
    T.phase("optimizer", step)
    optD.step()
    T.at("optimizer_end", step, inputs=[real, noise], outputs=[errD_real, fake, errD_fake])
    T.phase("forward", step)
    netG.zero_grad()
    errG = bce(netD(fake), torch.ones(32, device=device))
    T.at("forward_end", step, inputs=[real, noise], outputs=[errD_real, fake, errD_fake, errG])
    T.phase("backward", step)
    errG.backward()
    T.at("backward_end", step, inputs=[real, noise], outputs=[errD_real, fake, errD_fake, errG])
    T.phase("optimizer", step)
    optG.step()
    T.at("optimizer_end", step, inputs=[real, noise], outputs=[errD_real, fake, errD_fake, errG])
T.finish()
