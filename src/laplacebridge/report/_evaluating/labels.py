"""A report on several labels at once: each judged by itself, and unusual inputs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from laplacebridge import metrics
from laplacebridge._provenance import versions
from laplacebridge.errors import InputError
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.metrics import Interval
from laplacebridge.multi_label import MultiLabelClassifier, MultiLabelPrediction, calibrate
from laplacebridge.multi_label.fitting import multi_hot_labels
from laplacebridge.report._evaluating.probabilities import class_names_of
from laplacebridge.report._findings import identity as identified
from laplacebridge.report._findings.halves import Halves, share
from laplacebridge.report._findings.intervals import check_intervals
from laplacebridge.report.label_evaluation import LabelEvaluation, LabelRow


def evaluate_labels(
    classifier: MultiLabelClassifier,
    test: Iterable[Any],
    *,
    ood: Mapping[str, Iterable[Any]],
    coverage: float | None,
    alarm_rate: float,
    class_names: Sequence[str] | np.ndarray | None,
    title: str,
    card: Mapping[str, str] | None,
    identity: Mapping[str, str] | None,
    seed: int,
    progress: bool,
) -> LabelEvaluation:
    """Judges each of several labels by itself.

    Args:
        classifier: Of several labels at once.
        test: A loader of labelled examples that nothing was fitted or chosen on.
        ood: Loaders of inputs unlike the training data, by name.
        coverage: How often the answers that remain for a label are to hold the truth;
            by default 0.9, or 0.95 or 0.99 where single answers are right more often.
        alarm_rate: The share of ordinary inputs that may be taken for unusual.
        class_names: A name for each label.
        title: Report title.
        card: What the owner states.
        identity: What else identifies data and model.
        seed: Of the halves.
        progress: Show progress bars.

    Raises:
        InputError: If labels are missing, or a name comes twice.
    """
    names = class_names_of(class_names, classifier.num_classes)
    if len(set(names)) < len(names):
        raise InputError(
            "`evaluate(class_names)` of several labels at once needs a name of its own for each;"
            f" got {', '.join(map(str, names))}."
        )
    prediction, labels = _run(classifier, test, "testing" if progress else "", needs_labels=True)
    assert labels is not None  # noqa: S101  (they were needed)
    halves = Halves.of(len(labels), seed)
    right = prediction.applies == labels.bool()
    asked = halves.coverage_for(float(right.double().mean())) if coverage is None else coverage
    held, is_open = _sets(prediction, labels, halves, asked)
    known = prediction.knows_unusual[1]
    noticed = {}
    for kind, loader in ood.items() if known else ():
        unlike, _ = _run(classifier, loader, kind if progress else "", needs_labels=False)
        noticed[kind] = _above(unlike, alarm_rate)
    return LabelEvaluation(
        title=title,
        rows=tuple(
            _row(name, prediction, labels, place, held, is_open) for place, name in enumerate(names)
        ),
        all_right=_share(right.all(-1)),
        asked=asked,
        false_alarms=_above(prediction, alarm_rate) if known else None,
        noticed=noticed,
        alarm=1 - alarm_rate,
        prediction=prediction,
        labels=labels,
        card=dict(card or {}),
        identity={
            "date": identified.today(),
            **(identity or {}),
            "classifier": repr(classifier),
            "prior and width": classifier.prior_choice.method,
            "test examples": str(len(labels)),
            "seed": str(seed),
            **versions(),
        },
    )


def _run(
    classifier: MultiLabelClassifier, loader: Iterable[Any], bar: str, *, needs_labels: bool
) -> tuple[MultiLabelPrediction, Tensor | None]:
    """Predictions for all examples that have labels, or for all.

    Raises:
        InputError: If there are none.
    """
    features, labels = [], []
    batches = tensors_for(classifier.network.model, loader)
    with torch.no_grad():
        for index, batch in enumerate(tqdm(batches, desc=bar, unit="batch", disable=not bar)):
            parts = unpack_batch(batch)
            rows: Any = classifier.features(*parts.arguments, **parts.keywords)
            if needs_labels:
                if parts.labels is None:
                    raise InputError(
                        f"A report needs labels; batch {index} (counted from 0) has inputs alone."
                    )
                given = multi_hot_labels(parts.labels, len(rows), classifier.num_classes, index)
                known = given[:, 0] >= 0  # a row of −100 has none
                rows = rows[known.to(rows.device)]
                labels.append((given[known] > 0.5).long().cpu())
            features.append(rows)
        if not features or not any(map(len, features)):
            raise InputError("A report needs at least two examples; the loader gave none.")
        prediction = classifier.predict_features(torch.cat(features)).to("cpu")
    return prediction, torch.cat(labels) if needs_labels else None


def _sets(
    prediction: MultiLabelPrediction, labels: Tensor, halves: Halves, coverage: float
) -> tuple[Tensor, Tensor]:
    """Whether what remains holds the truth, and is open: each half by the other."""
    held, is_open = torch.zeros_like(labels, dtype=torch.bool), torch.zeros_like(labels).bool()
    for chosen_by, decided in halves.crossed():
        sets = calibrate(prediction[chosen_by], labels[chosen_by], coverage=coverage)
        applies, remain = sets(prediction[decided])
        is_open[decided] = remain
        held[decided] = remain | (applies == labels[decided].bool())
    return held, is_open


def _row(
    name: str,
    prediction: MultiLabelPrediction,
    labels: Int[Tensor, "N K"],
    place: int,
    held: Tensor,
    is_open: Tensor,
) -> LabelRow:
    own, truth = prediction.label(place), labels[:, place]
    chance: Float[Tensor, " N"] = prediction.mean[:, place].double()
    checked = check_intervals(own, truth, None)
    both = bool(truth.any()) and not bool(truth.all())
    return LabelRow(
        name=name,
        applies=_share(truth.bool()),
        accuracy=_share(own.label == truth),
        nll=float(metrics.nll(own, truth)),
        brier=float(metrics.brier(own, truth)),
        ece=float(metrics.ece(own, truth)),
        auroc=float(metrics.auroc(chance[truth == 0], chance[truth == 1])) if both else None,
        agreeing=checked.num_agreeing,
        groups=len(checked.bins),
        coverage=_share(held[:, place]),
        open=_share(is_open[:, place]),
    )


def _share(mask: Tensor) -> Interval:
    found = share(int(mask.sum()), len(mask))
    assert found is not None  # noqa: S101  (there are examples)
    return found


def _above(prediction: MultiLabelPrediction, alarm_rate: float) -> Interval:
    return _share(prediction.ood_quantile > 1 - alarm_rate)
