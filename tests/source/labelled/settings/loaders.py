import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

device = torch.device("cuda")


class Files(Dataset):
    def __getitem__(self, index):
        return np.load(self.paths[index])


class Stream(IterableDataset):
    def __iter__(self):
        yield np.load(next(self.paths))


def train(model, optimizer, options):
    files = DataLoader(Files("a"), 30, shuffle=True)  # RUN006: flag  # RUN007: flag  # RUN009: flag
    stream = DataLoader(Stream(), batch_size=32)  # RUN006: quiet  # RUN007: quiet
    given = DataLoader(Files("a"), **options)  # RUN006: quiet  # RUN007: quiet  # RUN009: quiet
    buckets = DataLoader(Files("a"), batch_sampler=options["buckets"], num_workers=2)  # RUN009: quiet
    pinned = DataLoader(Files("b"), batch_size=32, num_workers=4, pin_memory=True)  # RUN007: quiet
    validation = DataLoader(Files("c"), batch_size=30, num_workers=4)  # RUN009: quiet
    for batch in files:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch.to(device)).mean()  # RUN008: quiet
        loss.backward()
        optimizer.step()
    for batch in pinned:
        loss = model(batch.cuda(non_blocking=True)).mean()  # RUN008: quiet
        loss.backward()
        optimizer.step()
    return stream, given, validation, buckets
