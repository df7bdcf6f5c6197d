"""Scores of features that others have proposed, for comparison with
`Prediction.ood_score`.

Each takes features of the inputs and, where it needs them, training features, which are
used and not kept. All answer in float64.
"""

from typing import Any, TypeAlias

import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge import _blocks
from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import require_finite, require_tensor
from laplacebridge.errors import InputError, ShapeError

Array: TypeAlias = Tensor | npt.NDArray[Any]

_SMALLEST_NORM = 1e-12


@takes_arrays
def mahalanobis(features: Array, train: Array, labels: Array) -> Float[Tensor, " B"]:
    """Squared Mahalanobis distance to the nearest class mean, with one covariance for
    all classes (Lee and others 2018).

    Args:
        features: Of the inputs, before the head.
        train: Of training examples.
        labels: Their classes.

    Example:
        >>> train = torch.tensor([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0]])
        >>> mahalanobis(torch.tensor([[2.0, 0.0]]), train, torch.zeros(4).long()).round()
        tensor([8.], dtype=torch.float64)
    """
    places, known = _checked("mahalanobis", features, train)
    return _to_classes(places, known, _classes("mahalanobis", labels, known)).amin(-1)


@takes_arrays
def relative_mahalanobis(features: Array, train: Array, labels: Array) -> Float[Tensor, " B"]:
    """The Mahalanobis distance to the nearest class less that to all data, which is the
    same for every class (Ren and others 2021).

    Args:
        features: Of the inputs, before the head.
        train: Of training examples.
        labels: Their classes.

    Example:
        >>> train = torch.tensor([[0.0, 1.0], [0.0, -1.0], [9.0, 1.0], [9.0, -1.0]])
        >>> scores = relative_mahalanobis(
        ...     torch.tensor([[0.0, 0.0], [4.5, 0.0]]), train, torch.tensor([0, 0, 1, 1])
        ... )
        >>> bool(scores[0] < scores[1])
        True
    """
    places, known = _checked("relative_mahalanobis", features, train)
    classes = _classes("relative_mahalanobis", labels, known)
    together = _to_classes(places, known, torch.zeros_like(classes)).squeeze(-1)
    return _to_classes(places, known, classes).amin(-1) - together


@takes_arrays
def mahalanobis_plus_plus(features: Array, train: Array, labels: Array) -> Float[Tensor, " B"]:
    """The Mahalanobis distance of features that are divided by their length (Mueller
    and Hein 2025).

    Args:
        features: Of the inputs, before the head.
        train: Of training examples.
        labels: Their classes.

    Example:
        >>> train = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]])
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> once, thrice = mahalanobis_plus_plus(
        ...     torch.tensor([[1.0, 1.0], [3.0, 3.0]]), train, labels
        ... )
        >>> bool((once - thrice).abs() < 1e-9)
        True
    """
    places, known = _checked("mahalanobis_plus_plus", features, train)
    return mahalanobis(_directions(places), _directions(known), labels)


@takes_arrays
def knn(features: Array, train: Array, *, neighbours: int = 50) -> Float[Tensor, " B"]:
    """Distance to the k-th nearest training example, of features divided by their
    length (Sun and others 2022).

    Args:
        features: Of the inputs, before the head.
        train: Of training examples, or of some of them.
        neighbours: k.

    Raises:
        InputError: If there are fewer training examples than that.

    Example:
        >>> knn(torch.tensor([[0.0, 1.0]]), torch.eye(2), neighbours=2)
        tensor([1.4142], dtype=torch.float64)
    """
    places, known = map(_directions, _checked("knn", features, train))
    if not 1 <= neighbours <= len(known):
        raise InputError(
            f"`knn(neighbours)` needs a number from 1 to that of training features; got"
            f" {neighbours} of {len(known)}."
        )
    parts = [
        torch.cdist(rows, known).kthvalue(neighbours, -1).values
        for rows in torch.split(places, _blocks.ROWS_AGAINST_ALL)
    ]
    return torch.cat(parts)


