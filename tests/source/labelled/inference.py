"""Evaluation and feature extraction under autocast beside training in float32, with the same names."""

import torch
import torch.nn.functional as F


def validate_then_train(model, val_batch, train_batch, optimizer):
    model.eval()
    with torch.inference_mode(), torch.autocast("cuda"):
        loss = model(val_batch)
    print(loss.item())
    model.train()
    loss = model(train_batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def distill(student, teacher, images, optimizer):
    with torch.cuda.amp.autocast(), torch.no_grad():
        targets = teacher(images)
    loss = F.mse_loss(student(images), targets)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def frozen_features(backbone, head, images, labels, optimizer):
    with torch.autocast("cuda"):
        features = backbone(images)
    logits = head(features.detach().float())
    loss = F.cross_entropy(logits, labels)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()


def switched(model, batch, optimizer, phase):
    if phase == "val":
        with torch.autocast("cuda"):
            loss = model(batch)
        return loss.item()
    loss = model(batch)
    loss.backward()  # AMP001: quiet  AMP006: quiet
    optimizer.step()
    return loss.item()


def by_phase(model, batch, optimizer, training):
    if not training:
        with torch.autocast("cuda"):
            loss = model(batch)
    else:
        loss = model(batch)
    if training:
        loss.backward()  # AMP001: quiet  AMP006: quiet
        optimizer.step()
