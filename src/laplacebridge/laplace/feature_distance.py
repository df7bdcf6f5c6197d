"""How far features are from those of the training data: Mahalanobis distances to the
nearest class, from sums of the fit.

The within-class covariance S of features divided by their deviations is shrunk towards
a multiple of the identity, A = (1 − ρ) S + ρ tr(S)/D · I with ρ = D/(D + N), so that it
can be inverted however few examples there are. A is then kept along some directions,
which hold all class means and the largest variances, and is one number, the mean of
what is left, along all others (probabilistic principal components). A distance so costs
one product with these directions, not with a matrix of D × D.

Two distances are taken with that one metric: of the features, and of their polar form,
direction and logarithm of the length, which tells features that are merely long from
those that point elsewhere.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

# Directions beside those of the class means, and the number that all are rounded up to:
# products of matrices cost no less in between.
MORE_DIRECTIONS, MULTIPLE = 32, 16
# A distance below this share of the usual one says no more than that it is small.
SMALLEST_SHARE = 1e-3
# Features beyond so many deviations are divided before they are squared; and the unit,
# in deviations, that lengths of features are taken in, so that these stay within float32
# far beyond.
FAR, UNIT = 1e10, 2.0**40
# Lengths below this share of the usual one have no direction: a network whose last layer
# is silent.
SMALLEST_LENGTH = 1e-6
# Variance of a feature, relative to its mean square, that is rounding; and singular
# values of directions, relative to the largest.
ROUNDING, ROUNDING_OF_DIRECTIONS = 1e-9, 1e-6
SMALLEST_SHRINKAGE = 1e-5


class FeatureDistances(nn.Module):
    """Squared Mahalanobis distances to the nearest class mean, of features and of their
    polar form.

    Args:
        center: A point among the data, shape (D,).
        scale: One over the deviation of each feature, shape (D,).
        basis: P orthonormal directions of scaled features, shape (D, P).
        variances: Along each of them.
        offset: The scaled center along them.
        means: Scaled class means along them, less the center; shape (G, P).
        rest: One over the variance along all other directions, 0 if there are none; and
            the sum of all D variances and of their squares.
        expected: Mean and deviation of log d² for data that are Gaussian within
            classes.

    Example:
        >>> from laplacebridge.laplace.feature_statistics import FeatureStatistics
        >>> features = torch.tensor([[0.0, 1.0], [0.0, -1.0], [9.0, 1.0], [9.0, -1.0]])
        >>> sums = FeatureStatistics.of_batch(
        ...     features, torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])
        ... )
        >>> distances = FeatureDistances.of_sums(sums.class_counts, sums.class_sums, sums.squares)
        >>> near, far = distances(torch.tensor([[9.0, 1.0], [4.5, 0.0]]))
        >>> bool(near[1] < far[1])
        True
    """

    center: Tensor
    scale: Tensor
    basis: Tensor
    variances: Tensor
    offset: Tensor
    means: Tensor
    rest: Tensor
    expected: Tensor
    # what follows from these
    unit: Tensor  # of lengths, and the scale in it
    small_scale: Tensor
    roots: Tensor  # 1/√variance
    places: Tensor  # class means in deviations, and the squares of their lengths
    place_squares: Tensor
    length: Tensor  # the usual one
    middle: Tensor  # of the directions of class means
    directions: Tensor  # of class means less the middle, in deviations, and squares
    direction_squares: Tensor
    log_lengths: Tensor  # of each class, and their variances
    length_variances: Tensor

    def __init__(
        self,
        center: Tensor,
        scale: Tensor,
        basis: Tensor,
        variances: Tensor,
        offset: Tensor,
        means: Tensor,
        rest: Tensor,
        expected: Tensor,
    ) -> None:
        super().__init__()
        kept = {
            "center": center,
            "scale": scale,
            "basis": basis,
            "variances": variances,
            "offset": offset,
            "means": means,
            "rest": rest,
            "expected": expected,
        }
        for name, tensor in kept.items():
            self.register_buffer(name, tensor)
        self._derive()

    def _derive(self) -> None:
        """What follows from what is kept, and is no part of a state."""
        scale, variances, rest = self.scale, self.variances, self.rest
        roots, whole = variances.rsqrt(), self.means + self.offset
        # E‖x‖² of each class: its mean is squared, and all variances are added
        squares = whole.square().sum(-1) + rest[1]
        length = squares.mean().sqrt()
        towards = whole * (length / squares.sqrt()).unsqueeze(-1)
        middle = towards.mean(0)
        along = (whole.square() * variances).sum(-1)
        places, directions = self.means * roots, (towards - middle) * roots
        # not much above the scale of a feature that hardly varies: the others' squares have
        # to stay within float32 too
        unit = torch.maximum(scale.max(), (UNIT * scale.max()).clamp_max(UNIT))
        derived = {
            "unit": unit,
            "small_scale": scale / unit,
            "roots": roots,
            "places": places,
            "place_squares": places.square().sum(-1),
            "length": length,
            "middle": middle,
            "directions": directions,
            "direction_squares": directions.square().sum(-1),
            "log_lengths": squares.log() / 2,
            "length_variances": (rest[2] / 2 + along) / squares.square(),
        }
        for name, tensor in derived.items():
            self.register_buffer(name, tensor, persistent=False)

    def _load_from_state_dict(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ANN401
        super()._load_from_state_dict(*arguments, **keywords)
        self._derive()

    @classmethod
    def of_sums(
        cls,
        counts: Float[Tensor, " K"],
        sums: Float[Tensor, "K D"],
        squares: Float[Tensor, "D D"],
        dtype: torch.dtype = torch.float32,
    ) -> "FeatureDistances":
        """Distances from the sums of a fit.

        Args:
            counts: Examples of each class, in float64 like the others.
            sums: Sums of their features.
            squares: Σφφᵀ over all of them.
            dtype: Of the distances.
        """
        means, deviations, correlation, shrunk = within_classes(counts, sums, squares)
        center = means.mean(0)
        offset, apart = center / deviations, (means - center) / deviations
        basis = _directions(torch.cat([offset.unsqueeze(0), apart]), shrunk)
        values, turned = torch.linalg.eigh(basis.T @ shrunk @ basis)
        basis, others = basis @ turned, len(shrunk) - len(values)
        total = shrunk.diagonal().sum()
        rest = others / (total - values.sum()) if others else torch.zeros_like(total)
        # what d² is made of: deviations along each direction, whitened
        whitened = basis * (values.rsqrt() - rest.sqrt())
        root = whitened @ basis.T
        root.diagonal().add_(rest.sqrt())
        parts = (
            center, 1 / deviations, basis, values, offset @ basis, apart @ basis,
            torch.stack([rest, total, shrunk.square().sum()]),
            _of_log_square(root @ correlation @ root),
        )  # fmt: skip
        return cls(*(part.to(dtype).contiguous() for part in parts))

    @property
    def num_features(self) -> int:
        """D."""
        return len(self.center)

    def forward(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B 2"]:
        """log d² of the polar form of each row, and of the row; finite for all finite
        features.

        Args:
            features: As they were summed.
        """
        # the one array as large as the features: a second takes longer than all that follows
        apart = (features.to(self.center.dtype) - self.center).mul_(self.small_scale)
        largest = torch.maximum(apart.amax(-1, keepdim=True), -apart.amin(-1, keepdim=True))
        # at most √D times the largest, also where its square leaves the range of float32
        length = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        length = torch.minimum(length, largest * math.sqrt(len(self.center)))
        far = (largest * (self.unit / FAR)).clamp_min(1.0)
        unit = self.unit / far
        along = apart @ self.basis * unit
        outside = (length * unit).square() - along.square().sum(-1, keepdim=True)
        outside = outside.clamp_min(0.0)
        least = SMALLEST_SHARE * len(self.center)

        to_classes = self.place_squares / far / far
        plain = _nearest(along * self.roots, self.places, to_classes, 2 / far)
        plain = torch.maximum(plain + self.rest[0] * outside, least / far / far)

        whole = along + self.offset / far
        length = (outside + whole.square().sum(-1, keepdim=True)).sqrt()
        length = torch.maximum(length, SMALLEST_LENGTH * self.length / far)
        longer = (length.log() + far.log() - self.log_lengths).square() / self.length_variances
        shorter = self.length / length
        polar = _nearest(
            (whole * shorter - self.middle) * self.roots,
            self.directions,
            self.direction_squares + longer,
            2.0,
        )
        polar = (polar + self.rest[0] * outside * shorter * shorter).clamp_min(least)
        return torch.cat([polar.log(), plain.log() + 2 * far.log()], -1)


def within_classes(
    counts: Float[Tensor, " K"], sums: Float[Tensor, "K D"], squares: Float[Tensor, "D D"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Class means, deviations of features within classes, and the correlations of
    features there, as they are and shrunk.

    The mean of a class with a single example would be that example. Such classes share
    one mean; a lone one is left out.

    Args:
        counts: Examples of each class, in float64 like the others.
        sums: Sums of their features.
        squares: Σφφᵀ over all of them.
    """
    single = counts == 1
    num_single = int(single.sum())
    lone = sums[single] if num_single == 1 else sums[:0]
    squares = squares - lone.T @ lone
    own = counts > 1
    pooled = num_single > 1
    group_counts = torch.cat([counts[own], counts[single].sum().reshape(1)[:pooled]])
    group_sums = torch.cat([sums[own], sums[single].sum(0, keepdim=True)[:pooled]])
    if not len(group_counts):  # nothing that is not a single example
        group_counts, group_sums = counts.new_ones(1), torch.zeros_like(sums[:1])
    means = group_sums / group_counts.unsqueeze(-1)
    freedom = max(1.0, float(group_counts.sum()) - len(means))
    within = (squares - group_sums.T @ means) / freedom
    variances = within.diagonal()
    constant = variances <= ROUNDING * squares.diagonal() / freedom
    usual = float(variances[~constant].mean()) if not bool(constant.all()) else 1.0
    deviations = torch.where(constant, usual, variances).sqrt()
    correlation = within / deviations / deviations.unsqueeze(-1)
    correlation = torch.where(
        constant | constant.unsqueeze(-1), torch.zeros_like(correlation), correlation
    )
    num_features = len(within)
    shrinkage = max(num_features / (num_features + freedom), SMALLEST_SHRINKAGE)
    level = float(correlation.diagonal().mean()) or 1.0
    shrunk = (1 - shrinkage) * correlation
    shrunk.diagonal().add_(shrinkage * level)
    return means, deviations, correlation, shrunk


