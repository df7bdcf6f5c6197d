"""Networks of skorch, trained on what scikit-learn's classifiers are trained on:
frames, names as labels, and numbers in double precision, as transformers give them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from laplacebridge._arrays import is_array

Array = npt.NDArray[Any]


def is_skorch(estimator: Any) -> bool:
    """Whether a classifier is one of skorch, or a pipeline that ends in one.

    Args:
        estimator: Trained or not.
    """
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    return hasattr(last, "module") and hasattr(last, "initialize_module")


def trained_by_skorch(estimator: Any, inputs: Any, codes: Array) -> Any:
    """The same classifier, trained.

    Args:
        estimator: Of skorch, or a pipeline that ends in one.
        inputs: Its inputs, as the user gives them.
        codes: Their classes by number, since skorch takes no others.
    """
    net = estimator
    if isinstance(estimator, Pipeline):
        before, net = estimator[:-1], estimator[-1]
        if len(before):
            inputs = before.fit_transform(inputs, codes)
            estimator.steps[:-1] = before.steps  # with a cache, those fitted are others
    net.fit(_as_the_network_takes_them(net, inputs), codes)
    return estimator


def _as_the_network_takes_them(net: Any, inputs: Any) -> Any:
    """Frames as arrays, and floating-point numbers in the type of the weights."""
    if not is_array(inputs):
        return inputs
    values = np.asarray(inputs)
    if not values.flags.writeable:  # those of frames, which torch warns of
        values = values.copy()
    if values.dtype != np.float64:
        return values
    with torch.random.fork_rng(devices=[]):  # training begins with the numbers it would have
        weights = clone(net).initialize().module_.parameters()
    first = next(weights, None)
    in_double = first is not None and first.dtype == torch.float64
    return values if in_double else values.astype(np.float32)
