"""The front door: `fit` a trained network, get a `Classifier` that answers with Dirichlets."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from tqdm import tqdm

from laplacebridge.bridges import one_vs_rest_bridge, one_vs_rest_mean, race_bridge, race_mean
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace import prior
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.laplace.curvature import Curvature, Sums, readable_size
from laplacebridge.laplace.fitting import FitInterrupted, HeadSums, cached_features
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_posteriors import POSTERIORS as POSTERIORS
from laplacebridge.laplace.layers.fitting import NetworkSums
from laplacebridge.laplace.layers.network import Linearisation, LinearisedNetwork
from laplacebridge.laplace.posterior import Posterior

Bridge = Callable[[LogitGaussian], Dirichlet]

# bridges whose mean costs less without its precision
MEAN_ALONE: tuple[tuple[Bridge, Callable[[LogitGaussian], Tensor]], ...] = (
    (race_bridge, race_mean),
    (one_vs_rest_bridge, one_vs_rest_mean),
)
# Mean, covariance and bridge go over about so many logits at a time: beyond, memory grows by the answer alone.
LOGITS_AT_ONCE = 2**22


class Classifier(nn.Module):
    """A trained network that answers with a Dirichlet: features → posterior over logits → bridge.

    Args:
        network: The network, split at its head; or linear in the weights of several layers.
        posterior: Gaussian over the weights of the head, or of these layers.
        bridge: From Gaussians over logits to Dirichlets.
        log_likelihood: Of the labels it was fitted on, for the evidence; None if there were none.
        choice: How the prior precision was chosen.

    Example:
        >>> classifier = fit(nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False)
        >>> classifier(torch.eye(4)).mean.shape
        torch.Size([4, 3])
        >>> surer = classifier.with_prior(100.0)
        >>> bool((surer.logits(torch.eye(4)).variance < classifier.logits(torch.eye(4)).variance).all())
        True
    """

    def __init__(
        self,
        network: HeadNetwork | LinearisedNetwork,
        posterior: Posterior,
        *,
        bridge: Bridge = race_bridge,
        log_likelihood: float | None = None,
        choice: prior.PriorChoice | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.posterior = posterior
        self.bridge = bridge
        self.log_likelihood = log_likelihood
        self.choice = choice or prior.given(float(posterior.prior_precision))
        self._compiled: Callable[..., Tensor] | None = None

    def forward(self, *inputs: Any, **keywords: Any) -> Dirichlet:  # noqa: ANN401
        """A Dirichlet for every row of the inputs; tokens and pixels are rows too."""
        return Dirichlet(self._answers(self.bridge, "log_concentration", inputs, keywords))

    def probabilities(self, *inputs: Any, **keywords: Any) -> Float[Tensor, "B K"]:  # noqa: ANN401
        """Mean class probabilities alone: those of the Dirichlets, without the cost of their precision."""
        for bridge, mean_alone in MEAN_ALONE:
            if bridge is self.bridge:
                return self._answers(mean_alone, None, inputs, keywords)
        return self._answers(self.bridge, "mean", inputs, keywords)

    def logits(self, *inputs: Any, **keywords: Any) -> LogitGaussian:  # noqa: ANN401
        """The Gaussian over logits, before the bridge."""
        return self.posterior(*self.network.for_posterior(*inputs, **keywords))

    def features(self, *inputs: Any, **keywords: Any) -> Float[Tensor, "B D"] | Linearisation:  # noqa: ANN401
        """What the posterior takes: the input of the head; or, for several layers, the network linearised there."""
        return self.network(*inputs, **keywords)

    def compile(self, **options: Any) -> None:  # noqa: ANN401
        """Compiles what comes after the network, from features to Dirichlets, with `torch.compile`.

        It pays where examples come one at a time: there the many small steps of a bridge cost more than their
        arithmetic. Needs a C++ compiler. The first call takes long, with `race_bridge` very long, and so does the first
        call with another number of examples; later ones are fast. `docs/benchmarks.md` has the figures.
        `probabilities` is compiled apart, when first called. Answers agree to rounding. The network itself is not
        compiled; it can be, before the fit. `with_prior` and `with_bridge` give classifiers that are not compiled, and
        a saved one is not either.

        Args:
            options: For `torch.compile`, such as ``dynamic=True``.

        Raises:
            ValueError: If the posterior covers more than the head: its predictions run the network backward.
        """
        if isinstance(self.network, LinearisedNetwork):
            raise ValueError(
                f"`compile` needs a posterior of the head alone; this one covers {self.network.described()}, and runs "
                "the network backward for each prediction. Fit without `layers` to compile."
            )
        with torch.no_grad():  # what is computed once, for all predictions, should be there before
            self.bridge(self.posterior(torch.zeros(1, self.network.num_features, device=self.network.device)))
        self._compiled = torch.compile(_answer, **options)

    def with_prior(self, prior_precision: float) -> "Classifier":
        """The same fit under another prior precision."""
        return self._replaced(posterior=self.posterior.with_prior(prior_precision), choice=prior.given(prior_precision))

    def with_bridge(self, bridge: Bridge) -> "Classifier":
        """The same fit with another bridge."""
        return self._replaced(bridge=bridge)

    def evidence(self) -> float:
        """Laplace's approximation of the log marginal likelihood of the training labels.

        Raises:
            ValueError: If the fit saw no labels.
        """
        if self.log_likelihood is None:
            raise ValueError("The evidence needs labels, but the loader of the fit yielded inputs alone.")
        return self.posterior.log_evidence(self.log_likelihood)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.posterior.num_classes

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "_compiled": None}  # code of this process

    def __repr__(self) -> str:
        held = sum(buffer.nbytes for buffer in self.posterior.buffers())
        bridge = getattr(self.bridge, "__name__", repr(self.bridge))
        heat = float(self.posterior.temperature)
        return (
            f"Classifier({type(self.network.model).__name__} with {self.network.described()}, K = {self.num_classes}, "
            f"{type(self.posterior).__name__}, prior precision {float(self.posterior.prior_precision):.3g} "
            f"({self.choice.method}), {f'temperature {heat:.3g}, ' if heat != 1 else ''}{bridge}, "
            f"{readable_size(held)})"
        )

    def _answers(
        self,
        bridge: Callable[[LogitGaussian], Any],
        part: str | None,
        inputs: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> Tensor:
        passed = self.network.for_posterior(*inputs, **keywords)
        if isinstance(passed[0], Tensor) and not passed[0].isfinite().all():
            row = int((~passed[0].isfinite()).any(-1).nonzero()[0])
            raise ValueError(
                f"The network makes features that are not finite of row {row} (counted from 0). Look for NaN or "
                "infinity in that input, and leave it out or fill in what is missing."
            )
        answer = self._compiled or _answer
        answers = (answer(self.posterior, bridge, part, *block) for block in self._blocks(passed))
        total, filled, joined = len(passed[0]), 0, torch.empty(0)
        for block in answers:
            if len(block) == total:
                return block
            if not filled:
                joined = block.new_empty(total, block.shape[1])  # not `cat`, which would hold all blocks twice
            joined[filled : filled + len(block)] = block
            filled += len(block)
        return joined

    def _blocks(self, passed: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        features, rows = passed[0], max(1, LOGITS_AT_ONCE // self.num_classes)
        if len(features) <= rows or (isinstance(features, Tensor) and features.requires_grad):
            yield passed
            return
        for start in range(0, len(features), rows):
            yield tuple(part if part is None else part[start : start + rows] for part in passed)

    def _replaced(self, **changes: Any) -> "Classifier":  # noqa: ANN401
        kept = {"bridge": self.bridge, "log_likelihood": self.log_likelihood, "choice": self.choice}
        posterior = changes.pop("posterior", self.posterior)
        return type(self)(self.network, posterior, **{**kept, **changes})


def _answer(posterior: Posterior, bridge: Callable[[LogitGaussian], Any], part: str | None, *passed: Any) -> Tensor:  # noqa: ANN401
    """What follows the network, as a tensor: `torch.compile` gives no objects."""
    answer = bridge(posterior(*passed))
    return answer if part is None else getattr(answer, part)


def fit(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    curvature: type[Curvature] | Sums | FitInterrupted | None = None,
    posterior: type[Posterior] | None = None,
    prior_precision: float | None = None,
    val_loader: Iterable[Any] | None = None,
    bridge: Bridge = race_bridge,
    head: str | None = None,
    layers: str | Sequence[str] | None = None,
    temperature: bool = False,
    progress: bool = True,
) -> Classifier:
    """Fits a Laplace approximation to a trained classifier: of its last layer, or of the layers that are named.

    One pass over the data, for the last layer without gradients. The model is not changed. A linear layer alone is a
    model too, so that features computed before can be fitted: ``fit(nn.Linear(...), loader_of_features_and_labels)``.

    Args:
        model: A trained network that returns logits.
        batches: A loader of training batches: (inputs, labels), mappings with labels, or inputs alone. Labels stand
            where their logits are: those of a causal language model must be shifted by one token.
        curvature: `Diag`, `Kron`, `DiagKron` or `Full`; by default `Kron` up to 4000 classes and `DiagKron` above.
            For several layers `Diag`, `Kron` (by default) or, up to 5000 weights, `Full`.
            Or what a fit that was interrupted raised, or its sums, which these batches are added to.
        posterior: Another posterior than the usual one of that curvature: for `Kron`, `MatrixNormalPosterior` is the
            paper's, with the prior damped into the factors.
        prior_precision: If known; otherwise it is chosen by validation, or by evidence if there is no ``val_loader``.
        val_loader: Batches with labels that the network was not trained on, to choose the prior precision by.
        bridge: How to predict.
        head: Name of the last linear layer; found by running the model if not given.
        layers: Linear layers and convolutions by name, one pattern or several: ``"*"`` for all, ``"features.*"`` for
            those of a part. The rest of the network is left as it was trained; so is batch normalisation. Fitting and
            predicting then take a backward pass for each class, see `laplace.layers`. By default the head alone.
        temperature: Choose a temperature of the logits along with the prior precision; needs a ``val_loader``.
        progress: Show a progress bar and say what was chosen.

    Raises:
        TypeError: If the model is not a network, or tensors were given in place of a loader.
        ValueError: If there are no batches, or no way to choose a prior precision; or layers are not there or not
            supported.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))  # trained, in earnest
        >>> inputs, labels = torch.eye(4), torch.tensor([0, 1, 2, 0])
        >>> classifier = fit(model, [(inputs, labels)], prior_precision=1.0, progress=False)
        >>> dirichlet = classifier(inputs)
        >>> dirichlet.mean.shape, dirichlet.marginal(0).interval(0.95)[0].shape
        (torch.Size([4, 3]), torch.Size([4]))
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            "`fit(model, batches)` needs a network first, an `nn.Module`, and batches second; got "
            f"{type(model).__name__} first. A linear model of another library is fitted as an `nn.Linear` with its "
            "weights, on batches of features: see `examples/features_and_head.py`."
        )
    require_loader("batches", batches)
    require_loader("val_loader", val_loader)
    sums = _sums(model, head, layers, curvature, progress)
    sums.add(batches)
    if sums.network is None or sums.curvature is None:
        raise ValueError(
            "`fit` needs at least one batch; the loader yielded none. Is it a generator that was used up, or empty?"
        )
    total, log_likelihood = sums.reduced()
    network = sums.network
    fitted = sums.posterior(total, prior_precision or 1.0, posterior)
    temperatures = prior.TEMPERATURES if temperature else (1.0,)
    choice = _choose(fitted, prior_precision, log_likelihood, network, val_loader, bridge, temperatures, progress)
    classifier = Classifier(
        network,
        fitted.with_prior(choice.prior_precision).with_temperature(choice.temperature),
        bridge=bridge,
        log_likelihood=log_likelihood,
        choice=choice,
    )
    if prior_precision is None and val_loader is None and sums.some_features is not None:
        prior.warn_if_underconfident(classifier.posterior, bridge, sums.some_features)
    if progress:
        tqdm.write(f"laplacebridge: prior precision {choice.prior_precision:.3g}, {choice.method}", file=sys.stderr)
    return classifier


