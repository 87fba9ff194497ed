"""Python control flow that depends on shapes, on values, and on state kept between calls."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AdaptiveSteps(nn.Module):
    """Adaptive computation time: loops until accumulated halting probabilities pass a threshold."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.cell, self.halt = nn.GRUCell(size, size), nn.Linear(size, 1)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros_like(x)
        total = torch.zeros(x.shape[0], device=x.device)
        steps = 0
        while bool((total < 0.99).any()) and steps < 8:
            state = self.cell(x, state)
            total = total + torch.sigmoid(self.halt(state)).squeeze(-1)
            steps += 1
        return state


def build_adaptive_computation() -> tuple[nn.Module, Tensor]:
    return AdaptiveSteps(), torch.zeros(4, 32)


class Equilibrium(nn.Module):
    """Fixed-point iteration until the residual is small (deep equilibrium models)."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.zeros_like(x)
        with torch.no_grad():
            for _ in range(20):
                following = torch.tanh(self.layer(z) + x)
                if (following - z).norm() < 1e-4 * z.norm():
                    break
                z = following
        return torch.tanh(self.layer(z) + x)


def build_deep_equilibrium() -> tuple[nn.Module, Tensor]:
    return Equilibrium(), torch.zeros(4, 32)


class OdeBlock(nn.Module):
    """An adaptive Runge-Kutta step size computed from an error estimate read back to Python."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, size))

    def forward(self, x: Tensor) -> Tensor:
        time, step = 0.0, 0.25
        while time < 1.0:
            first = self.field(x)
            second = self.field(x + step * first)
            error = (step * (second - first)).abs().max().item()
            time += step
            x = x + step * (first + second) / 2
            step = min(max(step * (0.1 / max(error, 1e-3)) ** 0.5, 0.1), 0.5)
        return x


def build_adaptive_ode() -> tuple[nn.Module, Tensor]:
    return OdeBlock(), torch.zeros(8, 16)


class TreeLstm(nn.Module):
    """The shape of the computation is a Python structure."""

    def __init__(self, size: int = 32) -> None:
        super().__init__()
        self.leaf, self.merge = nn.Embedding(100, size), nn.Linear(2 * size, 5 * size)

    def encode(self, tree: int | tuple) -> tuple[Tensor, Tensor]:  # type: ignore[type-arg]
        if isinstance(tree, int):
            hidden = self.leaf(torch.tensor([tree]))
            return hidden, torch.zeros_like(hidden)
        (left, left_cell), (right, right_cell) = (self.encode(child) for child in tree)
        i, f, g, o, u = self.merge(torch.cat([left, right], dim=-1)).chunk(5, dim=-1)
        cell = i.sigmoid() * u.tanh() + f.sigmoid() * left_cell + g.sigmoid() * right_cell
        return o.sigmoid() * cell.tanh(), cell

    def forward(self, tree: tuple) -> Tensor:  # type: ignore[type-arg]
        return self.encode(tree)[0]


def build_tree_lstm() -> tuple[nn.Module, tuple[tuple]]:  # type: ignore[type-arg]
    return TreeLstm(), (((1, (2, 3)), ((4, 5), 6)),)


Batch = namedtuple("Batch", ["image", "label"])


@dataclass
class Output:
    loss: Tensor
    logits: Tensor


class Structured(nn.Module):
    """Takes a named tuple, returns a dataclass, checks its input, prints, and counts calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, batch: Batch) -> Output:
        self.calls += 1
        if torch.isnan(batch.image).any():
            raise ValueError("the image has NaNs")
        assert batch.image.min() >= 0
        logits = self.net(batch.image)
        loss = F.cross_entropy(logits, batch.label)
        print(f"loss {loss.item():.3f} after {self.calls.item()} calls, {loss}")
        return Output(loss, logits)


def build_structured_inputs_and_outputs() -> tuple[nn.Module, tuple[Batch]]:
    return Structured(), (Batch(torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.long)),)


class LayersMadeLate(nn.Module):
    """Layers made in the first forward, and others that are no submodules at all."""

    def __init__(self) -> None:
        super().__init__()
        self.head: nn.Module | None = None
        self.hidden = [nn.Linear(16, 16)]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = F.relu(layer(x))
        if self.head is None:
            self.head = nn.Linear(x.shape[-1], 4).to(x.device)
        return self.head(x)


def build_layers_made_late() -> tuple[nn.Module, Tensor]:
    return LayersMadeLate(), torch.zeros(4, 16)


class MemoryBank(nn.Module):
    """MoCo: a momentum copy of the encoder, a queue buffer with a pointer, shuffled batches."""

    def __init__(self, size: int = 32, length: int = 64) -> None:
        super().__init__()
        self.online, self.momentum = nn.Linear(48, size), nn.Linear(48, size)
        for online, momentum in zip(self.online.parameters(), self.momentum.parameters(), strict=True):
            momentum.data.copy_(online.data)
            momentum.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(size, length), dim=0))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        query = F.normalize(self.online(first), dim=1)
        with torch.no_grad():
            for online, momentum in zip(self.online.parameters(), self.momentum.parameters(), strict=True):
                momentum.data = momentum.data * 0.999 + online.data * 0.001
            order = torch.randperm(second.shape[0])
            key = F.normalize(self.momentum(second[order]), dim=1)[torch.argsort(order)]
        positive = torch.einsum("nc,nc->n", query, key).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", query, self.queue.clone().detach())
        start = int(self.pointer)
        self.queue[:, start : start + key.shape[0]] = key.T
        self.pointer[0] = (start + key.shape[0]) % self.queue.shape[1]
        logits = torch.cat([positive, negative], dim=1) / 0.07
        return F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=torch.long))


def build_momentum_contrast() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    return MemoryBank(), (torch.zeros(8, 48), torch.zeros(8, 48))


class ActorCritic(nn.Module):
    """An action sampled from a distribution, its log-probability, and a rollout with an environment."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(4, 128), nn.Linear(128, 2), nn.Linear(128, 1)

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        rewards, values = [], []
        for _ in range(5):
            hidden = F.relu(self.body(state))
            policy = torch.distributions.Categorical(logits=self.actor(hidden))
            action = policy.sample()
            state = state + (0.1 if action.item() == 1 else -0.1)
            rewards.append(policy.log_prob(action))
            values.append(self.critic(hidden))
            if state.abs().max() > 2.4:
                break
        return torch.stack(rewards), torch.cat(values)


def build_actor_critic_rollout() -> tuple[nn.Module, Tensor]:
    return ActorCritic(), torch.zeros(4)
