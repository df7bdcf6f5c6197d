"""What to make of five networks for MNIST: the average of their members, or the
Gaussian of their logits through a bridge?

    python benchmarks/bench_ensemble.py            # writes benchmarks/results/ensemble.json
    python benchmarks/bench_ensemble.py --quick    # smaller, prints only

Five perceptrons that differ by their first weights and by the order of training see the
same few digits, so that they err. NLL and accuracy on test digits; AUROC of 1 − max p
for telling clothes and Japanese characters from digits. Needs the folder of data sets
that the reproduction reads.
"""

from typing import Any

import torch
from detection_tasks import images, trained
from timing import digits, run
from torch import nn

import laplacebridge as lb

MEMBERS = 5
OUTSIDE = ("fashion-mnist", "kmnist")
METHODS = {
    "members' average": lb.bridges.members_bridge,
    "race": lb.race_bridge,
    "one-vs-rest": lb.bridges.one_vs_rest_bridge,
    "laplace bridge": lb.laplace_bridge,
}


def members(number: int) -> list[nn.Module]:
    """The networks, each trained on the same images."""
    inputs, labels = images("mnist", number, "train")
    made = []
    for seed in range(MEMBERS):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
        with torch.enable_grad():
            made.append(trained(network, (inputs, labels), epochs=60, batch=50, seed=seed))
    return made


def measured(quick: bool) -> dict[str, Any]:
    """A row for each method."""
    training, testing = (300, 200) if quick else (1000, 5000)
    networks = members(training)
    inputs, labels = images("mnist", testing)
    usual = lb.sources.ensemble_gaussian(networks, inputs)
    outside = {
        name: lb.sources.ensemble_gaussian(networks, images(name, testing)[0]) for name in OUTSIDE
    }
    rows = [_single(networks[0], inputs, labels)]
    for name, bridge in METHODS.items():
        prediction = lb.predict(usual, bridge)
        score = lb.scores.msp(prediction)
        rows.append(
            {
                "method": name,
                "nll": digits(lb.metrics.nll(prediction, labels), 4),
                "accuracy": digits(lb.metrics.accuracy(prediction, labels), 4),
                **{
                    f"auroc, {other}": digits(
                        lb.metrics.auroc(score, lb.scores.msp(lb.predict(gaussian, bridge))), 4
                    )
                    for other, gaussian in outside.items()
                },
            }
        )
    apart = (lb.predict(usual).mean - usual.member_mean()).abs().sum(-1) / 2
    return {
        "settings": {"members": MEMBERS, "training images": training, "test images": testing},
        "rows": rows,
        "race against members' average": [{"mean total variation": digits(float(apart.mean()), 3)}],
    }


def _single(network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
    probabilities = network(inputs).softmax(-1)
    return {
        "method": "one member",
        "nll": digits(lb.metrics.nll(probabilities, labels), 4),
        "accuracy": digits(lb.metrics.accuracy(probabilities, labels), 4),
    }


if __name__ == "__main__":
    run(__doc__, __file__, measured)
