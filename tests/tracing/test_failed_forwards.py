"""What a forward that compares devices, lacks its targets or fails for other reasons than its inputs gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tclint
from tclint.core.errors import TargetError
from tclint.tracing.worker.hints import in_plain_words


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(10, 8), nn.Linear(8, 8)
        self.register_buffer("cos", torch.ones(20480, 8), persistent=False)
        self.sin = torch.ones(20480, 8)

    def forward(self, idx: Tensor) -> Tensor:
        assert idx.device == self.cos.device, f"tables on {self.cos.device}, tokens on {idx.device}"
        assert self.sin.device == idx.device
        positions = torch.arange(idx.shape[1], device=idx.device)
        x = self.layer(self.embed(idx))
        if positions.device != x.device:
            raise ValueError("on two devices")
        return x * self.cos[positions] + self.sin[: idx.shape[1]]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("rows", [2, 4000])
def test_tables_and_tokens_are_on_one_device(device: str, rows: int) -> None:
    graph = tclint.trace(Rotary(), torch.ones(rows, 128, dtype=torch.int64, device=device))
    assert graph.ops[-1].outputs[0].shape == (rows, 128, 8)
    assert graph.metadata["adjustments"] == ["one device"]


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.training, self.layer = True, nn.Conv2d(8, 5, 1)

    def forward(self, maps: Tensor, targets: Tensor | None) -> Tensor:
        return self.layer(maps).sum() * self.count(targets) if self.training else self.layer(maps)

    def count(self, labels: Tensor | None) -> int:
        assert labels is not None
        assert labels.ndim == 17
        return len(labels)


class Detector(nn.Module):
    """Takes its training branch where a part of it is in train mode, as YOLOX does."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.head = nn.Conv2d(3, 8, 3), Head()

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.head(self.backbone(x), targets)


def in_train() -> nn.Module:
    return Detector().train()


def in_part() -> nn.Module:
    model = Detector().eval()
    model.head.training = True
    return model


@pytest.mark.parametrize("build", [Detector, in_train, in_part])
def test_infer_is_eval_in_every_part(build: Callable[[], nn.Module]) -> None:
    report = tclint.check(build, tclint.Settings(mode="infer"))
    assert report.errors == ()
    (entry,) = report.entries
    assert entry.graph is not None
    assert entry.graph.ops[-1].name == "conv2d"


@pytest.mark.parametrize("build", [in_train, in_part])
def test_targets_that_are_missing_are_named(build: Callable[[], nn.Module]) -> None:
    with pytest.raises(
        TargetError, match="a forward that trains may need 'targets', which was not given: give"
    ):
        tclint.trace(build, torch.zeros(8, 3, 32, 32))


class Critic(nn.Module):
    """Compares in its own forward while it trains."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.score, self.loss = nn.Conv2d(3, 5, 1), loss

    def forward(self, pictures: Tensor, y: Tensor | None = None) -> Tensor:
        return self.loss(self.score(pictures), y)


@pytest.mark.parametrize(
    ("loss", "wanted"),
    [
        (nn.CrossEntropyLoss(ignore_index=255), ("int64", (8, 224, 224))),
        (nn.BCEWithLogitsLoss(), ("float32", (8, 5, 224, 224))),
        (nn.L1Loss(), ("float32", (8, 5, 224, 224))),
    ],
)
def test_what_a_loss_compares_with_has_the_shape_that_it_asks_for(
    loss: nn.Module, wanted: tuple[str, tuple[int, ...]]
) -> None:
    given = {spec.input_name: (spec.dtype, spec.shape) for spec in tclint.trace(Critic(loss)).inputs}
    assert given["y"] == wanted


class Reader(nn.Module):
    """Adds what each word belongs to; the width of a sentence comes from its words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(50, 16), nn.Embedding(3, 16)
        self.register_buffer("places", torch.zeros(1, 300, 16))

    def forward(self, x: Tensor, info: Tensor) -> Tensor:
        return self.words(x) + self.places[:, : x.size(1)] + self.kinds(info)


def test_words_and_what_is_told_of_each_have_one_length() -> None:
    assert [spec.shape for spec in tclint.trace(Reader()).inputs] == [(8, 128), (8, 128)]


def failing(raise_it: Callable[[Tensor], None]) -> nn.Module:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 8)

        def forward(self, x: Tensor) -> Tensor:
            raise_it(x)
            return self.layer(x)

    return Failing()


def no_name(_: Tensor) -> None:
    undefined_name  # type: ignore[name-defined]  # noqa: B018, F821


def no_kernel(_: Tensor) -> None:
    raise RuntimeError("CUDA extension was not built")


def no_file(_: Tensor) -> None:
    raise FileNotFoundError("vocabulary.txt")


def no_attribute(_: Tensor) -> None:
    raise AttributeError("'Failing' object has no attribute 'cache'")


def wrong_rank(x: Tensor) -> None:
    _, _, _, _ = x.shape[:2] + x.shape[:1]


@pytest.mark.parametrize("cause", [no_name, no_kernel, no_file, no_attribute])
def test_inputs_are_not_blamed_for_what_they_cannot_help(cause: Callable[[Tensor], None]) -> None:
    with pytest.raises(TargetError) as error:
        tclint.trace(failing(cause))
    assert "inferred" not in str(error.value)


def test_inputs_that_were_inferred_are_told_where_shapes_clash() -> None:
    with pytest.raises(TargetError, match=r"its inputs were inferred .* give the right ones with inputs="):
        tclint.trace(failing(wrong_rank).eval())


@pytest.mark.parametrize(
    "message",
    ["operator torchvision::nms does not exist", "Couldn't load custom C++ ops. This can happen if"],
)
def test_a_torchvision_for_another_torch_is_told_as_that(message: str) -> None:
    words = in_plain_words(message)
    assert words is not None
    assert "torchvision do not fit the torch installed here" in words
