"""Settings as attributes of a class that is never instantiated."""

import torch
from torch.utils.data import DataLoader


class CFG:
    batch_size = 20
    valid_batch_size = 50


train_loader = DataLoader(train_set, batch_size=CFG.batch_size, shuffle=True)  # RUN009: flag
valid_loader = DataLoader(valid_set, batch_size=CFG.valid_batch_size)  # RUN009: quiet
scaler = torch.amp.GradScaler("cuda")
for images, labels in train_loader:
    with torch.autocast("cuda"):
        loss = criterion(model(images.cuda()), labels.cuda())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
