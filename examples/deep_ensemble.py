"""A deep ensemble: its members' disagreement as a Gaussian over logits: `python
examples/deep_ensemble.py`.
"""

import torch
from torch import nn

import laplacebridge as lb
from laplacebridge.datasets import digits, trained_network

data = digits(seed=0)  # scikit-learn's digits; the networks never see a 7, 8 or 9
members: list[nn.Module] = [trained_network(data.train, seed=seed) for seed in range(5)]


@torch.no_grad()
def predict(inputs):
    """Dirichlets from the members' mean and covariance, and their averaged
    probabilities to compare with.
    """
    gaussian = lb.sources.ensemble_gaussian(members, inputs)
    average = torch.stack([member(inputs).softmax(-1) for member in members]).mean(0)
    return lb.race_bridge(gaussian), average


(known, known_average), (unknown, unknown_average) = predict(data.test[0]), predict(data.unknown[0])
with torch.no_grad():
    one = members[0](data.test[0]).softmax(-1), members[0](data.unknown[0]).softmax(-1)
scores = {
    "one member, maximum probability": map(lb.scores.msp, one),
    "averaged softmax, maximum probability": map(lb.scores.msp, (known_average, unknown_average)),
    "bridge, maximum probability": map(lb.scores.msp, (known, unknown)),
    "bridge, mutual information": map(lb.scores.mutual_information, (known, unknown)),
}

print(
    "accuracy of one member                        "
    f" {lb.metrics.accuracy(one[0], data.test[1]):.3f}"
)
print(
    f"accuracy of the bridge                         {lb.metrics.accuracy(known, data.test[1]):.3f}"
)
print("unknown digits, AUROC, by")
for name, pair in scores.items():
    print(f"  {name:44} {lb.metrics.auroc(*pair):.3f}")
sets = lb.sets.overlap_sets(unknown)
print(f"classes that remain for an unknown digit       {sets.size.double().mean():.2f} on average")
