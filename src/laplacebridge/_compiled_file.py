"""A classifier compiled into one file, ``model.pt2``, that torch runs without this
library.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from laplacebridge._files import atomic_write
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError, LaplaceBridgeError
from laplacebridge.laplace.batch import Batch
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.multi_label import MultiLabelClassifier, MultiLabelPrediction
from laplacebridge.prediction import Prediction
from laplacebridge.selective import Action
from laplacebridge.selective.policy import Policy
from laplacebridge.sets import RAPS, CalibratedSets, LeastAmbiguous, Mass, TopK

_COMPILERS = ("c++", "g++", "clang++", "cl")
# of a `Prediction`, or of a `MultiLabelPrediction` as far as it has them
_PARTS: dict[str, Callable[[Any], Tensor]] = {
    "probabilities": lambda prediction: prediction.mean,
    "applies": lambda prediction: prediction.applies,
    "label": lambda prediction: prediction.label,
    "total": lambda prediction: prediction.total,
    "epistemic": lambda prediction: prediction.epistemic,
    "aleatoric": lambda prediction: prediction.aleatoric,
    "ood_score": lambda prediction: prediction.ood_score,
    "ood_quantile": lambda prediction: prediction.ood_quantile,
    "log_concentration": lambda prediction: prediction.dirichlet.log_concentration,
    "log_odds_variance": lambda prediction: prediction.log_odds_variance,
}


def write_compiled(
    classifier: Classifier,
    path: Path,
    example: tuple[Tensor, ...],
    *,
    keywords: tuple[str, ...],
    outputs: Sequence[str],
    policy: Policy,
    level: float,
    metadata: Mapping[str, str],
) -> list[str]:
    """Compiles a classifier with AOTInductor, for any number of examples.

    Args:
        classifier: A classifier with a posterior of its head alone.
        path: Where to write.
        example: Inputs, at least two examples.
        keywords: Names under which the network takes them, if it takes them by name.
        outputs: Names of answers.
        policy: For ``set`` and ``decision``.
        level: Of the intervals.
        metadata: What the file says about itself.

    Returns:
        Names of what the file answers.

    Raises:
        LaplaceBridgeError: If there is no C++ compiler.
    """
    if not any(map(shutil.which, _COMPILERS)):
        raise LaplaceBridgeError(
            "A .pt2 file is compiled, which needs a C++ compiler; none of"
            f" {', '.join(_COMPILERS)} was found. Install one (`apt-get install g++`), or write"
            " model.onnx, which needs none."
        )
    from torch._inductor import aoti_compile_and_package

    answering = _Answering(classifier, keywords, tuple(outputs), policy, level)
    answering.training = False  # of this wrapper alone: `run` sees to the network's own
    batch = torch.export.Dim("batch")
    with torch.no_grad():
        names = list(answering(*example))  # what cannot be answered is refused before the work
        program = torch.export.export(
            answering, example, dynamic_shapes=(tuple({0: batch} for _ in example),)
        )
        with atomic_write(path) as temporary:
            # its name has to end in .pt2
            packaged = temporary.with_suffix(".pt2")
            aoti_compile_and_package(
                program,
                package_path=str(packaged),
                inductor_configs={"aot_inductor.metadata": dict(metadata)},
            )
            packaged.replace(temporary)
    return names


def batch_of(inputs: tuple[Tensor, ...], keywords: tuple[str, ...]) -> Batch:
    """Inputs as the network takes them.

    Args:
        inputs: The inputs.
        keywords: Their names, if it takes them by name.
    """
    return Batch((), dict(zip(keywords, inputs)), None) if keywords else Batch(inputs, {}, None)


class _Answering(nn.Module):
    """From inputs to answers by name, as a file gives them."""

    def __init__(
        self,
        classifier: Classifier,
        keywords: tuple[str, ...],
        outputs: tuple[str, ...],
        policy: Policy,
        level: float,
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self.keywords = keywords
        self.outputs = outputs
        self.policy = policy
        self.level = level

    def forward(self, *inputs: Tensor) -> dict[str, Tensor]:
        network = self.classifier.network
        assert isinstance(network, HeadNetwork)  # noqa: S101  (checked by the caller)
        passed = network.run(batch_of(inputs, self.keywords))
        features, logits = passed.features, passed.logits
        bad = ~(features.isfinite().all(-1) & logits.isfinite().all(-1))
        for part in inputs:
            if part.is_floating_point() and features.shape[0] == part.shape[0]:
                bad = bad | ~part.flatten(1).isfinite().all(-1)
        prediction: Any = self.classifier._predicted(features)
        if isinstance(self.classifier, MultiLabelClassifier):
            prediction = MultiLabelPrediction(prediction, self.classifier.num_classes)
        found = {"logits": logits}
        for name in self.outputs:
            for output, value in self._answers(name, prediction).items():
                found[f"lb_{output}"] = _marked(output, value, bad)
        return found

    def _answers(self, name: str, prediction: Any) -> dict[str, Tensor]:  # noqa: ANN401
        if name in _PARTS:
            return {name: _PARTS[name](prediction)}
        if name == "set":
            return {name: _members(self.policy.sets, prediction)}
        if name == "decision":
            return {name: _actions(self.policy, prediction)}
        lower, upper = prediction.interval(self.level)
        if name == "interval":
            return {"lower": lower, "upper": upper}
        label = prediction.label.unsqueeze(-1)
        ends = {"top_lower": lower, "top_upper": upper}
        return {end: value.gather(-1, label).squeeze(-1) for end, value in ends.items()}


def _marked(name: str, value: Tensor, bad: Tensor) -> Tensor:
    """NaN, *defer* and sets of all classes where inputs are not finite."""
    rows = bad if value.ndim == 1 else bad.unsqueeze(-1)
    if value.is_floating_point():
        return torch.where(rows, torch.nan, value)
    if name == "decision":
        return torch.where(rows, int(Action.DEFER), value)
    if name == "applies":
        return value & ~rows
    return value | rows if name == "set" else value


def _members(sets: CalibratedSets | None, prediction: Prediction) -> Tensor:
    """Which classes are in the set of each row.

    Raises:
        InputError: If there is no rule, or it cannot be written.
    """
    if sets is None:
        raise InputError(
            "`set` needs calibrated sets: `classifier.with_rule(sets=lb.sets.calibrate(...))`."
        )
    rule, mean = sets.rule, prediction.mean
    if isinstance(rule, LeastAmbiguous):
        members = mean >= sets.threshold
    elif isinstance(rule, (TopK, Mass)) or (isinstance(rule, RAPS) and rule.generator is None):
        ranked, order = mean.double().sort(dim=-1, descending=True, stable=True)
        places = torch.arange(mean.shape[-1], device=mean.device)
        before = ranked.cumsum(-1) - ranked
        if isinstance(rule, TopK):
            inside = (places < int(sets.threshold)).expand_as(order)
        elif isinstance(rule, Mass):
            inside = (before < sets.threshold) | (places == 0)
        else:
            penalties = rule.penalty * (places + 1 - rule.free_places).clamp_min(0)
            inside = before + ranked + penalties <= sets.threshold
        members = torch.zeros_like(inside).scatter(-1, order, inside)
    else:
        raise InputError(
            "A file can hold sets of LeastAmbiguous, Mass, TopK, and of APS and RAPS with"
            f" `generator=None`; got {type(rule).__name__}. Calibrate `LeastAmbiguous`."
        )
    if sets.never_empty:
        best = prediction.label.unsqueeze(-1)
        members = members.scatter(-1, best, True)
    return members


def _actions(policy: Policy, prediction: Prediction) -> Tensor:
    """The `Action` of each row.

    Raises:
        InputError: If there is no rule.
    """
    if policy.rule is None:
        raise InputError(
            "`decision` needs a rule: `classifier.with_rule(lb.selective.calibrate(...))`."
        )
    answered = policy.rule.score(prediction).double() <= policy.rule.threshold
    action = torch.where(answered, int(Action.ANSWER), int(Action.DEFER))
    if policy.sets is not None:
        size = _members(policy.sets, prediction).sum(-1)
        largest = policy.max_set_size or prediction.num_classes - 1
        named = (size > 1) & (size <= min(largest, prediction.num_classes)) & ~answered
        action = torch.where(named, int(Action.SET), action)
    if policy.unusual_above is not None:
        action = torch.where(
            prediction.ood_quantile > policy.unusual_above, int(Action.DEFER), action
        )
    return action
