"""A classifier of this library behind an address: what it answers, and by which rule it
decides.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laplacebridge._checks import is_half
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.logit_normal import LogitNormal
from laplacebridge.multi_label.classifier import MultiLabelClassifier
from laplacebridge.prediction import Prediction
from laplacebridge.selective import Action, Decisions, SelectiveRule
from laplacebridge.serve.answers import ACTIONS, LEVEL, TOP, answer_specs, padded
from laplacebridge.serve.network import ServedNetwork
from laplacebridge.serve.tensors import TensorSpec, texts
from laplacebridge.sets import CalibratedSets, overlap_sets


@dataclass(frozen=True)
class Policy:
    """When an example is answered, gets a set of classes, or is deferred.

    With a calibrated rule its promise holds. Without one an example is answered where
    its overlap set has one class alone, which promises nothing.

    Attributes:
        rule: What `lb.selective.calibrate` gave, with a score of predictions.
        sets: Calibrated sets; by default sets of classes whose marginals overlap.
        threshold: How much they must overlap, as in `overlap_sets`.
        max_set_size: The largest set worth naming where there is no answer; below 2 for
            no sets.
        unusual: Defer inputs that are more unusual than this share of held-out data;
            None not to. Without held-out data nothing is unusual.

    Example:
        >>> from laplacebridge import Diagonal, LogitGaussian, predict
        >>> gaussian = LogitGaussian(
        ...     torch.tensor([[9.0, 0.0, 0.0]]), Diagonal(torch.full((1, 3), 0.1))
        ... )
        >>> Policy().decide(predict(gaussian)).to_lists()
        [Decision(action='answer', classes=[0], reason='')]
    """

    rule: SelectiveRule | None = None
    sets: CalibratedSets | None = None
    threshold: float = 0.05
    max_set_size: int = 2
    unusual: float | None = 0.99

    @classmethod
    def of(cls, classifier: Classifier, **chosen: Any) -> "Policy":  # noqa: ANN401
        """What a classifier carries (`Classifier.with_rule`), with what is chosen here
        in its place.

        Args:
            classifier: The classifier.
            chosen: By the names of the attributes; None leaves what it carries.

        Example:
            >>> from torch import nn
            >>> from laplacebridge import fit
            >>> classifier = fit(
            ...     nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False
            ... )
            >>> Policy.of(classifier.with_rule(unusual_above=0.9), threshold=0.1).unusual
            0.9
        """
        own = classifier.policy
        carried = (
            {}
            if own is None
            else {
                "rule": own.rule,
                "sets": own.sets,
                "max_set_size": own.max_set_size,
                "unusual": own.unusual_above,
            }
        )
        given = {**carried, **{name: value for name, value in chosen.items() if value is not None}}
        return cls(**{name: value for name, value in given.items() if value is not None})

    def decide(self, prediction: Prediction) -> Decisions:
        """The decision for every example, with its set.

        Args:
            prediction: What the classifier answered.
        """
        unusual = self._unusual(prediction)
        sets = (
            overlap_sets(prediction, self.threshold) if self.sets is None else self.sets(prediction)
        )
        largest = min(self.max_set_size, prediction.num_classes - 1)
        if self.rule is not None:
            named = {"sets": sets, "max_set_size": largest} if largest > 1 else {}
            made = self.rule(prediction, unusual=unusual, **named)  # type: ignore[arg-type]
            return Decisions(made.action, made.answer, sets, made.unusual, made.ambiguous)
        alone = sets.size == 1
        action = torch.where(alone, Action.ANSWER, Action.DEFER)
        action = torch.where((sets.size > 1) & (sets.size <= largest), Action.SET, action)
        if unusual is not None:
            action = torch.where(unusual, Action.DEFER, action)
        return Decisions(action, prediction.label, sets, unusual, ~alone)

    def _unusual(self, prediction: Prediction) -> Tensor | None:
        if self.unusual is None or not _has_quantiles(prediction):
            return None
        return prediction.ood_quantile > self.unusual


class ServedClassifier(ServedNetwork):
    """A classifier with the outputs that its users ask for.

    Args:
        classifier: The classifier, of one class out of several.
        inputs: What its network takes; several are given to it by name. By default, for
            a head alone, its features.
        class_names: Names of its classes, if not those that it carries.
        policy: How it decides; by default as what it carries says.
        level: Of the intervals.

    Raises:
        InputError: If it is not said what the network takes, or the network cannot run
            it.

    Example:
        >>> from torch import nn
        >>> from laplacebridge import fit
        >>> served = ServedClassifier(
        ...     fit(nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False)
        ... )
        >>> answers = served.answer({"features": np.eye(4, dtype=np.float32)}, frozenset({"label"}))
        >>> answers["interval"].shape
        (4, 2)
    """

    def __init__(
        self,
        classifier: Classifier,
        inputs: Sequence[TensorSpec] | None = None,
        *,
        class_names: Sequence[str] = (),
        policy: Policy | None = None,
        level: float = LEVEL,
    ) -> None:
        if isinstance(classifier, MultiLabelClassifier):
            raise InputError(
                "`ServedClassifier` answers with one class of several; this classifier is of"
                " several labels at once. Use `ServedLabels`."
            )
        self.policy = policy or Policy.of(classifier)
        super().__init__(classifier, inputs, class_names=class_names, level=level)

    def _specs(self, names: Collection[str]) -> tuple[TensorSpec, ...]:
        return answer_specs(names, self.classifier.num_classes, self.level)

    def _rows(self, made: Prediction) -> Prediction:
        prediction = made.as_rows().to("cpu")
        return prediction.to(torch.float32) if is_half(prediction.dtype) else prediction

    def _answers(self, prediction: Prediction, wanted: frozenset[str]) -> dict[str, np.ndarray]:
        decisions = self.policy.decide(prediction)
        label, mean, sets = prediction.label, prediction.mean, decisions.sets
        assert sets is not None  # noqa: S101  (a policy always makes them)
        lower, upper = _interval_of(prediction, label, self.level)
        answers: dict[str, Tensor | np.ndarray] = {
            "label": label,
            "probability": mean.gather(-1, label.unsqueeze(-1)).squeeze(-1).float(),
            "interval": torch.stack([lower, upper], -1).float(),
            "set": padded(sets.size.numpy(), sets.classes.numpy()),
            "decision": ACTIONS[decisions.action.numpy()],
            "reason": texts(decisions.reasons()),
        }
        if prediction.unusual is not None:
            answers["ood_score"] = prediction.ood_score.float()
            if _has_quantiles(prediction):
                answers["ood_quantile"] = prediction.ood_quantile.float()
        if self.class_names:
            answers["label_name"] = texts([self.class_names[index] for index in label.tolist()])
        answers |= self._on_request(prediction, mean, wanted)
        return {
            name: value.numpy() if isinstance(value, Tensor) else value
            for name, value in answers.items()
        }

    def _on_request(
        self, prediction: Prediction, mean: Tensor, wanted: frozenset[str]
    ) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if "probabilities" in wanted:
            found["probabilities"] = mean.float()
        if wanted & {"lower", "upper"}:
            lower, upper = prediction.interval(self.level)
            found |= {"lower": lower.float(), "upper": upper.float()}
        if wanted & {"top_labels", "top_probabilities"}:
            top = mean.topk(min(TOP, prediction.num_classes))
            found |= {"top_labels": top.indices, "top_probabilities": top.values.float()}
        for name in wanted & {"total", "aleatoric", "epistemic"}:
            found[name] = getattr(prediction, name).float()
        return found


def _has_quantiles(prediction: Prediction) -> bool:
    return prediction.unusual is not None and len(prediction.unusual.reference) > 0


def _interval_of(prediction: Prediction, label: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The interval for the probability of the predicted class alone."""
    mean = prediction.mean
    index = label.unsqueeze(-1)
    rest = mean.scatter(-1, index, 0.0).sum(-1, keepdim=True)
    marginal = LogitNormal.with_mean(
        mean.gather(-1, index), rest, prediction.log_odds_variance.gather(-1, index)
    )
    lower, upper = marginal.interval(level)
    return lower.squeeze(-1), upper.squeeze(-1)
