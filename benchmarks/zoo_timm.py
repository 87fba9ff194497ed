"""Every model that timm registers, with random weights, one family after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zoo_case import Case


def versions() -> str:
    import timm
    import torch

    return f"torch {torch.__version__}, timm {timm.__version__}"


def cases() -> Iterator[Case]:
    """One model of every family first, then a second of every family, and so on."""
    import timm

    families = {module: sorted(timm.list_models(module=module)) for module in sorted(timm.list_modules())}
    for rank in range(max(len(names) for names in families.values())):
        for family, names in families.items():
            if rank < len(names):
                yield case(names[rank], family)


def small_cases() -> Iterator[Case]:
    """One model of every family, by its name the smallest."""
    import timm

    words = ("test_", "femto", "atto", "pico", "nano", "tiny", "small", "_s", "_xs", "18", "_b0", "16")
    for family in sorted(timm.list_modules()):
        names = sorted(timm.list_models(module=family))
        ranked = sorted(names, key=lambda name: next((i for i, word in enumerate(words) if word in name), 99))
        if ranked:
            yield case(ranked[0], family)


def case(name: str, family: str) -> Case:
    def build() -> tuple[Any, Any]:
        import timm
        import torch

        model = timm.create_model(name)
        config = model.default_cfg
        size = config.get("input_size")
        if size is not None:
            return model, torch.empty(2, *size, device="meta")
        return model, torch.empty(2, 3, 224, 224, device="meta")

    return Case(name, family, build)
