"""What held-out data decide after a fit: prior, temperature and width, and what is
unusual.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch

from laplacebridge._checks import is_half, labels_of
from laplacebridge._warnings import warn
from laplacebridge.bridges import Bridge
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace import prior
from laplacebridge.laplace.examples import Examples, examples_of
from laplacebridge.laplace.feature_statistics import joint_logit
from laplacebridge.laplace.fitting import RunningSums
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.layers.network import Linearisation
from laplacebridge.laplace.network import Network
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.unusual import UnusualScore
from laplacebridge.laplace.width import Width, by_held_out_labels
from laplacebridge.multi_label.fitting import held_out_labels


def unusual_score(sums: RunningSums) -> UnusualScore | None:
    """The score of unusual inputs, if features were summed."""
    features = sums.reduced_features()
    if features is None or sums.head_network is None:
        return None
    weight = sums.head_network.weight()
    dtype = torch.float32 if is_half(weight.dtype) else weight.dtype
    return UnusualScore.of_sums(features, dtype, sums.head_network.head_name)


def held_out_examples(
    network: Network,
    val_loader: Iterable[Any],
    num_classes: int,
    progress: bool,
    multi_label: bool,
) -> Examples:
    """Held-out examples as the posterior sees them.

    Raises:
        ShapeError: If votes are not on the classes of the model.
    """
    bar = "validating" if progress else ""
    if multi_label:
        return held_out_labels(network, val_loader, num_classes, bar)
    held_out = examples_of(
        network,
        val_loader,
        purpose="Validation",
        needs_labels=True,
        num_classes=num_classes,
        progress=bar,
    )
    assert held_out.labels is not None  # noqa: S101  (they were needed)
    labels_of("fit(val_loader)", held_out.labels, len(held_out), num_classes)
    if held_out.votes is not None and held_out.votes.shape[-1] != num_classes:
        raise ShapeError(
            f"`fit(val_loader)` got votes on {held_out.votes.shape[-1]} classes; the model has"
            f" {num_classes}. Give one column for each of its classes, in its order."
        )
    return held_out


def calibrated(unusual: UnusualScore, sums: RunningSums, held_out: Examples) -> UnusualScore:
    """The score of unusual inputs as held-out examples make it."""
    head, features = sums.head_network, held_out.features
    assert head is not None  # noqa: S101  (the score is of its features)
    with torch.no_grad():
        if isinstance(features, Linearisation):
            passed = head.run(features.batch)
            return unusual.calibrated(passed.features, head.exact_logits(passed))
        logits = head.logits_at(features)
        return unusual.calibrated(
            features, joint_logit(logits) if sums.loss.multi_label else logits
        )


def choose(
    posterior: Posterior,
    labels: LabelStatistics | None,
    held_out: Examples | None,
    bridge: Bridge,
    tune_temperature: bool,
) -> tuple[Posterior, prior.PriorChoice]:
    """The posterior under a prior, and with a width, that the data choose.

    Raises:
        InputError: If there is nothing to choose by.
    """
    log_likelihood = None if labels is None else labels.log_likelihood
    if held_out is None:
        if log_likelihood is None:
            raise InputError(
                "`fit` needs a way to choose the prior precision: labels in the training loader"
                " (then by evidence), a `val_loader` with labels, or `prior_precision=` itself. The"
                " loader yielded inputs alone, or earlier sums came without their likelihood."
            )
        choice = prior.by_evidence(posterior, log_likelihood)
        return posterior.with_prior(choice.prior_precision), choice
    assert held_out.labels is not None  # noqa: S101  (they were needed)
    if labels is None or log_likelihood is None or tune_temperature:
        temperatures = prior.TEMPERATURES if tune_temperature else (1.0,)
        choice = prior.by_validation(
            posterior, bridge, held_out.features, held_out.labels, temperatures=temperatures
        )
        posterior = posterior.with_prior(choice.prior_precision)
        return (
            posterior if choice.temperature == 1 else posterior.with_temperature(choice.temperature)
        ), choice
    choice = prior.by_evidence(posterior, log_likelihood, warn_at_edge=False)
    posterior = posterior.with_prior(choice.prior_precision)
    width = by_held_out_labels(
        posterior, bridge, held_out.features, held_out.labels, labels, held_out.votes
    )
    for message in width.warnings():
        warn(message)
    if _is_training_data(width, labels):
        warn(
            f"The held-out data are the training data: {width.num_labels} labels of the same"
            " likelihood. Temperature and width then rest on what the network has learnt by"
            " heart, and intervals are too narrow. Give examples that it was not trained on."
        )
    counted = f"{width.num_votes} votes on " if width.num_votes else ""
    method = f"{choice.method}; width by {counted}{width.num_labels} held-out labels"
    temperature = width.widening.temperature
    return posterior.widened(width.widening), choice._replace(
        temperature=temperature, width=width, method=method
    )


def _is_training_data(width: Width, training: LabelStatistics) -> bool:
    """Whether held-out labels are as many as those of the training, and fitted as well
    to more digits than chance explains.
    """
    same = math.isclose(width.held_out_brier, training.brier, rel_tol=1e-6)
    return same and width.num_labels == training.num_labels and training.brier > 0
