"""From inputs to features, and from features to predictions: what is around a posterior
and its bridge, as functions that compile, and in blocks of rows.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from laplacebridge import _blocks
from laplacebridge._checks import is_readable
from laplacebridge._values import replaced
from laplacebridge.bridges import (
    Bridge,
    mean_of,
    predict,
    predict_apart,
)
from laplacebridge.errors import InputError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.batch import Batch
from laplacebridge.laplace.batch_checks import explain_error
from laplacebridge.laplace.feature_statistics import joint_logit
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_posteriors.base import HeadPosterior
from laplacebridge.laplace.layers.network import Linearisation
from laplacebridge.laplace.network import Network
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.unusual import UnusualScore
from laplacebridge.prediction import Prediction
from laplacebridge.unusual import Unusual

# From a posterior, a bridge and what the network passes on to tensors of answers.
Step = Callable[..., tuple[Tensor, ...]]
_NAMED_ROWS = 5  # of those that are wrong
_PLAIN = (bool, int, float, str, bytes, np.ndarray, type(None))


def passed_on(network: Network, batch: Batch) -> tuple[Any, ...]:
    """What the network passes on to the posterior, with a clear error for inputs that
    it cannot run.

    Args:
        network: The network.
        batch: Its inputs.
    """
    if torch.compiler.is_compiling():
        return network.for_posterior(batch)
    try:  # not `explain_failure`: a context takes longer than this
        with _recording(batch):
            passed = network.for_posterior(batch)
    except Exception as error:
        explain_error(error, network.model, batch, "these inputs,")
        raise
    require_finite_rows(**dict(zip(("features", "logits"), passed)))
    return passed


def _recording(batch: Batch) -> AbstractContextManager[None]:
    """Where gradients are recorded: only if inputs ask for them. The weights of a
    trained network would otherwise, and answers could not be taken as arrays.

    Args:
        batch: Inputs of the network.
    """
    if torch.compiler.is_compiling():
        return nullcontext()
    for leaf in _pytree.tree_leaves((batch.arguments, batch.keywords)):
        # what cannot be looked into may hold tensors that ask
        if leaf.requires_grad if isinstance(leaf, Tensor) else not isinstance(leaf, _PLAIN):
            return nullcontext()
    return torch.no_grad()


def require_finite_rows(**parts: Any) -> None:  # noqa: ANN401
    """Refuses rows that are not finite, by number.

    Args:
        parts: What the network makes, by name, all on one device; what is no tensor is
            not looked at.

    Raises:
        InputError: If there are some.
    """
    readable = False
    for name, part in parts.items():
        if not isinstance(part, Tensor):
            continue
        readable = readable or is_readable(part)
        if readable and not part.isfinite().all():
            rows = (~part.isfinite()).any(-1).nonzero().flatten().tolist()
            more = ", …" if len(rows) > _NAMED_ROWS else ""
            raise InputError(
                f"The network makes {name} that are not finite of {len(rows)} rows:"
                f" {', '.join(map(str, rows[:_NAMED_ROWS]))}{more} (counted from 0). Look for NaN"
                " or infinity in these inputs, and leave them out or fill in what is missing."
            )


def predicted(
    posterior: Posterior,
    bridge: Bridge,
    unusual: UnusualScore | None,
    fading: UnusualScore | None,
    *passed: Any,  # noqa: ANN401
) -> Prediction:
    """What follows the network: predictions, and how unusual their inputs are."""
    parts = beyond = None
    rows = posterior.rows_per_example
    if unusual is not None:
        known = len(passed) == 2 and passed[1] is not None
        features, logits = passed if known else _seen(posterior, unusual, *passed)
        parts = unusual.parts(features, joint_logit(logits) if rows > 1 else logits)
        if fading is not None:
            beyond = fading.beyond(parts[:, 2])
        if isinstance(posterior, HeadPosterior):
            # what the head makes of features, which need not be made again
            passed = features, logits
    wide, narrow = posterior.wide_and_narrow(*passed, beyond=beyond)
    prediction = predict(wide, bridge) if narrow is None else predict_apart(wide, narrow, bridge)
    if unusual is None or parts is None:
        return prediction
    score = unusual.of_parts(parts)
    score = score if rows == 1 else posterior.for_rows(score)
    return replaced(prediction, unusual=Unusual(score, unusual.reference))


def gaussians_over_logits(
    posterior: Posterior,
    fading: UnusualScore | None,
    *passed: Any,  # noqa: ANN401
) -> tuple[LogitGaussian, LogitGaussian | None]:
    """The Gaussians over logits, which fade where inputs are far from held-out data."""
    beyond = None
    if fading is not None:
        beyond = fading.beyond(fading.distances(_seen(posterior, fading, *passed)[0])[:, 1])
    return posterior.wide_and_narrow(*passed, beyond=beyond)


def prediction_tensors(
    posterior: Posterior,
    bridge: Bridge,
    unusual: UnusualScore | None,
    fading: UnusualScore | None,
    *passed: Any,  # noqa: ANN401
) -> tuple[Tensor, ...]:
    """The same as tensors, with scores of unusual inputs if there are any: compiled
    code gives no objects, and blocks are joined.
    """
    prediction = predicted(posterior, bridge, unusual, fading, *passed)
    answer = (prediction.dirichlet.log_concentration, prediction.log_odds_variance)
    return answer if prediction.unusual is None else (*answer, prediction.unusual.score)


def _seen(
    posterior: Posterior,
    unusual: UnusualScore,
    features: Any,  # noqa: ANN401
    logits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Features and logits of the head."""
    if isinstance(features, Linearisation):
        head = HeadNetwork(features.network.model, unusual.head_name)
        passed = head.run(features.batch)
        return passed.features, head.exact_logits(passed)
    if logits is None:
        assert isinstance(posterior, HeadPosterior)  # noqa: S101  (others take a linearisation)
        return posterior.with_logits(features)
    return features, logits


