"""A competition's script: every choice stands in one class."""

import timm
import torch
from torch import nn
from torch.utils.data import DataLoader


class Choices:
    amp = True
    backbone = "tf_efficientnetv2_s"
    classes = 11
    per_step = 20
    later_amp = False


class Classifier(nn.Module):
    def __init__(self, choices):
        super().__init__()
        self.choices = choices
        self.body = timm.create_model(self.choices.backbone, pretrained=True, num_classes=0)
        self.head = nn.LazyLinear(self.choices.classes)

    def forward(self, images):
        return self.head(self.body(images))


def train(model, loader, optimizer, scaler):
    for images, labels in loader:
        images = images.to("cuda", non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16, enabled=Choices.amp):
            loss = nn.functional.cross_entropy(model(images), labels.cuda(non_blocking=True))
        optimizer.zero_grad()
        scaler.scale(loss).backward()  # RUN001: flag
        scaler.step(optimizer)
        scaler.update()


def main(dataset, sampler):
    options = {"num_workers": 4, "pin_memory": True}
    loader = DataLoader(dataset, batch_size=Choices.per_step, sampler=sampler, **options)  # RUN009: flag
    model = Classifier(Choices).cuda()  # FMT001: flag
    model = nn.parallel.DistributedDataParallel(model, device_ids=[0])
    train(model, loader, torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda"))
