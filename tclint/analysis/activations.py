"""Activations that cuDNN's runtime fusion engine does not apply."""

from __future__ import annotations

from types import MappingProxyType

NOT_FUSABLE = MappingProxyType(
    {
        "leaky_relu": "LeakyReLU",
        "hardswish": "Hardswish",
        "hardsigmoid": "Hardsigmoid",
        "mish": "Mish",
        "prelu": "PReLU",
        "selu": "SELU",
        "celu": "CELU",
        "rrelu": "RReLU",
        "glu": "GLU",
        "log_sigmoid": "LogSigmoid",
        "hardshrink": "Hardshrink",
        "softshrink": "Softshrink",
        "threshold": "Threshold",
    }
)
"""Operators and their layers in torch.nn outside the list of the NVIDIA cuDNN Developer Guide, runtime fusion
engines: relu (clipped too), tanh, sigmoid, elu, gelu, softplus, swish (silu)."""
