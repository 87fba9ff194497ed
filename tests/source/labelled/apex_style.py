"""apex.amp next to a loop that was half moved to torch.amp."""

import torch
from apex import amp


def train(model, loader, optimizer, criterion, native):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for images, labels in loader:
        with torch.cuda.amp.autocast(enabled=native):
            loss = criterion(model(images), labels)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()  # AMP001: quiet  AMP006: quiet
        optimizer.step()
