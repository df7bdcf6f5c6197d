"""Classifiers of scikit-learn and networks, taken apart into features and a linear
head.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import gen_batches
from sklearn.utils.validation import _num_samples, validate_data
from torch import Tensor, nn

from laplacebridge import _blocks
from laplacebridge._arrays import to_tensors
from laplacebridge.laplace.head_search import find_head

ACTIVATIONS = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}


@dataclass(frozen=True, eq=False)
class LinearHead:
    """A fitted classifier as features and the linear layer that makes logits of them.

    Attributes:
        steps: The steps of a pipeline before its classifier; None if it is none.
        estimator: The classifier itself, which checks inputs; None for a network.
        body: What is before the last linear layer; None if nothing is.
        weight: Of the last layer; one row for two classes, or one for each class.
        bias: The same.
    """

    steps: Pipeline | None
    estimator: Any
    body: nn.Module | None
    weight: Tensor
    bias: Tensor

    @property
    def num_features(self) -> int:
        """D, what the head takes."""
        return self.weight.shape[1]

    def linear(self) -> nn.Linear:
        """The head as a layer."""
        layer = nn.Linear(self.weight.shape[1], self.weight.shape[0], dtype=self.weight.dtype)
        layer.load_state_dict({"weight": self.weight, "bias": self.bias})
        return layer

    def prepared(self, inputs: Any) -> Any:
        """Inputs as the body takes them, checked as the classifier checks them.

        Args:
            inputs: As the user gives them.
        """
        if self.steps is not None:
            inputs = self.steps.transform(inputs)
        if self.estimator is None:
            return inputs
        return validate_data(
            self.estimator, inputs, accept_sparse="csr", dtype=np.float64, reset=False
        )

    def batches(self, prepared: Any) -> Iterator[Tensor]:
        """Features in float64, a part of the rows at a time.

        Args:
            prepared: As `prepared` gives them.
        """
        for rows in gen_batches(_num_samples(prepared), _blocks.ROWS_OF_AN_ESTIMATOR):
            part = prepared[rows]
            dense = part.toarray() if sparse.issparse(part) else part
            features = as_input(dense, self.body)
            with torch.no_grad():
                yield (features if self.body is None else self.body(features)).double().cpu()

    def features(self, inputs: Any) -> Tensor:
        """Features of all rows, in float64.

        Args:
            inputs: As the user gives them.
        """
        return torch.cat(list(self.batches(self.prepared(inputs))))


def as_input(values: Any, network: nn.Module | None) -> Tensor:
    """Rows as a network takes them: floating-point ones in its own type, where it is.

    Args:
        values: An array, a frame or a tensor.
        network: The network; None for features that go to no network.
    """
    tensor = torch.as_tensor(to_tensors(values))  # arrays of frames are often read-only
    first = None if network is None else next(network.parameters(), None)
    if first is None:
        return tensor.double()
    return tensor.to(first.device, first.dtype if tensor.is_floating_point() else None)


def head_of(estimator: Any, inputs: Any) -> LinearHead | None:
    """The head of a fitted classifier; None if it has none.

    Args:
        estimator: A linear classifier, an `MLPClassifier`, a pipeline that ends in one,
            a network, or a wrapper of skorch.
        inputs: Some of its inputs, with which the last layer of a network is found.
    """
    steps = None
    while isinstance(estimator, Pipeline):
        before = estimator[:-1] if len(estimator) > 1 else None
        inputs = inputs if before is None else before.transform(inputs)
        if before is not None:
            steps = before if steps is None else Pipeline([*steps.steps, *before.steps])
        estimator = estimator[-1]
    module = estimator if isinstance(estimator, nn.Module) else getattr(estimator, "module_", None)
    if isinstance(module, nn.Module):
        return _of_network(module, inputs, steps)
    if isinstance(estimator, MLPClassifier):
        return _of_perceptron(estimator, steps)
    return _of_linear(estimator, steps)


def _of_network(module: nn.Module, inputs: Any, steps: Pipeline | None) -> LinearHead:
    some = as_input(inputs[: min(2, _num_samples(inputs))], module)
    network = find_head(module, some)
    weight = network.weight()
    bias = network.bias()
    zeros = weight.new_zeros(len(weight))
    return LinearHead(
        steps,
        None,
        network,
        weight.double().cpu(),
        (zeros if bias is None else bias).double().cpu(),
    )


def _of_perceptron(estimator: MLPClassifier, steps: Pipeline | None) -> LinearHead:
    layers: list[nn.Module] = []
    for weight, bias in zip(estimator.coefs_[:-1], estimator.intercepts_[:-1]):
        layers += [_layer(weight.T, bias), ACTIVATIONS[estimator.activation]()]
    head = _layer(estimator.coefs_[-1].T, estimator.intercepts_[-1])
    return LinearHead(
        steps, estimator, nn.Sequential(*layers), head.weight.detach(), head.bias.detach()
    )


def _of_linear(estimator: Any, steps: Pipeline | None) -> LinearHead | None:
    """A classifier whose probabilities follow from one linear map for each class."""
    weight, bias = getattr(estimator, "coef_", None), getattr(estimator, "intercept_", None)
    classes = getattr(estimator, "classes_", ())
    if weight is None or bias is None or not hasattr(estimator, "predict_proba"):
        return None
    rows = 1 if len(classes) == 2 else len(classes)
    weight, bias = sparse.csr_array(weight).toarray(), np.broadcast_to(bias, (rows,))
    if weight.shape[0] != rows:  # such as one for each pair of classes
        return None
    head = _layer(weight, bias)
    return LinearHead(steps, estimator, None, head.weight.detach(), head.bias.detach())


def _layer(weight: npt.ArrayLike, bias: npt.ArrayLike) -> nn.Linear:
    exact = torch.tensor(np.asarray(weight), dtype=torch.float64)
    layer = nn.Linear(exact.shape[1], exact.shape[0], dtype=torch.float64)
    layer.load_state_dict({"weight": exact, "bias": torch.tensor(np.asarray(bias)).double()})
    return layer
