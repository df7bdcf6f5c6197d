"""A variational last layer: a mean and a variance for each of its weights: `python
examples/variational_head.py`.
"""

import torch
from torch import nn
from torch.nn import functional

import laplacebridge as lb
from laplacebridge.datasets import digits

torch.manual_seed(0)
data = digits(seed=0)  # scikit-learn's digits; the network never sees a 7, 8 or 9
images, labels = data.train
PRIOR_VARIANCE, NUM_FEATURES, NUM_CLASSES = 1.0, 64, 7

body = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, NUM_FEATURES), nn.ReLU()
)
mean = nn.Parameter(0.1 * torch.randn(NUM_CLASSES, NUM_FEATURES))
log_variance = nn.Parameter(torch.full((NUM_CLASSES, NUM_FEATURES), -6.0))


def logits(inputs):
    """The Gaussian over logits that these weights give, in closed form (Eq. 8)."""
    return lb.sources.mean_field_gaussian(body(inputs), mean, log_variance.exp())


def divergence():
    """KL of the weights from their prior."""
    ratio = log_variance.exp() / PRIOR_VARIANCE
    return 0.5 * (ratio + mean.square() / PRIOR_VARIANCE - 1 - ratio.log()).sum()


optimizer = torch.optim.Adam([*body.parameters(), mean, log_variance], lr=3e-3)
for _ in range(600):
    optimizer.zero_grad()
    sampled = logits(images).sample(1)[0]  # logits instead of weights: the same law, and less noise
    (functional.cross_entropy(sampled, labels) + divergence() / len(images)).backward()
    optimizer.step()

with torch.no_grad():
    gaussians = [logits(inputs) for inputs in (data.test[0], data.unknown[0])]
    known, unknown = (lb.race_bridge(gaussian) for gaussian in gaussians)
    sampled = lb.links.monte_carlo(gaussians[0], num_samples=10_000)
    means = [lb.links.map_estimate(gaussian) for gaussian in gaussians]

difference = 0.5 * (known.mean - sampled).abs().sum(-1).max()
print(
    f"accuracy                                      {lb.metrics.accuracy(known, data.test[1]):.3f}"
)
print(f"bridge and 10,000 samples differ at most by   {difference:.3f} (total variation)")
print(f"negative log-likelihood, mean weights         {lb.metrics.nll(means[0], data.test[1]):.3f}")
print(f"negative log-likelihood, bridge               {lb.metrics.nll(known, data.test[1]):.3f}")
print(
    "unknown digits by the mean weights, AUROC    "
    f" {lb.metrics.auroc(*map(lb.scores.msp, means)):.3f}"
)
print(
    "unknown digits by the bridge, AUROC          "
    f" {lb.metrics.auroc(*map(lb.scores.msp, (known, unknown))):.3f}"
)
