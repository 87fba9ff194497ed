"""Vision beyond classification: detection with its post-processing, warping, point clouds, video."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv_block(inner: int, outer: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(inplace=True)
    )


def suppress(boxes: Tensor, scores: Tensor, threshold: float = 0.5) -> Tensor:
    """Non-maximum suppression in plain Python, as many repositories have it."""
    order = scores.argsort(descending=True)
    kept = []
    while order.numel() > 0:
        best = order[0]
        kept.append(best)
        if order.numel() == 1:
            break
        rest = boxes[order[1:]]
        top_left = torch.max(boxes[best][:2], rest[:, :2])
        bottom_right = torch.min(boxes[best][2:], rest[:, 2:])
        overlap = (bottom_right - top_left).clamp(min=0).prod(dim=1)
        areas = (rest[:, 2] - rest[:, 0]) * (rest[:, 3] - rest[:, 1])
        order = order[1:][overlap / (areas + 1e-6) <= threshold]
        if len(kept) >= 5:
            break
    return torch.stack(kept)


class Detector(nn.Module):
    def __init__(self, classes: int = 20, anchors: int = 3) -> None:
        super().__init__()
        self.backbone = nn.Sequential(*(conv_block(a, b, 2) for a, b in ((3, 32), (32, 64), (64, 128))))
        self.head = nn.Conv2d(128, anchors * (5 + classes), 1)
        self.anchors, self.classes = anchors, classes

    def forward(self, images: Tensor) -> list[Tensor]:
        raw = self.head(self.backbone(images))
        batch, _, height, width = raw.shape
        raw = raw.view(batch, self.anchors, 5 + self.classes, height, width).permute(0, 1, 3, 4, 2)
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        grid = torch.stack([columns, rows], dim=-1).to(raw)
        centres, sizes = raw[..., :2].sigmoid() + grid, raw[..., 2:4].exp()
        boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], dim=-1).view(batch, -1, 4)
        scores = raw[..., 4].sigmoid().view(batch, -1)
        results = []
        for image_boxes, image_scores in zip(boxes, scores, strict=True):
            confident = image_scores > 0.3
            if not confident.any():
                continue
            candidates = image_boxes[confident]
            results.append(candidates[suppress(candidates, image_scores[confident])])
        return results


def build_detector_with_suppression() -> tuple[nn.Module, Tensor]:
    return Detector(), torch.zeros(2, 3, 128, 128)


class RegionHead(nn.Module):
    """Regions cropped by grid_sample, their number decided by top-k."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(conv_block(3, 64, 4), conv_block(64, 64))
        self.objectness, self.deltas = nn.Conv2d(64, 1, 1), nn.Conv2d(64, 4, 1)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64 * 7 * 7, 256), nn.ReLU(), nn.Linear(256, 21))

    def forward(self, images: Tensor) -> Tensor:
        features = self.backbone(images)
        chosen = self.objectness(features).flatten(1).topk(16, dim=1).indices
        deltas = self.deltas(features).flatten(2).gather(2, chosen[:, None].expand(-1, 4, -1))
        theta = torch.zeros(deltas.shape[0] * 16, 2, 3, device=images.device)
        flat = deltas.transpose(1, 2).reshape(-1, 4)
        theta[:, 0, 0], theta[:, 1, 1] = flat[:, 2].sigmoid(), flat[:, 3].sigmoid()
        theta[:, :, 2] = flat[:, :2].tanh()
        grid = F.affine_grid(theta, [theta.shape[0], 64, 7, 7], align_corners=False)
        crops = F.grid_sample(features.repeat_interleave(16, dim=0), grid, align_corners=False)
        return self.head(crops)


def build_region_head() -> tuple[nn.Module, Tensor]:
    return RegionHead(), torch.zeros(2, 3, 128, 128)


class SpatialTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.localization = nn.Sequential(
            nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 10, 5), nn.MaxPool2d(2)
        )
        self.theta = nn.Linear(10 * 3 * 3, 6)
        self.theta.weight.data.zero_()
        self.theta.bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

    def forward(self, x: Tensor) -> Tensor:
        theta = self.theta(self.localization(x).view(-1, 10 * 3 * 3)).view(-1, 2, 3)
        x = F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=True), align_corners=True)
        return F.log_softmax(self.classifier(x), dim=1)


