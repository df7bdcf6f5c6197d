"""Human votes: a test of the distribution over probabilities itself, which no table of
the paper is.

About fifty people said what each test image of CIFAR-10 shows (CIFAR-10H). Votes on one
image have a share in common, so their joint probability under a Dirichlet judges its
width and not only its mean. No method saw votes; temperature and the width of our
default are chosen by the labels of other images.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from laplacebridge import Prediction, fit, metrics
from laplacebridge.bridges import Bridge, kl_bridge, one_vs_rest_bridge, race_bridge
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.laplace.head_search import find_head
from laplacebridge.temperature import temperature_scaling
from laplacebridge_reproduction import conventions, evaluate, votes_covered
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.data import DataMissingError, DataSet
from laplacebridge_reproduction.data.cifar_votes import find_votes
from laplacebridge_reproduction.experiments import CIFAR_TRAINING, STRUCTURES, generated
from laplacebridge_reproduction.last_layer import NOT_AVAILABLE, in_double
from laplacebridge_reproduction.models import pretrained
from laplacebridge_reproduction.table import Table

NETWORKS = {"ResNet-20": "cifar-10-resnet20", "ResNet-56": "cifar-10-resnet56"}
NUM_CHOOSING = 2000  # test images whose labels choose temperature and width
BRIDGES: dict[str, Bridge] = {
    "LB": conventions.lb,
    "LB-norm": conventions.lb_norm,
    "KL": kl_bridge,
    "one-vs-rest": one_vs_rest_bridge,
    "race": race_bridge,
}
MAP, SCALED, DEFAULT = "MAP", "temperature scaling", "our default, `fit(..., val_loader=...)`"
ONE_TOTAL = "temperature scaling, one total for all images by votes"
BLOCKS = 20  # of images, for standard errors
TOTALS = np.geomspace(0.1, 1000, 121)
ALIKE = 0.05  # rank correlations that differ by less
GENERATED_VOTES = 50

Answer = Tensor | Dirichlet | Prediction


def compute(run: Run) -> Result:
    """Every method on every network."""
    if run.profile == "smoke":
        return {"half-moons": _generated(run)}
    found: Result = {}
    for title, published in NETWORKS.items():
        try:
            training, test = run.find("cifar-10", "train"), run.find("cifar-10")
            votes, used = find_votes(test, run.data)
            network = find_head(pretrained(published, run.data), test[:2].scaled)
        except DataMissingError:
            found[title] = {"missing": True}
            continue
        run.used.update({f"cifar-10h/{name}": digest for name, digest in used.items()})
        training, test = (
            in_double(evaluate.with_features(network, data, progress=run.progress))
            for data in (training, test)
        )
        # after the features, which the network makes in float32
        head = network.head.double()
        found[title] = judged(head, training, test, votes, CIFAR_TRAINING, run.seed)
    return found


def _generated(run: Run) -> Result:
    """Votes drawn from a network that is less sure than the one that is judged."""
    experiment = generated(run)
    network = find_head(experiment.networks[0].network, experiment.inside.inputs[:2])
    training, test = [
        in_double(evaluate.with_features(network, data, progress=False))
        for data in (experiment.training, experiment.inside)
    ]
    generator = np.random.default_rng(run.seed)
    with torch.no_grad():
        shares = (network.head.double()(test.inputs) / 3).softmax(-1).numpy()
    votes = torch.from_numpy(generator.multinomial(GENERATED_VOTES, shares))
    labels = torch.from_numpy(generator.multinomial(1, shares)).argmax(-1)
    return judged(network.head, training, replace(test, labels=labels), votes, None, run.seed)


def judged(
    head: nn.Module,
    training: DataSet,
    test: DataSet,
    votes: Tensor,
    num_examples: int | None,
    seed: int,
) -> Result:
    """All metrics by method.

    Args:
        head: The last linear layer.
        training: Features and labels that the posteriors are fitted on.
        test: Features and labels; the first choose, the others are judged.
        votes: Votes on the test images, shape (N, K).
        num_examples: How many examples the training data stands for.
        seed: Seed of the ties of votes with the ends of intervals.
    """
    number = min(NUM_CHOOSING, len(test) // 3)
    choosing, rest = test[:number], test[number:]
    counts = votes[number:]
    with torch.no_grad():
        answers = _answers(head, training, choosing, votes[:number], num_examples)
        values = {
            name: _judged(answer(rest.inputs), counts, seed) for name, answer in answers.items()
        }
    labels = rest.labels
    return {
        "images": len(rest),
        "votes": int(counts.sum()),
        "choosing": number,
        "accuracy": float((head(rest.inputs).argmax(-1) == labels).double().mean()),
        "agreement": float((counts.argmax(-1) == labels).double().mean()),
        "entropy_of_votes": _vote_entropy(counts),
        "methods": values,
    }


def _vote_entropy(votes: Tensor) -> float:
    """Nats per vote of whoever knows the shares of each image: no method can need
    fewer.
    """
    shares = votes / votes.sum(-1, keepdim=True)
    return float((torch.special.entr(shares.double()).sum(-1) * votes.sum(-1)).sum() / votes.sum())


def _answers(
    head: nn.Module,
    training: DataSet,
    choosing: DataSet,
    choosing_votes: Tensor,
    num_examples: int | None,
) -> dict[str, Callable[[Tensor], Answer]]:
    """From features to what each method answers: probabilities where it has no
    distribution.
    """
    scaling = temperature_scaling(head(choosing.inputs), choosing.labels)
    total = _best_total(scaling(head(choosing.inputs)), choosing_votes)
    found: dict[str, Callable[[Tensor], Answer]] = {
        MAP: lambda features: head(features).softmax(-1),
        SCALED: lambda features: scaling(head(features)),
        ONE_TOTAL: lambda features: _with_total(scaling(head(features)), total),
    }
    for structure, precision in zip(STRUCTURES, conventions.PRIOR_PRECISIONS["CIFAR-10"]):
        posterior = evaluate.last_layer_posterior(
            head, training, structure, precision, num_examples
        )
        for name, bridge in BRIDGES.items():
            found[f"{name}, {structure}"] = _bridged(posterior, bridge)
    ours = fit(
        head,
        [(training.inputs, training.labels)],
        val_loader=[(choosing.inputs, choosing.labels)],
        head="",
        progress=False,
    )
    found[DEFAULT] = ours
    return found


def _bridged(posterior: Callable[..., object], bridge: Bridge) -> Callable[[Tensor], Answer]:
    return lambda features: bridge(posterior(features))  # type: ignore[arg-type]


def _with_total(probabilities: Tensor, total: float) -> Dirichlet:
    smallest = torch.finfo(probabilities.dtype).tiny
    return Dirichlet.from_concentration(total * probabilities.clamp_min(smallest))


def _best_total(probabilities: Tensor, votes: Tensor) -> float:
    """The α₀ under which votes on other images are likeliest."""
    surprises = [
        metrics.dirichlet_multinomial_nll(_with_total(probabilities, float(total)), votes)
        for total in TOTALS
    ]
    return float(TOTALS[int(np.argmin(surprises))])


def _judged(answer: Answer, votes: Tensor, seed: int) -> Result:
    mean = answer if isinstance(answer, Tensor) else answer.mean
    blocks = torch.arange(len(votes)).tensor_split(min(BLOCKS, len(votes)))
    surprises = [_surprise(answer[rows], votes[rows]) for rows in blocks]
    shares = votes / votes.sum(-1, keepdim=True)
    disagreement = torch.special.entr(shares.double()).sum(-1)
    entropy = torch.special.entr(mean.double()).sum(-1)
    return {
        "nats_per_vote": _surprise(answer, votes),
        "error": float(np.std(surprises, ddof=1) / len(surprises) ** 0.5),
        "cross_entropy": _surprise(mean, votes),
        "rank_correlation": float(stats.spearmanr(entropy, disagreement).statistic),
        **votes_covered.shares(answer, votes, seed=seed),
    }


def _surprise(answer: Answer, votes: Tensor) -> float:
    """Nats per vote; under probabilities alone votes are independent."""
    if not isinstance(answer, Tensor):
        return metrics.dirichlet_multinomial_nll(answer, votes)
    log = answer.double().clamp_min(torch.finfo(torch.float64).tiny).log()
    return float(-(votes * log).sum() / votes.sum())


def tables(result: Result) -> list[Table]:
    """One table for each network."""
    return [_table(name, found) for name, found in result.items()]


def _table(name: str, found: Result) -> Table:
    headings = [
        name,
        "nats per vote",
        "cross-entropy of the mean",
        "rank correlation with disagreement",
        f"votes within {votes_covered.LEVEL:.0%} intervals, predicted class",
        "all classes",
    ]
    if found.get("missing"):
        return Table(headings, [[NOT_AVAILABLE, *[""] * (len(headings) - 1)]])
    rows = [
        [
            method,
            f"{one['nats_per_vote']:.3f} ± {one['error']:.3f}",
            f"{one['cross_entropy']:.3f}",
            f"{one['rank_correlation']:.3f}",
            f"{one['predicted_class']:.1%}",
            f"{one['all_classes']:.1%}",
        ]
        for method, one in found["methods"].items()
    ]
    caption = (
        f"{found['votes']:,} votes on {found['images']:,} images, of which the network gets"
        f" {found['accuracy']:.2%} right and the most voted class {found['agreement']:.2%}. Nats"
        f" are fewer where better; who knew each image's shares would need"
        f" {found['entropy_of_votes']:.3f}. Labels of {found['choosing']:,} other images chose"
        " temperature and width."
    )
    return Table(headings, rows, caption)


def finding(result: Result) -> str:
    """What the votes say."""
    told = [_told(name, found) for name, found in result.items() if not found.get("missing")]
    if not told:
        return "The data is not available here."
    return (
        "Not in the paper: its tables judge means and their order, and this the distribution. "
        + " ".join(told)
        + " One total for all images, chosen by votes on other images, is the simplest width there"
        " is, and sees what no other method does: who needs more nats has found nothing by a width"
        " for each image."
    )


def _told(name: str, found: Result) -> str:
    methods = found["methods"]

    def range_of(bridge: str, key: str = "nats_per_vote") -> str:
        return " / ".join(f"{methods[f'{bridge}, {one}'][key]:.3f}" for one in STRUCTURES)

    def shares_of(bridge: str) -> str:
        found = [methods[f"{bridge}, {one}"]["predicted_class"] for one in STRUCTURES]
        return " / ".join(f"{share:.0%}" for share in found)

    correlations = [one["rank_correlation"] for one in methods.values()]
    alike = max(correlations) - min(correlations) < ALIKE
    ours, total = methods[DEFAULT], methods[ONE_TOTAL]["nats_per_vote"]
    below = [method for method, one in methods.items() if one["nats_per_vote"] < total]
    return (
        f"{name}, nats per vote with a diagonal / Kronecker posterior: LB {range_of('LB')}, LB-norm"
        f" {range_of('LB-norm')}, KL {range_of('KL')}, one-vs-rest {range_of('one-vs-rest')}, race"
        f" {range_of('race')}; the network alone {methods[MAP]['nats_per_vote']:.3f}, temperature"
        f" scaling {methods[SCALED]['nats_per_vote']:.3f}; our default {ours['nats_per_vote']:.3f};"
        f" one total for all images, by votes, {total:.3f}, and below that"
        f" {' and '.join(below) or 'nobody'}. The cross-entropy of the mean is another question:"
        f" {ours['cross_entropy']:.3f} by our default, {methods[SCALED]['cross_entropy']:.3f} by"
        f" temperature scaling, race {range_of('race', 'cross_entropy')}. All intervals are too"
        f" narrow for votes: those of {votes_covered.LEVEL:.0%} hold them, for the predicted class,"
        f" on {ours['predicted_class']:.0%} of the images by our default, LB"
        f" {shares_of('LB')}, LB-norm {shares_of('LB-norm')}, race {shares_of('race')}. Rank"
        f" correlation with people's disagreement is {min(correlations):.2f} to"
        f" {max(correlations):.2f}"
        + (": no method knows better which images people doubt." if alike else ".")
    )


VOTES = Artifact("votes", "Human votes: a test of the distribution", compute, tables, finding)
