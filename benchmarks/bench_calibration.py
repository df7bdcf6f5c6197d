"""Real networks: are probabilities right, and do the surest answers hold?

For each network of `detection_tasks.py`, all from the same features: NLL with its
paired difference from temperature scaling, adaptive calibration error, the risk when
the least sure are left out, how well mutual information tells unlike inputs, and for
CIFAR-10 the likelihood of what some fifty people said about each image (CIFAR-10H), of
whose votes none was seen. Test images are neither those of the fit nor those that chose
temperature and width.

    python benchmarks/bench_calibration.py [--quick]
"""

import math
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from detection_tasks import TASKS, Task, made, order_of
from timing import Row, digits, run, target
from torch import Tensor
from torch.nn.functional import softmax
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge.laplace import prior

FEATURES = Path(tempfile.gettempdir()) / "laplacebridge-detection"
QUICK = ("cancer, 200, seed 0", "wine, 60, seed 0")
SEVERITY = "5"
# The test images of CIFAR-10 that are judged, after those that choose.
TEST_IMAGES = (2000, 3000)
FEW_LABELS = 400
OURS, SCALING = "held-out labels (default)", "temperature scaling"
Answer = lb.Prediction | Tensor
Predict = Callable[[Tensor], Answer]


def methods(task: Task) -> dict[str, Predict]:
    """What is compared, each from features to predictions."""
    head, train, held_out = task.head, [task.train], [task.held_out]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about few labels, and overfitted networks
        ours = lb.fit(head, train, val_loader=held_out, head="", progress=False)
        evidence = lb.fit(head, train, head="", progress=False)
        choice = prior.by_validation(evidence.posterior, lb.race_bridge, *task.held_out)
    temperature = task.temperature
    return {
        "MAP": lambda features: softmax(head(features), -1),
        SCALING: lambda features: softmax(head(features) / temperature, -1),
        "evidence": evidence,
        "validation NLL": evidence.with_prior(choice.prior_precision),
        OURS: ours,
    }


def rows_of(name: str, task: Task, votes: Tensor | None) -> list[Row]:
    """One row for each method."""
    features, labels = task.test
    found: list[Row] = []
    compared = methods(task)
    reference = _surprise(compared[SCALING](features), labels)
    for method, predict in compared.items():
        answer = predict(features)
        surprise = _surprise(answer, labels)
        above = surprise - reference
        row: Row = {
            "network": name,
            "method": method,
            "held-out labels": len(task.held_out[1]),
            "NLL": digits(float(surprise.mean()), 4),
            "NLL above TS, %": digits(100 * float(above.mean() / reference.mean()), 3),
            "±, %": digits(100 * float(above.std() / reference.mean()) / math.sqrt(len(above)), 2),
            "adaptive ECE": digits(lb.metrics.adaptive_ece(answer, labels), 3),
            "AURC": digits(
                lb.metrics.aurc(1 - _mean(answer).amax(-1), lb.metrics.correct(answer, labels)), 3
            ),
            "accuracy": digits(lb.metrics.accuracy(answer, labels), 4),
        }
        if shifted := task.shifted[SEVERITY]:
            surprises = [_surprise(predict(inputs), own).mean() for inputs, own in shifted]
            row["NLL, severity 5"] = digits(float(statistics.fmean(map(float, surprises))), 4)
        if isinstance(answer, lb.Prediction):
            for kind, sets in (("near", task.near), ("far", task.far)):
                unlike = [predict(inputs).epistemic for inputs in sets.values()]  # type: ignore[union-attr]
                aurocs = [lb.metrics.auroc(answer.epistemic, scores) for scores in unlike]
                row[f"MI, {kind}"] = digits(sum(aurocs) / len(aurocs), 3)
        if votes is not None:
            row["nats per vote"] = digits(_vote_surprise(answer, votes), 4)
        found.append(row)
    return found


def cifar_10_votes(start: int, number: int) -> Tensor:
    """Votes on the test images in the order of the tasks."""
    folder = Path(os.environ["LAPLACEBRIDGE_DATA"])
    file = np.load(folder / "cifar-10h" / "cifar10h-in-shared-order.npz")
    return torch.as_tensor(file["counts"].astype(np.int64))[
        order_of(10_000)[start : start + number]
    ]


def _mean(answer: Answer) -> Tensor:
    return answer.mean if isinstance(answer, lb.Prediction) else answer


def _surprise(answer: Answer, labels: Tensor) -> Tensor:
    right = _mean(answer).double().gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return -right.clamp_min(torch.finfo(torch.float64).tiny).log()


def _vote_surprise(answer: Answer, votes: Tensor) -> float:
    """Of probabilities alone, votes are independent."""
    if isinstance(answer, lb.Prediction):
        return lb.metrics.dirichlet_multinomial_nll(answer, votes)
    log = answer.double().clamp_min(torch.finfo(torch.float64).tiny).log()
    return float(-(votes * log).sum() / votes.sum())


def measured(quick: bool) -> dict[str, object]:
    """Every network, or two small ones."""
    rows: list[Row] = []
    for name in tqdm(QUICK if quick else tuple(TASKS), desc="networks"):
        task = made(name, FEATURES)
        people = "CIFAR-10" in name and "CIFAR-100" not in name
        rows += rows_of(name, task, cifar_10_votes(*TEST_IMAGES) if people else None)
    return {"rows": rows, "targets": targets(rows)}


def targets(rows: list[Row]) -> list[Row]:
    """What was wanted beside what was found, for the default."""
    ours = [row for row in rows if row["method"] == OURS]
    found: list[Row] = []
    for row in ours:
        # with few held-out labels both may be off by chance
        allowed = 1 + (row["±, %"] if row["held-out labels"] <= FEW_LABELS else 0)
        found.append(
            target(f"NLL above TS in %, {row['network']}", row["NLL above TS, %"], most=allowed)
        )
        if "nats per vote" in row:
            most = 0.275 if "ResNet-20" in row["network"] else 0.26
            found.append(
                target(f"nats per vote, {row['network']}", row["nats per vote"], most=most)
            )
    better = sum(row["NLL above TS, %"] < -2 * row["±, %"] for row in ours)
    found.append(target("networks with a clearly smaller NLL than TS", better, least=2))
    return found


if __name__ == "__main__":
    run(__doc__ or "", __file__, measured)
