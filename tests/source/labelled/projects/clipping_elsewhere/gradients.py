import torch


def clip_gradient(optimizer, limit):
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None:
                weight.grad.data.clamp_(-limit, limit)  # AMP003: flag


def gradient_clip_level(epoch):
    return 1.0 / (epoch + 1)
