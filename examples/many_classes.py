"""A hundred thousand classes on a laptop: fit, predict, sets and groups: `python
examples/many_classes.py`.
"""

import sys

import torch
from torch import Generator, nn

import laplacebridge as lb

try:
    import resource
except ImportError:  # Windows cannot say how much memory was used
    resource = None

NUM_CLASSES, NUM_FEATURES, NUM_FAMILIES = 100_000, 64, 1000
generator = Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=generator)


# Products in a shop, say: a thousand families of a hundred similar ones. The head
# scores how alike two vectors are.
families = 0.6 * normal(NUM_FAMILIES, NUM_FEATURES)
family_of = torch.arange(NUM_CLASSES) % NUM_FAMILIES
products = families[family_of] + 0.5 * normal(NUM_CLASSES, NUM_FEATURES)
head = nn.Linear(NUM_FEATURES, NUM_CLASSES)
head.weight.data, head.bias.data = products, -0.5 * products.square().sum(-1)


def examples(num, noise):
    labels = torch.randint(NUM_CLASSES, (num,), generator=generator)
    return products[labels] + noise * normal(num, NUM_FEATURES), labels


batches = [
    examples(64, 0.7) for _ in range(8)
]  # features and labels: a linear layer is a model too
classifier = lb.fit(
    head, batches, prior_precision=50.0, progress=False
)  # DiagKron above 4000 classes

print(f"{classifier.num_classes:,} classes, {type(classifier.posterior).__name__}\n")
print(
    "noise   top class right   mean confidence   sets (at most 10)   family right   its 95 % bounds"
)
members = [torch.where(family_of == family)[0].tolist() for family in range(NUM_FAMILIES)]
for noise in (0.7, 1.0, 1.2):
    features, labels = examples(32, noise)
    with torch.no_grad():
        prediction = classifier(
            features
        )  # the bridge works in blocks of rows; nothing of size K x K is made
    sets = lb.sets.overlap_sets(prediction, threshold=0.05, max_size=10)
    by_family = prediction.dirichlet.aggregate(
        members
    )  # exact: probabilities of groups are Dirichlet too (Eq. 10)
    low, high = (
        bound.mean() for bound in by_family.marginal(by_family.mean.argmax(-1)).interval(0.95)
    )
    print(
        f"{noise:5} {lb.metrics.accuracy(prediction, labels):17.0%}"
        f" {lb.metrics.mmc(prediction):17.2f} {lb.metrics.mean_set_size(sets):19.1f}"
        f" {lb.metrics.accuracy(by_family, family_of[labels]):14.0%}      {low:.2f} to {high:.2f}"
    )

print(f"\none matrix of classes by classes would take {4 * NUM_CLASSES**2 / 1e6:,.0f} MB")
if resource:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        1e6 if sys.platform == "darwin" else 1e3
    )
    print(f"the largest memory of this program was {peak:,.0f} MB")
