"""The scaler sits in the loss function; the loop looks like one without."""

import torch


class ScaledCriterion(torch.nn.Module):
    def __init__(self, criterion, scaler):
        super().__init__()
        self.criterion = criterion
        self.scaler = scaler

    def forward(self, outputs, labels):
        return self.scaler.scale(self.criterion(outputs, labels))


def train(model, loader, optimizer, criterion):
    scaler = torch.amp.GradScaler("cuda")
    objective = ScaledCriterion(criterion, scaler)
    for images, labels in loader:
        with torch.autocast("cuda"):
            loss = objective(model(images), labels)
        loss.backward()  # AMP001: quiet  AMP006: quiet
        optimizer_step = scaler.step
        optimizer_step(optimizer)
        scaler.update()
        optimizer.step()  # AMP005: flag
