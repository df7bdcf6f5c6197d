"""The front door: `fit` a trained network, get a `Classifier`."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from laplacebridge._checks import check
from laplacebridge.bridges import Bridge, race_bridge
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.laplace import prior
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.laplace.curvature import Curvature, Sums
from laplacebridge.laplace.examples import examples_of
from laplacebridge.laplace.fitting import FitInterrupted, HeadSums
from laplacebridge.laplace.label_statistics import LabelStatistics, warn_if_untrained
from laplacebridge.laplace.layers.fitting import LayerSums
from laplacebridge.laplace.network import Network
from laplacebridge.laplace.posterior import Posterior

# Of these, predictions are looked at before the classifier is handed over.
CHECKED_EXAMPLES = 32


def fit(
    model: nn.Module,
    train_loader: Iterable[Any],
    *,
    val_loader: Iterable[Any] | None = None,
    curvature: type[Curvature] | None = None,
    posterior: type[Posterior] | None = None,
    prior_precision: float | None = None,
    tune_temperature: bool = False,
    bridge: Bridge = race_bridge,
    head: str | None = None,
    layers: str | Sequence[str] | None = None,
    resume: FitInterrupted | Sums | None = None,
    progress: bool = True,
) -> Classifier:
    """Fits a Laplace approximation to a trained classifier: of its last layer, or of the layers that are named.

    One pass over the data, for the last layer without gradients. The model is not changed. A linear layer alone is a
    model too, so that features computed before can be fitted: ``fit(nn.Linear(...), loader_of_features_and_labels)``.

    Args:
        model: A trained network that returns logits.
        train_loader: A loader of training batches: (inputs, labels), mappings with labels, or inputs alone. Labels
            stand where their logits are: those of a causal language model must be shifted by one token.
        val_loader: Batches with labels that the network was not trained on, to choose the prior precision by.
        curvature: `Diag`, `Kron`, `DiagKron` or `Full`; by default `Kron` up to 4000 classes and `DiagKron` above.
            For several layers `Diag`, `Kron` (by default) or, up to 5000 weights, `Full`.
        posterior: Another posterior than the usual one of that curvature: for `Kron`, `MatrixNormalPosterior` is the
            paper's, with the prior damped into the factors.
        prior_precision: If known; otherwise it is chosen by validation, or by evidence if there is no ``val_loader``.
        tune_temperature: Choose a temperature of the logits along with the prior precision; needs a ``val_loader``.
        bridge: How to predict.
        head: Name of the last linear layer; found by running the model if not given.
        layers: Linear layers and convolutions by name, one pattern or several: ``"*"`` for all, ``"features.*"`` for
            those of a part. The rest of the network is left as it was trained; so is batch normalisation. Fitting and
            predicting then take a backward pass for each class, see `laplace.layers`. By default the head alone.
        resume: What a fit that was interrupted raised, or its sums, which these batches are added to.
        progress: Show a progress bar and say what was chosen.

    Raises:
        InputTypeError: If the model is not a network, or tensors were given in place of a loader.
        InputError: If there are no batches, or no way to choose a prior precision; or layers are not there or not
            supported.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))  # a trained network in practice
        >>> inputs, labels = torch.eye(4), torch.tensor([0, 1, 2, 0])
        >>> classifier = fit(model, [(inputs, labels)], prior_precision=1.0, progress=False)
        >>> dirichlet = classifier(inputs)
        >>> dirichlet.mean.shape, dirichlet.marginal(0).interval(0.95)[0].shape
        (torch.Size([4, 3]), torch.Size([4]))
    """
    if not isinstance(model, nn.Module):
        raise InputTypeError(
            "`fit(model, train_loader)` needs a network first, an `nn.Module`, and a loader second; got "
            f"{type(model).__name__} first. A linear model of another library is fitted as an `nn.Linear` with its "
            "weights, on batches of features: see `examples/features_and_head.py`."
        )
    require_loader("train_loader", train_loader)
    require_loader("val_loader", val_loader)
    if tune_temperature and (prior_precision is not None or val_loader is None):
        given = "`prior_precision`" if prior_precision is not None else "no `val_loader`"
        raise InputError(
            f"`fit(tune_temperature=True)` chooses the temperature together with the prior precision; got {given}. "
            "Give a `val_loader`, and no `prior_precision`."
        )
    sums = _sums(model, head, layers, curvature, resume, progress)
    sums.add(train_loader)
    if sums.network is None or sums.curvature is None:
        raise InputError(
            "`fit` needs at least one batch; the loader yielded none. Is it a generator that was used up, or empty?"
        )
    total, labels = sums.reduced()
    fitted = sums.posterior(total, prior_precision or 1.0, posterior)
    if prior_precision is None:
        temperatures = prior.TEMPERATURES if tune_temperature else (1.0,)
        choice = _choose(fitted, labels, sums.network, val_loader, bridge, temperatures, progress)
        fitted = fitted.with_prior(choice.prior_precision)
        if choice.temperature != 1:
            fitted = fitted.with_temperature(choice.temperature)
    else:
        choice = prior.given(prior_precision)
    if sums.some_features is not None:
        with torch.no_grad():
            check(bridge(check(fitted(sums.some_features[:CHECKED_EXAMPLES]))))
        if prior_precision is None and val_loader is None:
            prior.warn_if_underconfident(fitted, bridge, sums.some_features)
    if labels is not None:
        warn_if_untrained(labels)
    if progress:
        tqdm.write(f"laplacebridge: prior precision {choice.prior_precision:.3g}, {choice.method}", file=sys.stderr)
    return Classifier(sums.network, fitted, bridge=bridge, labels=labels, prior_choice=choice)


def _sums(
    model: nn.Module,
    head: str | None,
    layers: str | Sequence[str] | None,
    curvature: type[Curvature] | None,
    resume: FitInterrupted | Sums | None,
    progress: bool,
) -> HeadSums | LayerSums:
    if layers is None:
        return HeadSums(model, head, curvature, resume, progress)
    if head is not None:
        raise InputError(
            f"`fit` takes `head` or `layers`, not both; got {head!r} and {layers!r}. `layers={head!r}` alone covers "
            "that layer."
        )
    return LayerSums(model, layers, curvature, resume, progress)


def _choose(
    posterior: Posterior,
    labels: LabelStatistics | None,
    network: Network,
    val_loader: Iterable[Any] | None,
    bridge: Bridge,
    temperatures: Sequence[float],
    progress: bool,
) -> prior.PriorChoice:
    if val_loader is not None:
        bar = "validating" if progress else ""
        validation = examples_of(network, val_loader, purpose="Validation", needs_labels=True, progress=bar)
        assert validation.labels is not None  # noqa: S101  (they were needed)
        return prior.by_validation(posterior, bridge, validation.features, validation.labels, temperatures=temperatures)
    if labels is None or labels.log_likelihood is None:
        raise InputError(
            "`fit` needs a way to choose the prior precision: labels in the training loader (then by evidence), a "
            "`val_loader` with labels, or `prior_precision=` itself. The loader yielded inputs alone, or earlier sums "
            "came without their likelihood."
        )
    return prior.by_evidence(posterior, labels.log_likelihood)
