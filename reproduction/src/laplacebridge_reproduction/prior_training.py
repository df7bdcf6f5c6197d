"""Training of prior networks: divergences between Dirichlets as losses, and examples
that belong to no class.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import ShapeError
from laplacebridge_reproduction.data.dataset import DataSet
from laplacebridge_reproduction.models.prior_network import PriorNetwork, dirichlet_from_logits
from laplacebridge_reproduction.train import MNIST, TrainSettings, train

OUTSIDE = "outside"  # the class of examples that belong to none, always the last
# How many images of Fashion-MNIST's test set may be trained on as examples from
# outside; the others are to judge by.
NUM_OUTSIDE_TRAINING = 5000


def reverse_kl(
    logits: Float[Tensor, "B K"], labels: Int64[Tensor, " B"], *, evidence: float = 1.0
) -> Float[Tensor, ""]:
    """Mean of KL(network ‖ target): the loss of the paper's prior network, and of
    Malinin and Gales (2019).

    It draws the network to one peak of the target, and does not ask for density
    wherever the target has some.

    Args:
        logits: Logits of the network, shape (B, K).
        labels: Classes, or K for examples from outside, shape (B,).
        evidence: See `target_dirichlet`.
    """
    target = target_dirichlet(labels, logits.shape[-1], evidence=evidence).to(logits.dtype)
    return dirichlet_from_logits(logits).kl_divergence(target).mean()


def forward_kl(
    logits: Float[Tensor, "B K"], labels: Int64[Tensor, " B"], *, evidence: float = 1.0
) -> Float[Tensor, ""]:
    """Mean of KL(target ‖ network): the loss of the first prior networks (Malinin and
    Gales, 2018).

    It asks the network for density wherever the target has some.

    Args:
        logits: Logits of the network, shape (B, K).
        labels: Classes, or K for examples from outside, shape (B,).
        evidence: See `target_dirichlet`.
    """
    target = target_dirichlet(labels, logits.shape[-1], evidence=evidence).to(logits.dtype)
    return target.kl_divergence(dirichlet_from_logits(logits)).mean()


def target_dirichlet(
    labels: Int64[Tensor, " B"], num_classes: int, *, evidence: float = 1.0
) -> Dirichlet:
    """What a prior network should answer: one for each class, and evidence for the
    label.

    Args:
        labels: Classes, or K for examples from outside, for which there is no evidence:
            their target is flat.
        num_classes: K.
        evidence: What the label's concentration has above one. The paper's authors take
            1; Malinin and Gales 100.

    Example:
        >>> target_dirichlet(torch.tensor([1, 3]), 3).concentration
        tensor([[1., 2., 1.],
                [1., 1., 1.]], dtype=torch.float64)
    """
    known = functional.one_hot(labels, num_classes + 1)[:, :num_classes]
    return Dirichlet(torch.log1p(evidence * known.double()))


class OutsideSplit(NamedTuple):
    """Unusual data in two parts that share no example."""

    training: DataSet
    evaluation: DataSet


def split_outside(data: DataSet, *, num_training: int = NUM_OUTSIDE_TRAINING) -> OutsideSplit:
    """Separates the unusual examples that are trained on from those that results are
    measured on.

    Fashion-MNIST's test set comes in random order, so that both parts have all kinds of
    clothes.

    Args:
        data: The unusual data.
        num_training: How many of the first examples are trained on.

    Raises:
        ValueError: If either part would be empty.
    """
    if not 0 < num_training < len(data):
        raise ValueError(
            f"`split_outside(data, num_training)` needs from 1 to {len(data) - 1} of the"
            f" {len(data)} examples of '{data.name}' to train on; got {num_training}. Some must be"
            " left to judge by."
        )
    first, rest = data[:num_training], data[num_training:]
    return OutsideSplit(
        replace(first, name=f"{data.name}, first {len(first)}"),
        replace(rest, name=f"{data.name}, last {len(rest)}"),
    )


def with_outside(data: DataSet, outside: DataSet) -> DataSet:
    """Usual and unusual examples as one data set, in which the unusual ones have a
    class of their own, the last.

    Args:
        data: Usual examples, with their labels.
        outside: Unusual ones, whose labels do not matter.

    Raises:
        ShapeError: If the inputs of both are not alike.
    """
    if (
        data.inputs.shape[1:] != outside.inputs.shape[1:]
        or data.inputs.dtype != outside.inputs.dtype
    ):
        shapes = [
            f"{tuple(part.inputs.shape[1:])} in {part.inputs.dtype}" for part in (data, outside)
        ]
        raise ShapeError(
            f"`with_outside(data, outside)` needs inputs of one shape and type; got {shapes[0]}"
            f" ('{data.name}') and {shapes[1]} ('{outside.name}'). Convert one of them."
        )
    return DataSet(
        f"{data.name}, and outside {outside.name}",
        torch.cat([data.inputs, outside.inputs]),
        torch.cat([data.labels, torch.full_like(outside.labels, data.num_classes)]),
        (*data.class_names, OUTSIDE),
        {**data.sha256, **outside.sha256},
    )


def train_prior_network(
    network: nn.Module,
    data: DataSet,
    settings: TrainSettings = MNIST,
    *,
    loss: Callable[[Tensor, Tensor], Tensor] = reverse_kl,
    outside: DataSet | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> PriorNetwork:
    """Trains a prior network, or finds it trained; by default in the setting of the
    paper's authors.

    Args:
        network: With its first weights; it is changed, and left in evaluation mode.
        data: To train on.
        settings: How to train; their own loss is not used.
        loss: `reverse_kl`, `forward_kl`, or another function of logits and labels at
            the top of a module.
        outside: Unusual examples, shuffled among the others, on which the network
            should see no evidence. Without them it learns what to say about its classes
            only, as in the paper.
        cache: The cache folder, as of `train`.
        progress: Show a progress bar.

    Raises:
        DivergedError: If the loss is no longer finite.
        CheckpointError: If a file in the cache is damaged.
        ValueError: If there is no data.
    """
    examples = data if outside is None else with_outside(data, outside)
    return PriorNetwork(
        train(network, examples, replace(settings, loss=loss), cache=cache, progress=progress)
    ).eval()
