"""From features to Gaussians over logits: the posteriors of `laplace/` once more."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laplacebridge.bridges.precision import MANY_CLASSES
from laplacebridge.errors import InputError
from laplacebridge.laplace import head_posteriors as posteriors
from laplacebridge.laplace.head_posteriors.base import HeadPosterior
from laplacebridge.laplace.posterior import FADING_VARIANCE, FARTHEST, Posterior
from laplacebridge.laplace.separated import Separated, separated
from laplacebridge.onnx.formulas.covariances import (
    Dense,
    GraphCovariance,
    Independent,
    SharedBasis,
)
from laplacebridge.onnx.formulas.many_classes import (
    AllWeights,
    FewCoordinates,
    ManySharedBasis,
)
from laplacebridge.onnx.formulas.nodes import Graph, Value


@dataclass(frozen=True)
class GraphGaussian:
    """A Gaussian over logits for each row of a batch."""

    mean: Value
    covariance: GraphCovariance

    def bounded(self) -> "GraphGaussian":
        """With variances that bridges can compute with."""
        return replace(self, covariance=self.covariance.bounded())


def wide_and_narrow(
    posterior: HeadPosterior, features: Value, logits: Value, beyond: Value | None
) -> tuple[GraphGaussian, GraphGaussian | None]:
    """The Gaussian over logits, and the one for mean probabilities if that is another;
    see `Posterior.wide_and_narrow`.

    Args:
        posterior: The posterior.
        features: Inputs of the head, shape (B, D).
        logits: What it makes of them, shape (B, K).
        beyond: How much farther than held-out data each row lies, shape (B, 1).
    """
    if beyond is not None and posterior.is_apart:
        nearer = ((FARTHEST - beyond).at_most(0.0) * 0.5).exp()
        features, logits = features * nearer, logits * nearer
    covariance = _covariance(posterior, features)
    if not posterior._is_widened:
        return GraphGaussian(logits, covariance).bounded(), None
    numbers = {name: float(getattr(posterior, name)) for name in _WIDENING}
    mean = logits * (1 / numbers["temperature"])
    share, spread = numbers["mean_share"], numbers["temperature_variance"]
    covariance = covariance.scaled(numbers["variance_scale"])
    if spread:
        covariance = covariance.plus_square(mean - mean.mean(), spread)
    wide, extra = covariance, numbers["extra_variance"]
    if extra:
        wide = wide.plus_identity(extra)
    if not posterior.is_apart:
        return GraphGaussian(mean, wide).bounded(), None
    narrow = covariance if share == 1 else covariance.scaled(share)
    if beyond is not None:
        slower = (beyond * -0.25).exp()
        mean, cooling = mean * slower, slower.square()
        growing = (beyond.at_most(FARTHEST).exp() - 1.0) * FADING_VARIANCE
        wide = wide.scaled(cooling).plus_identity(growing)
        narrow = narrow.scaled(cooling).plus_identity(growing)
    gaussian = GraphGaussian(mean, wide).bounded()
    if share == 1 and not extra:
        return gaussian, gaussian
    return gaussian, GraphGaussian(mean, narrow).bounded()


_WIDENING = (
    "temperature",
    "variance_scale",
    "temperature_variance",
    "extra_variance",
    "mean_share",
)


def _covariance(posterior: Posterior, features: Value) -> GraphCovariance:
    """Covariance of the logits as it was fitted.

    Raises:
        InputError: If the posterior is none of a head's.
    """
    graph = features.graph
    if isinstance(posterior, posteriors.DiagPosterior):
        # as deviations, which half precision can hold over a wider range
        deviations = _split_bias(
            graph, posterior, posterior.variances.double().sqrt(), "deviations", axis=1
        )
        variances = [None if part is None else part.square() for part in deviations]
        variance = _product(features.square(), *variances, transposed=True)
        return Independent(variance, *_size(posterior))
    if isinstance(posterior, posteriors.KronPosterior):
        squares = _turned(posterior, features).square()
        basis = graph.array(_numpy(posterior.class_basis), "class_basis")
        if posterior.num_classes < MANY_CLASSES:
            weights = squares @ _kron_variances(posterior, graph)
            return SharedBasis(weights, basis, *_size(posterior))
        return ManySharedBasis(_shared(posterior, squares), basis, *_size(posterior))
    if isinstance(posterior, posteriors.DiagKronPosterior):
        squares = _turned(posterior, features).square()
        if posterior.num_classes < MANY_CLASSES:
            return Independent(squares @ _kron_variances(posterior, graph), *_size(posterior))
        return Independent(_shared(posterior, squares).weights, *_size(posterior))
    if isinstance(posterior, posteriors.FullPosterior):
        vectors, constant = _split_bias(graph, posterior, posterior.vectors, "vectors", axis=1)
        assert vectors is not None  # noqa: S101  (weights are always there)
        along = features @ vectors  # (K, B, P)
        along = along if constant is None else along + constant
        along = along.transposed(1, 0, 2)
        spread = graph.array(_numpy(posterior.variances), "variances", exact=True)
        return Dense((along * spread) @ along.transposed(0, 2, 1), *_size(posterior))
    raise InputError(
        f"A graph can hold the posterior of a linear head; got {type(posterior).__name__}, which"
        " covers more layers and runs the network backward. Fit without `layers`."
    )


def _size(posterior: Posterior) -> tuple[int]:
    return (posterior.num_classes,)


def _prior(posterior: Posterior) -> float:
    return float(posterior.prior_precision)


def _numpy(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().to(torch.float64).numpy()
    return array


def _turned(posterior: Any, features: Value) -> Value:  # noqa: ANN401
    """Features, and the constant one, along the eigenvectors of their factor."""
    parts = _split_bias(features.graph, posterior, posterior.feature_basis, "feature_basis", axis=0)
    return _product(features, *parts)


def _shared(posterior: Any, squares: Value) -> FewCoordinates | AllWeights:  # noqa: ANN401
    """Weights of the basis, by few coordinates where that is possible."""
    graph = squares.graph
    values, classes, prior = _factor_values(posterior)
    found = separated(values, classes, prior) if prior else None
    if found is None:
        return AllWeights(squares @ _kron_variances(posterior, graph))
    of_features = graph.array(found.of_first, "feature_coordinates", exact=True)
    return FewCoordinates(squares @ of_features, _interpolation(graph, classes, prior, found))


def _interpolation(graph: Graph, classes: np.ndarray, prior: float, found: Separated) -> Value:
    """What is interpolated with, for every class, shape (r, K): see `laplace.separated`. A
    runtime computes it once, so that a file holds the eigenvalues alone.
    """
    unit = float(classes.max()) or 1.0
    places, rows = found.columns / unit, found.rows * unit
    own = np.eye(len(places), dtype=bool)
    apart = np.where(own, 1.0, places[:, None] - places)
    scale = (rows * places[:, None] + prior) / apart
    values = graph.array(classes[None] / unit, "class_values", exact=True)
    beside = values - graph.constant(places[:, None])
    factors = graph.constant(own[..., None], bool).where(graph.constant(1.0), beside)
    factors = factors / (values * graph.constant(rows[:, None]) + prior)
    factors = factors * graph.constant(scale[..., None])
    return graph.reduce("ReduceProd", factors, 1, keepdims=False)


def _factor_values(posterior: Any) -> tuple[np.ndarray, np.ndarray, float]:  # noqa: ANN401
    """Eigenvalues λ_A and λ_B, and τ, of variances 1/(λ_A λ_B + τ)."""
    values, classes = _numpy(posterior.feature_values), _numpy(posterior.class_values)
    prior = _prior(posterior)
    if isinstance(posterior, posteriors.MatrixNormalPosterior):
        return values + prior**0.5, classes + prior**0.5, 0.0
    return values, classes, prior


def _kron_variances(posterior: Any, graph: Graph) -> Value:  # noqa: ANN401
    """1/(λ_A λ_B + τ), which a runtime computes once: a file holds the eigenvalues."""
    values, classes, prior = _factor_values(posterior)
    # in units of the largest, so that products stay within float32
    unit = float(classes.max()) or 1.0
    first = graph.array(values[:, None] * unit, "feature_values", exact=True)
    second = graph.array(classes[None] / unit, "class_values", exact=True)
    return first.apply("Gemm", second, prior).reciprocal()


def _split_bias(
    graph: Graph,
    posterior: HeadPosterior,
    tensor: Tensor,
    name: str,
    axis: int,
) -> tuple[Value | None, Value | None]:
    """An array's part for features, and the part for the constant one of the bias."""
    array = _numpy(tensor)
    if posterior.bias is None:
        return graph.array(array, name), None
    weights, constant = np.split(array, [array.shape[axis] - 1], axis)
    if axis == 1 and array.ndim == 2:
        constant = constant[:, 0]
    return graph.array(weights, name), graph.array(constant, f"{name}_of_bias")


def _product(
    rows: Value, matrix: Value | None, constant: Value | None, *, transposed: bool = False
) -> Value:
    """Rows times a matrix, plus what the constant one adds."""
    inputs = [matrix] if constant is None else [matrix, constant]
    return rows.apply("Gemm", *inputs, transB=int(transposed))  # type: ignore[arg-type]
