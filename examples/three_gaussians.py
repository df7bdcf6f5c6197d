"""Three Gaussians over logits, and what every bridge and link makes of them: `python
examples/three_gaussians.py`.
"""

from functools import partial

import torch
from torch import Generator

import laplacebridge as lb

SCENES = {  # means and variances of the logits of cat, dog and owl
    "A clear cat, seen often in training": ([5.0, 1.0, -1.0], [0.3, 0.3, 0.3]),
    "Cat or dog, and well known to be hard": ([2.0, 1.8, -3.0], [0.2, 0.2, 0.5]),
    "Nothing like the training data": ([3.0, 0.0, -1.0], [30.0, 25.0, 40.0]),
}
BRIDGES = {
    "race (default)": lb.race_bridge,
    "one-vs-rest": lb.bridges.one_vs_rest_bridge,
    "KL projection": lb.bridges.kl_bridge,
    "delta": lb.bridges.delta_bridge,
    "LB (paper)": lb.laplace_bridge,
    "LB-norm (paper)": lb.bridges.laplace_bridge_norm,
}
LINKS = {
    "MAP": lb.links.map_estimate,
    "probit": partial(lb.links.probit, centered=True),
    "second order": lb.links.second_order,
}
NUM_SAMPLES = 100_000


def row(name, mean, truth, *others):
    probabilities = " ".join(f"{probability:6.3f}" for probability in mean.tolist())
    print(
        f"  {name:16} {probabilities}  {0.5 * (mean - truth).abs().sum():6.3f}  {'  '.join(others)}"
    )


for title, (mean, variance) in SCENES.items():
    gaussian = lb.LogitGaussian(torch.tensor([mean]), lb.Diagonal(torch.tensor([variance])))
    samples = gaussian.sample(NUM_SAMPLES, Generator().manual_seed(0)).softmax(-1)[:, 0]
    truth, cat = samples.mean(0), samples[:, 0]
    print(f"{title}: mean {mean}, variance {variance}")
    print(f"  {'':16}    cat    dog    owl   error  cat, 95 %     holds")
    row(
        f"{NUM_SAMPLES:,} samples",
        truth,
        truth,
        f"{cat.quantile(0.025):.2f} to {cat.quantile(0.975):.2f}",
        "  95%",
    )
    for name, bridge in BRIDGES.items():
        dirichlet = bridge(gaussian)
        low, high = (float(end) for end in dirichlet.marginal(0).interval(0.95))
        held = ((cat >= low) & (cat <= high)).double().mean()
        row(name, dirichlet.mean[0], truth, f"{low:.2f} to {high:.2f}", f"{held:5.0%}")
    for name, link in LINKS.items():
        row(name, link(gaussian)[0], truth)
    print()

print(
    "error: total variation between mean probabilities and those of the samples, whose noise is"
    " about 0.001"
)
print(
    "cat, 95 %: between what bounds its probability lies with 95 % chance, and which share of the"
    " samples they hold"
)
