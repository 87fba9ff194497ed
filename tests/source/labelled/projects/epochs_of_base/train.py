"""The loop over epochs is in the class that the trainer derives from."""

import torch
from base import BaseTrainer


class Trainer(BaseTrainer):
    def train_epoch(self, epoch):
        scaler = torch.amp.GradScaler("cuda")  # AMP011: flag
        for batch in self.loader(epoch):
            self.optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = self.model(batch)
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()

    def train_stage(self, stage):
        scaler = torch.amp.GradScaler("cuda")  # AMP011: quiet
        for batch in stage:
            self.optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = self.model(batch)
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()
