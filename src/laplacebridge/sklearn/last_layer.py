"""Methods that only a classifier with a last linear layer has."""

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any

from laplacebridge.errors import LaplaceBridgeError


class NoLastLayerError(LaplaceBridgeError, AttributeError):
    """A classifier without a last linear layer has no distribution over probabilities."""


class NeedsLastLayer:
    """A method that is not there for a classifier without a last linear layer, as
    scikit-learn has it: `hasattr` says no, and the error says why.

    Args:
        method: The method.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        update_wrapper(self, method)  # type: ignore[arg-type]
        self.method = method

    def __get__(self, model: Any, owner: type | None = None) -> Callable[..., Any]:
        """The method of a classifier.

        Raises:
            NoLastLayerError: If it has no last linear layer.
        """
        if model is None:
            return self.method
        if getattr(model, "classifier_", self) is None:
            raise NoLastLayerError(
                f"`{self.method.__name__}` needs a classifier with a last linear layer (logistic"
                " regression, linear discriminant analysis, a neural network);"
                f" {type(model.estimator_).__name__} has none. Its probabilities have no"
                " distribution here: `predict_proba`, `predict_set` and `decision` are there."
            )
        return MethodType(self.method, model)
