"""How often intervals hold what is sampled, by the rank of the class."""

from torch import Generator, Tensor

import laplacebridge as lb

RANKS = ((1, 1), (2, 5), (10, 20), (50, 100), (300, 1000))
DRAWN_AT_ONCE = 100


def coverage_by_rank(
    gaussian: lb.LogitGaussian, num_samples: int, generator: Generator
) -> dict[tuple[int, int], Tensor]:
    """Share of sampled probabilities inside 95 % intervals, for each row."""
    prediction = lb.predict(gaussian)
    lower, upper = prediction.interval(0.95)
    inside = lower.new_zeros(lower.shape)
    for _ in range(num_samples // DRAWN_AT_ONCE):
        sampled = gaussian.sample(DRAWN_AT_ONCE, generator).softmax(-1)
        inside += ((sampled >= lower) & (sampled <= upper)).sum(0)
    ranked = inside.gather(-1, prediction.mean.argsort(-1, descending=True)) / num_samples
    classes = prediction.num_classes
    return {
        (first, last): ranked[:, first - 1 : last].mean(-1)
        for first, last in RANKS
        if last <= classes or first == 2
    }
