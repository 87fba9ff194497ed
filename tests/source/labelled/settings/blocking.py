import torch
from torch.utils.data import DataLoader


def train(model, optimizer, dataset):
    loader = DataLoader(dataset, batch_size=20, num_workers=4, pin_memory=True)  # RUN009: quiet
    for images, labels in loader:
        images = images.cuda()  # RUN008: flag
        labels = labels.cuda(non_blocking=True)  # RUN008: quiet
        noise = torch.randn(20, 100).cuda()  # RUN015: flag
        mask = torch.ones(20, 100, device="cuda")  # RUN015: quiet
        loss = (model(images + noise * mask) - labels).square().mean()
        loss.backward()
        optimizer.step()
        print(loss)  # RUN014: flag