@takes_arrays
def vim(
    features: Array,
    train: Array,
    head: nn.Linear,
    *,
    dimension: int | None = None,
) -> Float[Tensor, " B"]:
    """Virtual-logit matching: what of the features lies outside of the training data's
    main directions, less the energy (Wang and others 2022).

    Args:
        features: Of the inputs, before the head.
        train: Of training examples.
        head: The last layer, with a bias or without.
        dimension: How many main directions; by default half of the features, and 512
            from 1024 features on.

    Raises:
        InputError: If there are not so many directions.

    Example:
        >>> head = nn.Linear(3, 2)
        >>> train = torch.tensor(
        ...     [[1.0, 0.0, 0.1], [-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.1]]
        ... )
        >>> vim(torch.eye(3), train, head, dimension=2).shape
        torch.Size([3])
    """
    places, known = _checked("vim", features, train)
    weight, bias = _head("vim", head, known)
    size = known.shape[1]
    kept = (size // 2 if size < 1024 else 512) if dimension is None else dimension
    if not 0 < kept < size:
        raise InputError(f"`vim(dimension)` needs a number from 1 to {size - 1}; got {kept}.")
    origin = -torch.linalg.pinv(weight) @ bias
    _, vectors = torch.linalg.eigh((known - origin).T @ (known - origin) / len(known))
    rest = vectors[:, : size - kept]  # eigenvalues ascend

    def outside(rows: Tensor) -> Tensor:
        return ((rows - origin) @ rest).norm(dim=-1)

    logits = known @ weight.T + bias
    scale = logits.amax(-1).sum() / outside(known).sum().clamp_min(_SMALLEST_NORM)
    return scale * outside(places) - (places @ weight.T + bias).logsumexp(-1)


@takes_arrays
def react(
    features: Array,
    train: Array,
    head: nn.Linear,
    *,
    quantile: float = 0.9,
) -> Float[Tensor, " B"]:
    """Energy after features above a quantile of the training features are cut off there
    (Sun, Guo and Li 2021).

    Args:
        features: Of the inputs, before the head.
        train: Of training examples.
        head: The last layer, with a bias or without.
        quantile: Of all training features together.

    Example:
        >>> head = nn.Linear(2, 2)
        >>> large, huge = react(torch.tensor([[9.0, 9.0], [99.0, 99.0]]), torch.eye(2), head)
        >>> bool(large == huge)
        True
    """
    places, known = _checked("react", features, train)
    weight, bias = _head("react", head, known)
    ordered = known.flatten().sort().values
    position = quantile * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    limit = float(ordered[low] + (position - low) * (ordered[high] - ordered[low]))
    return -(places.clamp_max(limit) @ weight.T + bias).logsumexp(-1)


@takes_arrays
def ash(features: Array, head: nn.Linear, *, removed: float = 0.65) -> Float[Tensor, " B"]:
    """Energy after the smallest features of each input are set to 0 and the others
    grow: ASH-S (Djurisic and others 2023).

    Args:
        features: Of the inputs, before the head; not negative, as after ReLU.
        head: The last layer, with a bias or without.
        removed: Share of the features that is set to 0.

    Raises:
        InputError: If the share is not from 0 to 1, or features are negative.

    Example:
        >>> ash(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), nn.Linear(4, 2)).shape
        torch.Size([1])
    """
    places = require_tensor("ash(features)", features, "B D").double()
    require_finite("ash(features)", "features", places, "Look at the input of that row.")
    weight, bias = _head("ash", head, places)
    if not 0 <= removed < 1:
        raise InputError(f"`ash(removed)` needs a share from 0 to below 1; got {removed}.")
    if (places < 0).any():
        raise InputError(
            "`ash` needs features that are not negative, as after ReLU; got"
            f" {float(places.min()):.3g}."
        )
    kept = places.shape[1] - round(places.shape[1] * removed)
    values, indices = places.topk(max(1, kept), -1)
    pruned = torch.zeros_like(places).scatter(-1, indices, values)
    before, after = places.sum(-1), pruned.sum(-1).clamp_min(_SMALLEST_NORM)
    scaled = pruned * (before / after).exp().unsqueeze(-1)
    return -(scaled @ weight.T + bias).logsumexp(-1)


def _checked(name: str, features: Any, train: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
    call = f"{name}(features, train)"
    for tensor in (features, train):
        require_tensor(call, tensor, "B D")
        require_finite(call, "features", tensor, "Look at the input that produced that row.")
    if features.shape[1] != train.shape[1] or not len(train):
        raise ShapeError(
            f"`{call}` needs features of the same layer; got {tuple(features.shape)} and training"
            f" features {tuple(train.shape)}."
        )
    return features.double(), train.double()


def _classes(name: str, labels: Any, train: Tensor) -> Tensor:  # noqa: ANN401
    """Classes that occur, counted from 0.

    Raises:
        ShapeError: If not every training example has one.
    """
    if len(labels) != len(train):
        raise ShapeError(
            f"`{name}` needs a label for each training example; got {len(labels)} for {len(train)}."
        )
    return torch.unique(labels, return_inverse=True)[1]


def _head(name: str, head: nn.Linear, features: Tensor) -> tuple[Tensor, Tensor]:
    weight = head.weight.detach().double()
    if weight.shape[1] != features.shape[1]:
        raise ShapeError(
            f"`{name}` needs features that the head takes; got {features.shape[1]} for a head of"
            f" {weight.shape[1]}."
        )
    return weight, weight.new_zeros(
        len(weight)
    ) if head.bias is None else head.bias.detach().double()


def _to_classes(places: Tensor, train: Tensor, classes: Tensor) -> Float[Tensor, "B K"]:
    """Squared distances to class means, by the pseudo-inverse of their covariance."""
    counts = torch.bincount(classes).to(train)
    sums = train.new_zeros(len(counts), train.shape[1]).index_add_(0, classes, train)
    means = sums / counts.unsqueeze(-1)
    rest = train - means[classes]
    precision = torch.linalg.pinv(rest.T @ rest / len(train), hermitian=True)
    values, vectors = torch.linalg.eigh(precision)
    root = vectors * values.clamp_min(0).sqrt()
    return torch.cdist(places @ root, means @ root).square()


def _directions(features: Tensor) -> Tensor:
    return features / features.norm(dim=-1, keepdim=True).clamp_min(_SMALLEST_NORM)
