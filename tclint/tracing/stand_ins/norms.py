"""apex.normalization: fused norms, as torch has them."""

from __future__ import annotations

from typing import Any

from torch import nn


class FusedLayerNorm(nn.LayerNorm):
    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, **_: Any
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class MixedFusedLayerNorm(FusedLayerNorm):
    pass


class FusedRMSNorm(nn.RMSNorm):
    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, **_: Any
    ) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class MixedFusedRMSNorm(FusedRMSNorm):
    pass