def _sums(
    model: nn.Module,
    head: str | None,
    layers: str | Sequence[str] | None,
    curvature: type[Curvature] | Sums | FitInterrupted | None,
    progress: bool,
) -> HeadSums | NetworkSums:
    if layers is None:
        return HeadSums(model, head, curvature, progress)
    if head is not None:
        raise ValueError(
            f"`fit` takes `head` or `layers`, not both; got {head!r} and {layers!r}. `layers={head!r}` alone covers "
            "that layer."
        )
    return NetworkSums(model, layers, curvature, progress)


def _choose(
    posterior: Posterior,
    prior_precision: float | None,
    log_likelihood: float | None,
    network: HeadNetwork | LinearisedNetwork,
    val_loader: Iterable[Any] | None,
    bridge: Bridge,
    temperatures: tuple[float, ...],
    progress: bool,
) -> prior.PriorChoice:
    if len(temperatures) > 1 and (val_loader is None or prior_precision is not None):
        raise ValueError(
            "`fit(temperature=True)` chooses prior precision and temperature together on validation data: give a "
            "`val_loader`, and no `prior_precision`."
        )
    if prior_precision is not None:
        return prior.given(prior_precision)
    if val_loader is not None:
        features, labels = cached_features(network, val_loader, progress=progress)
        return prior.by_validation(posterior, bridge, features, labels, temperatures=temperatures)
    if log_likelihood is None:
        raise ValueError(
            "`fit` needs a way to choose the prior precision: labels in the training loader (then by evidence), a "
            "`val_loader` with labels, or `prior_precision=` itself. The loader yielded inputs alone, or earlier sums "
            "came without their likelihood."
        )
    return prior.by_evidence(posterior, log_likelihood)
