"""A helper of another file clips, and a star import brings torch."""

from common import *
from gradients import clip_gradient, gradient_clip_level


def train(model, loader, optimizer, criterion, epochs):
    scaler = torch.cuda.amp.GradScaler(init_scale=1024)
    for epoch in range(epochs):
        limit = gradient_clip_level(epoch)  # AMP003: quiet
        for images, masks in loader:
            optimizer.zero_grad()
            with torch.autocast("cuda"):
                loss = criterion(model(images.cuda()), masks.cuda())
            scaler.scale(loss).backward()
            clip_gradient(optimizer, limit)  # AMP003: flag
            scaler.step(optimizer)
            scaler.update()


def train_unscaled_first(model, loader, optimizer, criterion):
    scaler = torch.cuda.amp.GradScaler()
    for images, masks in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(images.cuda()), masks.cuda())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_gradient(optimizer, 0.5)  # AMP003: quiet
        scaler.step(optimizer)
        scaler.update()


def train_epoch_bfloat16(model, loader, optimizer, criterion):
    scaler = torch.amp.GradScaler("cuda")  # AMP011: flag
    for images, masks in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(images.cuda()), masks.cuda())
        scaler.scale(loss).backward()  # AMP008: flag
        scaler.step(optimizer)
        scaler.update()


def main(model, loader):
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    for epoch in range(20):
        train_epoch_bfloat16(model, loader, optimizer, nn.CrossEntropyLoss())
        print(math.exp(-epoch))
