"""Lightning scales in its precision plugin, also under manual optimization."""

import pytorch_lightning as pl
import torch


class Module(pl.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        with torch.cuda.amp.autocast():
            loss = self.net(batch).mean()
        self.manual_backward(loss)  # AMP001: quiet
        loss.backward()  # AMP001: quiet  AMP006: quiet
        optimizer.step()