def mean_probabilities(
    posterior: Posterior,
    bridge: Bridge,
    unusual: UnusualScore | None,
    fading: UnusualScore | None,
    *passed: Any,  # noqa: ANN401
) -> tuple[Tensor, ...]:
    wide, narrow = gaussians_over_logits(posterior, fading, *passed)
    return (mean_of(bridge)(wide if narrow is None else narrow),)


def in_blocks(
    step: Step,
    posterior: Posterior,
    bridge: Bridge,
    unusual: UnusualScore | None,
    fading: UnusualScore | None,
    *passed: Any,  # noqa: ANN401
) -> tuple[Tensor, ...]:
    """A step over all rows, in blocks that memory holds if there are many.

    Args:
        step: `prediction_tensors` or `mean_probabilities`, or one of them compiled.
        posterior: What the step takes, like what follows.
        bridge: The same.
        unusual: The same.
        fading: The same.
        passed: What the network passes on.
    """
    if fits_at_once(posterior, passed[0]):
        return step(posterior, bridge, unusual, fading, *passed)
    total, filled = len(passed[0]), 0
    size = max(1, _blocks.ELEMENTS_AT_ONCE // posterior.num_classes)
    joined: tuple[Tensor, ...] = ()
    for start in range(0, total, size):
        block = (None if part is None else part[start : start + size] for part in passed)
        answer = step(posterior, bridge, unusual, fading, *block)
        # not `cat`, which would hold all blocks twice
        rows_of_all = total * posterior.rows_per_example
        joined = joined or tuple(part.new_empty(rows_of_all, *part.shape[1:]) for part in answer)
        rows = slice(filled, filled + len(answer[0]))
        for whole, part in zip(joined, answer):
            whole[rows] = part
        filled = rows.stop
    return joined


def fits_at_once(posterior: Posterior, features: Any) -> bool:  # noqa: ANN401
    """Whether these rows need no blocks; gradients and compiled calls need to be whole.

    Args:
        posterior: It says how many classes there are.
        features: What the network passes on first.
    """
    if torch.compiler.is_compiling() or (isinstance(features, Tensor) and features.requires_grad):
        return True
    return len(features) * posterior.num_classes <= _blocks.ELEMENTS_AT_ONCE
