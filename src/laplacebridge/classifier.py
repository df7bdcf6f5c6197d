"""The classifier: a trained network that answers with distributions over class
probabilities.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge._checks import require_positive_number
from laplacebridge._from_features import (
    Step,
    fits_at_once,
    gaussians_over_logits,
    in_blocks,
    mean_probabilities,
    passed_on,
    predicted,
    prediction_tensors,
    require_finite_rows,
)
from laplacebridge.bridges import (
    Bridge,
    race_bridge,
    require_bridge,
)
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace import prior
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.batch import Batch, batch_of_inputs
from laplacebridge.laplace.batch_checks import explain_failure
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.layers.network import Linearisation
from laplacebridge.laplace.network import Network
from laplacebridge.laplace.posterior import AS_FITTED, Posterior
from laplacebridge.laplace.sums import readable_size
from laplacebridge.laplace.unusual import UnusualScore
from laplacebridge.prediction import Prediction
from laplacebridge.selective import Decisions, SelectiveRule
from laplacebridge.selective.policy import Policy, names_of
from laplacebridge.sets import CalibratedSets
from laplacebridge.unusual import Unusual

if TYPE_CHECKING:
    import laplacebridge.report


class Classifier(nn.Module):
    """A trained network that says how sure it is: features → posterior over logits →
    bridge → prediction.

    Args:
        network: The network, split at its head; or linear in the weights of several
            layers.
        posterior: Gaussian over the weights of the head, or of these layers.
        bridge: From Gaussians over logits to Dirichlets.
        labels: What the labels of the fit said, for the evidence and the training
            accuracy; None if there were none.
        prior_choice: How the prior precision was chosen.
        unusual: The score of unusual inputs; None if the fit did not sum features.
        policy: What is done with predictions; see `with_rule`.

    Example:
        >>> from laplacebridge import fit
        >>> classifier = fit(nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False)
        >>> classifier(torch.eye(4)).mean.shape
        torch.Size([4, 3])
        >>> surer = classifier.with_prior(100.0)
        >>> bool(
        ...     (
        ...         surer.logits(torch.eye(4)).variance < classifier.logits(torch.eye(4)).variance
        ...     ).all()
        ... )
        True
    """

    def __init__(
        self,
        network: Network,
        posterior: Posterior,
        *,
        bridge: Bridge = race_bridge,
        labels: LabelStatistics | None = None,
        prior_choice: prior.PriorChoice | None = None,
        unusual: UnusualScore | None = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__()
        require_bridge("Classifier", bridge)
        self.network = network
        self.posterior = posterior
        self.bridge = bridge
        self.labels = labels
        self.prior_choice = prior_choice or prior.given(float(posterior.prior_precision))
        self.unusual = unusual
        self.policy = policy
        self._compiled: dict[Step, Step] = {}

    def forward(self, *inputs: Any, **keywords: Any) -> Prediction:  # noqa: ANN401
        """A prediction for every row of the inputs; tokens and pixels are rows too, and
        tokens of texts have means of shape (B, T, K). A batch as a loader yields it,
        such as a mapping, is taken as it is; its labels are not used.
        """
        batch = self._batch(inputs, keywords)
        passed = passed_on(self.network, batch)
        at_once = fits_at_once(self.posterior, passed[0])
        if not self._compiled and at_once and not self.network.runs_backward:
            prediction = predicted(self.posterior, self.bridge, self.unusual, self._fading, *passed)
        else:
            answers = self._in_blocks(prediction_tensors, passed, batch)
            log_concentration, variance, *scores = answers
            prediction = Prediction(Dirichlet(log_concentration), variance)
            if self.unusual is not None and scores:
                unusual = Unusual(scores[0], self.unusual.reference)
                prediction = replace(prediction, unusual=unusual)
        shape = self._row_shape(batch, prediction.log_odds_variance)
        return prediction if shape is None else replace(prediction, row_shape=shape)

    def _row_shape(self, batch: Batch, rows: Tensor) -> tuple[int, int] | None:
        """How rows are laid out; a compiled program, for any number of them, gives
        rows.
        """
        return None if torch.compiler.is_compiling() else self.network.row_shape(batch, len(rows))

    def probabilities(self, *inputs: Any, **keywords: Any) -> Float[Tensor, "*B K"]:  # noqa: ANN401
        """Mean class probabilities alone: those of the predictions, without the cost of
        their precision.
        """
        batch = self._batch(inputs, keywords)
        rows = self._in_blocks(mean_probabilities, passed_on(self.network, batch), batch)[0]
        shape = self._row_shape(batch, rows)
        return rows if shape is None else rows.view(*shape, -1)

    def predict_features(self, features: Any, logits: Tensor | None = None) -> Prediction:  # noqa: ANN401
        """Predictions from what `features` gives, without running the network again.

        Args:
            features: One row for every prediction.
            logits: Those that the network gave for them, shape (B, K), where it rounds
                more than its head would, as networks in 8 bits do; by default those of
                the head.
        """
        features = tensors_for(self.network.model, features)
        self.posterior.require_features(features)
        require_finite_rows(features=features)
        return self._predicted(features) if logits is None else self._predicted(features, logits)

    def logits(self, *inputs: Any, **keywords: Any) -> LogitGaussian:  # noqa: ANN401
        """The Gaussian over logits that predictions are as wide as; with held-out
        labels their mean is its own.

        See `laplace.posterior.Widening`.
        """
        return self.gaussians(*passed_on(self.network, self._batch(inputs, keywords)))[0]

    def gaussians(self, *passed: Any) -> tuple[LogitGaussian, LogitGaussian | None]:  # noqa: ANN401
        """The Gaussian over logits that predictions are as wide as, and the one whose
        mean probabilities they have if that is another.

        Args:
            passed: What `features` gives.
        """
        self.posterior.require_features(passed[0])
        return gaussians_over_logits(self.posterior, self._fading, *passed)

    @property
    def _fading(self) -> UnusualScore | None:
        """What predictions fade by far from held-out data: nothing, unless these chose
        the width.
        """
        return self.unusual if self.prior_choice.width is not None else None

    def features(self, *inputs: Any, **keywords: Any) -> Float[Tensor, "B D"] | Linearisation:  # noqa: ANN401
        """What the posterior takes: the input of the head; or, for several layers, the
        network linearised there.
        """
        batch = self._batch(inputs, keywords)
        return self.network(*batch.arguments, **batch.keywords)

    def compile(self, **options: Any) -> None:  # noqa: ANN401
        """Compiles what comes after the network, from features to predictions, with
        `torch.compile`.

        It pays where examples come one at a time: there the many small steps of a
        bridge cost more than their arithmetic. Needs a C++ compiler. The first call
        takes long, with `race_bridge` very long, and so does the first call with
        another number of examples; later ones are fast. `docs/benchmarks.md` has the
        figures. `probabilities` is compiled apart, when first called. Answers agree to
        rounding. The network itself is not compiled; it can be, before the fit.
        `with_prior` and `with_bridge` give classifiers that are not compiled, and a
        saved one is not either.

        Args:
            options: For `torch.compile`, such as ``dynamic=True``.

        Raises:
            InputError: If the posterior covers more than the head: its predictions run
                the network backward.
        """
        if self.network.runs_backward:
            raise InputError(
                "`compile` needs a posterior of the head alone; this one covers"
                f" {self.network.described()}, and runs the network backward for each prediction."
                " Fit without `layers` to compile."
            )
        with torch.no_grad():  # what is computed once, for all predictions, should be there before
            self.bridge(
                self.posterior(
                    torch.zeros(1, self.network.num_features, device=self.network.device)
                )
            )
        self._compiled = {
            step: torch.compile(step, **options)
            for step in (prediction_tensors, mean_probabilities)
        }

    def _batch(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Batch:
        """What the classifier was called with, arrays as tensors."""
        if len(inputs) == 1 and isinstance(inputs[0], Tensor) and not keywords:
            return Batch(inputs, keywords, None)
        return tensors_for(self.network.model, batch_of_inputs(inputs, keywords))

    def with_prior(self, prior_precision: float) -> "Classifier":
        """The same fit under another prior precision, with predictions as they follow
        from it.
        """
        require_positive_number("with_prior", "prior_precision", prior_precision)
        return self._replaced(
            posterior=self.posterior.with_prior(prior_precision).widened(AS_FITTED),
            prior_choice=prior.given(prior_precision),
        )

    def with_bridge(self, bridge: Bridge) -> "Classifier":
        """The same fit with another bridge."""
        return self._replaced(bridge=bridge)

    def with_rule(
        self,
        rule: SelectiveRule | None = None,
        *,
        sets: CalibratedSets | None = None,
        max_set_size: int | None = None,
        unusual_above: float | None = None,
        class_names: Sequence[str] | None = None,
        preprocessing: str | None = None,
    ) -> "Classifier":
        """The same fit with what is done with its predictions, for `decide`, and for
        the files that `lb.save` and `lb.export` write.

        What is not given stays as it is.

        Args:
            rule: Which predictions are answered, from `lb.selective.calibrate`.
            sets: Sets of classes, from `lb.sets.calibrate`.
            max_set_size: The largest set worth naming where there is no answer.
            unusual_above: Defer inputs that are more unusual than this share of
                held-out data, such as 0.99; give the same inputs to the calibration of
                the rule.
            class_names: A name for each class.
            preprocessing: How inputs are made, for whoever uses the file.

        Example:
            >>> from laplacebridge import fit, scores, selective
            >>> classifier = fit(
            ...     nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False
            ... )
            >>> usual = classifier(torch.randn(99, 4))
            >>> rule = selective.calibrate(scores.msp, usual, answer_share=0.9)
            >>> [
            ...     decision.action in {"answer", "defer"}
            ...     for decision in classifier.with_rule(rule).decide(torch.eye(4))
            ... ]
            [True, True, True, True]
        """
        policy = (self.policy or Policy()).updated(
            rule=rule,
            sets=sets,
            max_set_size=max_set_size,
            unusual_above=unusual_above,
            class_names=names_of(class_names),
            preprocessing=preprocessing,
        )
        policy.require_classes(self.num_classes)
        return self._replaced(policy=policy)

    def decide(self, *inputs: Any, **keywords: Any) -> Decisions:  # noqa: ANN401
        """Answers, names a set of classes, or defers, for every row of the inputs.

        Raises:
            InputError: If there is no rule; see `with_rule`.
        """
        return (self.policy or Policy())(self(*inputs, **keywords))

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, if they were given."""
        return None if self.policy is None else self.policy.class_names

    def report(
        self,
        loader: Iterable[Any],
        path: str | Path | None = None,
        **choices: Any,  # noqa: ANN401
    ) -> "laplacebridge.report.Evaluation | laplacebridge.report.LabelEvaluation":
        """Judges this classifier on labelled data, and writes one page about it.

        Args:
            loader: Labelled examples that nothing was fitted or chosen on.
            path: Where to write the page, which replaces a file that is there; by
                default it is not written.
            choices: As `report.evaluate` takes them: ``ood=``, ``validation=``,
                ``risk=``, ``class_names=``, ``title=`` and others.
        """
        from laplacebridge.report import evaluate  # only here: a prediction needs none of it

        evaluation = evaluate(self, loader, **choices)
        if path is not None:
            evaluation.save(path)
        return evaluation

    def evidence(self) -> float:
        """Laplace's approximation of the log marginal likelihood of the training
        labels.

        Raises:
            InputError: If the fit saw no labels.
        """
        if self.log_likelihood is None:
            raise InputError(
                "The evidence needs labels, but the loader of the fit yielded inputs alone."
            )
        return self.posterior.log_evidence(self.log_likelihood)

    @property
    def log_likelihood(self) -> float | None:
        """Of the training labels, by the network; None if the fit did not see all of
        them.
        """
        return None if self.labels is None else self.labels.log_likelihood

    @property
    def num_classes(self) -> int:
        """K."""
        return self.posterior.num_classes

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "_compiled": {}}  # code of this process

    def __repr__(self) -> str:
        held = sum(buffer.nbytes for buffer in self.posterior.buffers())
        bridge = getattr(self.bridge, "__name__", repr(self.bridge))
        temperature = float(self.posterior.temperature)
        return (
            f"Classifier({type(self.network.model).__name__} with {self.network.described()}, K ="
            f" {self.num_classes}, {type(self.posterior).__name__}, prior precision"
            f" {float(self.posterior.prior_precision):.3g} ({self.prior_choice.method}),"
            f" {f'temperature {temperature:.3g}, ' if temperature != 1 else ''}{bridge},"
            f" {readable_size(held)})"
        )

    def _predicted(self, *passed: Any) -> Prediction:  # noqa: ANN401
        return predicted(self.posterior, self.bridge, self.unusual, self._fading, *passed)

    def _in_blocks(self, step: Step, passed: tuple[Any, ...], batch: Batch) -> tuple[Tensor, ...]:
        step = self._compiled.get(step, step)
        parts = (self.posterior, self.bridge, self.unusual, self._fading)
        if not self.network.runs_backward:
            return in_blocks(step, *parts, *passed)
        with explain_failure(self.network.model, batch, "these inputs,"):  # it runs only here
            answers = in_blocks(step, *parts, *passed)
        require_finite_rows(predictions=answers[0])
        return answers

    def _replaced(self, **changes: Any) -> "Classifier":  # noqa: ANN401
        names = ("bridge", "labels", "prior_choice", "unusual", "policy")
        kept = {name: getattr(self, name) for name in names}
        posterior = changes.pop("posterior", self.posterior)
        return type(self)(self.network, posterior, **{**kept, **changes})