def _directions(
    means: Float[Tensor, "G D"], covariance: Float[Tensor, "D D"]
) -> Float[Tensor, "D P"]:
    """Orthonormal directions of all means, and of the largest variances outside."""
    num_features = len(covariance)
    number = MULTIPLE * math.ceil((len(means) - 1 + MORE_DIRECTIONS) / MULTIPLE)
    if number >= num_features:
        return torch.eye(num_features, dtype=covariance.dtype, device=covariance.device)
    lengths = torch.linalg.vector_norm(means, dim=-1, keepdim=True)
    scaled = means / torch.where(lengths > 0, lengths, 1.0)
    _, sizes, rows = torch.linalg.svd(scaled, full_matrices=False)
    own = rows[sizes > ROUNDING_OF_DIRECTIONS * sizes[0]].T
    # the variances outside: those along the means are made nothing
    left = covariance - own @ (own.T @ covariance)
    left = left - (left @ own) @ own.T
    _, vectors = torch.linalg.eigh(left)
    return torch.cat([own, vectors[:, num_features - number + own.shape[1] :]], -1)


def _nearest(
    rows: Float[Tensor, "B P"],
    means: Float[Tensor, "G P"],
    squares: Float[Tensor, "*B G"],
    twice: Float[Tensor, "B 1"] | float,
) -> Float[Tensor, "B 1"]:
    """Squared distance of each row to the nearest mean, whose own squares are given;
    `twice` is what products of the two count.
    """
    nearest = (squares - rows @ means.T * twice).amin(-1, keepdim=True)
    return nearest + rows.square().sum(-1, keepdim=True)


def _of_log_square(covariance: Float[Tensor, "D D"]) -> Float[Tensor, " 2"]:
    """Mean and deviation of log ‖x‖² for x ~ N(0, C), whose square is nearly a gamma
    variable of the same two moments.
    """
    mean, variance = covariance.diagonal().sum(), 2 * covariance.square().sum()
    if not float(variance) > 0:
        return covariance.new_tensor([math.log(len(covariance)), 1.0])
    shape = mean.square() / variance
    return torch.stack(
        [
            shape.digamma() - (mean / variance).log(),
            torch.special.polygamma(1, shape).sqrt(),
        ]
    )
