"""Reading the loss scale to skip the scheduler after an overflow, or to log it, unscales no gradient."""

import torch
from torch.nn.utils import clip_grad_norm_


def train_one_epoch(net, batches, optimizer, scheduler, scaler, history):
    for images, labels in batches:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        clip_grad_norm_(net.parameters(), 1.0)  # AMP003: flag
        scale_before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= scale_before:
            scheduler.step()
        history.append({"loss": loss.item(), "scale": scaler.get_scale()})


def bypass(net, batches, optimizer, scaler):
    for images, labels in batches:
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        print(f"scale {scaler.get_scale()}")
        optimizer.step()  # AMP005: flag
        scaler.update()