def build_spatial_transformer() -> tuple[nn.Module, Tensor]:
    return SpatialTransformer(), torch.zeros(16, 1, 28, 28)


class PointNet(nn.Module):
    """Farthest-point sampling and ball queries written in tensors, then shared layers."""

    def __init__(self) -> None:
        super().__init__()
        self.local = nn.Sequential(nn.Conv2d(3, 64, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 128, 1))
        self.head = nn.Linear(128, 40)

    def forward(self, points: Tensor) -> Tensor:
        batch, count, _ = points.shape
        chosen = torch.zeros(batch, 16, dtype=torch.long, device=points.device)
        distance = torch.full((batch, count), 1e10, device=points.device)
        farthest = torch.randint(0, count, (batch,), device=points.device)
        rows = torch.arange(batch, device=points.device)
        for position in range(16):
            chosen[:, position] = farthest
            centre = points[rows, farthest].unsqueeze(1)
            squared = ((points - centre) ** 2).sum(-1)
            closer = squared < distance
            distance[closer] = squared[closer]
            farthest = distance.max(-1).indices
        centres = points[rows[:, None], chosen]
        neighbours = torch.cdist(centres, points).topk(32, largest=False).indices
        groups = points[rows[:, None, None], neighbours] - centres.unsqueeze(2)
        return self.head(self.local(groups.permute(0, 3, 2, 1)).amax(dim=(2, 3)))


def build_point_net() -> tuple[nn.Module, Tensor]:
    return PointNet(), torch.zeros(2, 256, 3)


def build_video_network() -> tuple[nn.Module, Tensor]:
    stages = [
        nn.Sequential(
            nn.Conv3d(inner, outer, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
            nn.Conv3d(outer, outer, (3, 1, 1), padding=(1, 0, 0), bias=False),
            nn.BatchNorm3d(outer),
            nn.ReLU(),
        )
        for inner, outer in ((3, 45), (45, 64), (64, 128))
    ]
    return nn.Sequential(*stages, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(128, 400)), torch.zeros(
        2, 3, 8, 64, 64
    )


class UnfoldAttention(nn.Module):
    """Local attention over 3x3 windows by unfold, folded back; channels-last inside."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        query, key, value = self.qkv(x).chunk(3, dim=1)
        batch, channels, height, width = query.shape
        windows = F.unfold(key, 3, padding=1).view(batch, channels, 9, height * width)
        weights = torch.einsum("bcn,bckn->bkn", query.flatten(2), windows).softmax(dim=1)
        values = F.unfold(value, 3, padding=1).view(batch, channels, 9, height * width)
        mixed = torch.einsum("bkn,bckn->bckn", weights, values).flatten(1, 2)
        return F.fold(mixed, (height, width), 3, padding=1)


def build_unfold_attention() -> tuple[nn.Module, Tensor]:
    return UnfoldAttention(), torch.zeros(2, 32, 24, 24)


class Siamese(nn.Module):
    """One tower called three times; the loss is part of the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            conv_block(3, 32, 2), conv_block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(*(F.normalize(self.tower(x)) for x in (anchor, positive, negative)))


def build_siamese() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Siamese(), tuple(torch.zeros(4, 3, 32, 32) for _ in range(3))


class SuperResolution(nn.Module):
    """Pixel shuffle, and a global skip by bicubic interpolation to a size computed from the input."""

    def __init__(self, scale: int = 3) -> None:
        super().__init__()
        self.scale = scale
        self.body = nn.Sequential(
            nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, scale**2, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        size = [side * self.scale for side in x.shape[-2:]]
        return F.pixel_shuffle(self.body(x), self.scale) + F.interpolate(x, size=size, mode="bicubic")


def build_super_resolution() -> tuple[nn.Module, Tensor]:
    return SuperResolution(), torch.zeros(4, 1, 40, 40)
