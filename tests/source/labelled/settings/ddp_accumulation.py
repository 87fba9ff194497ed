import torch
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, loader, optimizer, rank, accumulate):
    model = DDP(model, device_ids=[rank])  # RUN013: quiet
    for step, batch in enumerate(loader):
        loss = model(batch).mean() / accumulate
        loss.backward()  # RUN018: flag
        if (step + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()


def train_plainly(model, loader, optimizer):
    for step, batch in enumerate(loader):
        loss = model(batch).mean()
        loss.backward()  # RUN018: quiet
        optimizer.step()
        if step % 100 == 0:
            torch.save(model.state_dict(), "last.pt")
