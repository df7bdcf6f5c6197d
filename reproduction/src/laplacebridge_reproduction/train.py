"""Training with the paper's settings: the same weights for the same seed, however often
it is interrupted.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from laplacebridge._files import atomic_write
from laplacebridge.errors import CheckpointError, LaplaceBridgeError
from laplacebridge_reproduction.data.augment import crop_flip_rotate, unchanged
from laplacebridge_reproduction.data.dataset import DataSet, scaled
from laplacebridge_reproduction.data.folder import cache_folder
from laplacebridge_reproduction.data.torch_file import read_torch
from laplacebridge_reproduction.models.small import Network

SECONDS_BETWEEN_CHECKPOINTS = 10.0


class DivergedError(LaplaceBridgeError, ArithmeticError):
    """The loss of a training is no longer finite."""


def constant(epoch: int, epochs: int) -> float:
    """The same rate throughout."""
    return 1.0


def cosine(epoch: int, epochs: int) -> float:
    """A rate that falls to zero along half a cosine; epochs are counted from 0.

    Example:
        >>> cosine(0, 200), round(cosine(100, 200), 9)
        (1.0, 0.5)
    """
    return (1 + math.cos(math.pi * epoch / epochs)) / 2


def tenths(epoch: int, epochs: int) -> float:
    """A tenth of the rate after 10 epochs, a hundredth after 20; epochs are counted
    from 0.

    Example:
        >>> tenths(9, 25), tenths(10, 25), tenths(20, 25)
        (1.0, 0.1, 0.01)
    """
    return 10.0 ** -min(epoch // 10, 2)


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained.

    Attributes:
        epochs: Passes over the data.
        batch_size: None is all of the data at once.
        learning_rate: At the start.
        optimizer: A class of `torch.optim`.
        momentum: Momentum of `torch.optim.SGD`; other optimizers have none.
        weight_decay: Weight decay of the optimizer.
        schedule: Factor of the learning rate in an epoch, from the epoch and their
            number.
        augment: Changes a batch of images at random.
        loss: One number from a batch of logits and its labels.
        seed: Seed of the order of examples and the augmentation.
    """

    epochs: int
    batch_size: int | None
    learning_rate: float = 1e-3
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
    momentum: float = 0.0
    weight_decay: float = 5e-4
    schedule: Callable[[int, int], float] = constant
    augment: Callable[[Tensor, Generator], Tensor] = unchanged
    loss: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy
    seed: int = 0

    def __post_init__(self) -> None:
        if self.epochs < 1 or (self.batch_size is not None and self.batch_size < 1):
            raise ValueError(
                f"`TrainSettings(epochs, batch_size)` needs at least 1 of each; got {self.epochs}"
                f" and {self.batch_size}. `batch_size=None` takes all of the data at once."
            )
        for part in (self.optimizer, self.schedule, self.augment, self.loss):
            if "<" in getattr(
                part, "__qualname__", "<"
            ):  # a trained network is found again by their names
                raise ValueError(
                    "`TrainSettings` needs an optimizer, schedule, augmentation and loss that have"
                    f" names; got {part}. Define a function with `def` at the top of a module."
                )

    def described(self) -> dict[str, Any]:
        """The settings as JSON can hold them: functions and classes by name.

        The cross-entropy is left out, so that networks from before there was a choice
        of loss are found again.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.loss is functional.cross_entropy:
            del values["loss"]
        return {name: _name(value) if callable(value) else value for name, value in values.items()}


def _name(part: Any) -> str:  # noqa: ANN401
    return f"{part.__module__}.{part.__qualname__}"


HALF_MOONS = TrainSettings(epochs=1000, batch_size=None)
MNIST = TrainSettings(epochs=6, batch_size=128)
# The authors keep the epoch that is best on the test set; here the last one counts.
CIFAR = TrainSettings(
    epochs=200,
    batch_size=128,
    learning_rate=0.1,
    optimizer=torch.optim.SGD,
    momentum=0.9,
    schedule=cosine,
    augment=crop_flip_rotate,
)
# The authors train on the test split; here that is for who calls to decide.
SVHN = TrainSettings(
    epochs=25,
    batch_size=128,
    learning_rate=0.1,
    optimizer=torch.optim.SGD,
    momentum=0.9,
    schedule=tenths,
)


def train(
    model: Network,
    data: DataSet,
    settings: TrainSettings,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Network:
    """Trains a network, or finds it trained.

    Trained weights are kept in the cache folder under a hash of the settings, the data,
    the network and its first weights. An interrupted training goes on from its last
    checkpoint and ends with the same weights.

    Args:
        model: With its first weights; it is changed, and left in evaluation mode.
        data: To train on.
        settings: How to train.
        cache: The cache folder; None is the one that LAPLACEBRIDGE_CACHE names, or else
            ~/.cache/laplacebridge.
        progress: Show a progress bar.

    Returns:
        The same network.

    Raises:
        DivergedError: If the loss is no longer finite.
        CheckpointError: If a file in the cache is damaged.
        ValueError: If there is no data.
    """
    if not len(data):
        raise ValueError(
            f"`train(model, data)` needs examples; '{data.name}' has none. Give it some rows."
        )
    folder = cache_folder(cache) / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    key = _key(model, data, settings)
    finished, checkpoint = folder / f"{key}.safetensors", folder / f"{key}.checkpoint"
    if finished.exists():
        try:
            model.load_state_dict(load_file(finished))
        except (SafetensorError, RuntimeError) as error:
            raise CheckpointError(
                f"{finished} is damaged: {error}. Delete it to train again."
            ) from error
        return model.eval()
    _run(_Training(model, data, settings, checkpoint), progress=progress)
    description = {"data": data.name, "settings": json.dumps(settings.described())}
    with atomic_write(finished) as temporary:
        state = {
            name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()
        }
        save_file(state, temporary, metadata=description)
    checkpoint.unlink(missing_ok=True)
    return model.eval()


class _Training:
    """A training under way: what changes from epoch to epoch, and can be saved."""

    def __init__(
        self, model: nn.Module, data: DataSet, settings: TrainSettings, checkpoint: Path
    ) -> None:
        self.model, self.data, self.settings, self.checkpoint = model, data, settings, checkpoint
        momentum = {"momentum": settings.momentum} if settings.momentum else {}
        self.optimizer = settings.optimizer(
            model.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
            **momentum,
        )
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.epoch = 0
        self.device = next(model.parameters()).device
        if checkpoint.exists():
            self._resume()

    def _resume(self) -> None:
        try:
            state = read_torch(self.checkpoint)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.generator.set_state(state["generator"])
            self.epoch = state["epoch"]
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{self.checkpoint} is damaged: {error}. Delete it to train again."
            ) from error

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "epoch": self.epoch,
        }
        with atomic_write(self.checkpoint) as temporary:
            torch.save(state, temporary)

    def run_epoch(self, after_step: Callable[[], object]) -> float:
        rate = self.settings.learning_rate * self.settings.schedule(
            self.epoch, self.settings.epochs
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(
                self.settings.seed + self.epoch
            )  # dropout draws from the global state
            for rows in self._batches():
                loss = self._step(rows)
                if not math.isfinite(loss):
                    raise DivergedError(
                        f"The loss became {loss} in epoch {self.epoch + 1} of"
                        f" {self.settings.epochs}, with a learning rate of {rate:g}. Are all inputs"
                        " finite? If so, try a smaller `learning_rate`."
                    )
                after_step()
        self.epoch += 1
        return loss

    def _batches(self) -> tuple[Tensor, ...]:
        size = self.settings.batch_size
        if size is None:
            return (torch.arange(len(self.data)),)
        return torch.randperm(len(self.data), generator=self.generator).split(size)  # type: ignore[no-untyped-call]

    def _step(self, rows: Tensor) -> float:
        inputs = self.settings.augment(scaled(self.data.inputs[rows]), self.generator)
        loss = self.settings.loss(
            self.model(inputs.to(self.device)), self.data.labels[rows].to(self.device)
        )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()


def _run(training: _Training, *, progress: bool) -> None:
    settings = training.settings
    per_epoch = 1 if settings.batch_size is None else -(-len(training.data) // settings.batch_size)
    total, done = settings.epochs * per_epoch, training.epoch * per_epoch
    training.model.train()
    saved = time.monotonic()
    with tqdm(
        total=total, initial=done, desc="training", unit="batch", disable=not progress
    ) as bar:
        while training.epoch < settings.epochs:
            loss = training.run_epoch(bar.update)
            bar.set_postfix(epoch=training.epoch, loss=f"{loss:.3f}", refresh=False)
            if (
                training.epoch < settings.epochs
                and time.monotonic() - saved >= SECONDS_BETWEEN_CHECKPOINTS
            ):
                training.save()
                saved = time.monotonic()
    if not all(weight.isfinite().all() for weight in training.model.parameters()):
        raise DivergedError(
            "The last step left weights that are not finite. Try a smaller `learning_rate`."
        )


def _key(model: nn.Module, data: DataSet, settings: TrainSettings) -> str:
    digest = hashlib.sha256(json.dumps([settings.described(), repr(model), data.digest()]).encode())
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]
