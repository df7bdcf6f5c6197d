"""How close bridges and links come to the law of softmax(z), beside 10, 100 and 1000
samples.

    python benchmarks/bench_accuracy.py               ten minutes; rewrites results/accuracy.json
    python benchmarks/bench_accuracy.py --correlated  a minute; results/correlated.json
    python benchmarks/bench_accuracy.py --quick       seconds; to see that everything runs

Three questions for every population and method. How far off is the mean (total
variation)? How often does the 95 % interval of the most probable class hold the truth?
How much worse than the best Dirichlet is this one (excess Kullback-Leibler divergence)?
The reference is sampled; for independent logits its mean is exact.
"""

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from correlated_laws import correlated_populations
from machine import description
from populations import Population, hard_populations, standard_populations
from render_accuracy import correlated_tables, correlated_verdicts, one_row_a_line, tables, verdicts
from torch import Generator, Tensor
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge._quadrature import exact_independent_mean
from laplacebridge._special import stirling_remainder
from laplacebridge.bridges.correlated_race import race_prediction
from laplacebridge.bridges.information import information_projection

RESULTS = Path(__file__).parent / "results" / "accuracy.json"
CORRELATED_RESULTS = RESULTS.with_name("correlated.json")
LEVEL = 0.95
# Concentrations beyond this make the divergence of a broken map arbitrarily large; cut
# for that metric only.
LOG_LARGEST = math.log(1e12)
# A smaller gap, of a class that is all but certain, is the rounding of the sum that it
# is computed from.
SMALLEST_JENSEN_GAP = 1e-12
ELEMENTS_PER_DRAW = 2**20
CANDIDATES, PILOT_SAMPLES = 4, 1000
SEED = 20260
# The estimated error that is taken for a promise, and what the error must then be below.
SURE, CLOSE = 0.01, 0.02

Method = Callable[[lb.LogitGaussian], lb.Dirichlet | Tensor]
Scores = dict[str, np.ndarray]  # one number per Gaussian for each metric


@dataclass(frozen=True)
class Effort:
    """How many Gaussians a population has and how many samples judge each of them."""

    gaussians: int
    elements: int
    fewest: int
    most: int
    largest_classes: int

    def samples(self, num_classes: int) -> int:
        """Many where they are cheap: the smaller K, the smaller the errors that must be
        told apart.
        """
        return min(self.most, max(self.fewest, self.elements // num_classes))


FULL = Effort(gaussians=20, elements=4_000_000, fewest=20_000, most=200_000, largest_classes=1000)
# Matrices of a thousand classes are costly to sample: fewer of them.
CORRELATED = Effort(
    gaussians=6, elements=2_000_000, fewest=10_000, most=60_000, largest_classes=1000
)
QUICK = Effort(gaussians=2, elements=40_000, fewest=2_000, most=2_000, largest_classes=100)


@dataclass(frozen=True)
class Reference:
    """What sampling, and for independent logits quadrature, says about a batch.

    Attributes:
        mean: E π, shape (B, K).
        noise: Expected total variation of that mean itself; zero where it is exact,
            shape (B,).
        jensen_gap: E LSE(z) − LSE(mean), all that the divergence from a Dirichlet
            depends on, shape (B,).
        top: The most probable class, shape (B,).
        top_samples: Samples of its probability, shape (S, B).
    """

    mean: Tensor
    noise: Tensor
    jensen_gap: Tensor
    top: Tensor
    top_samples: Tensor


# Of bridges, where their names in the registry are others.
PAPER_NAMES = {"laplace": "LB", "laplace-norm": "LB-norm", "kl": "KL"}


def methods(generator: Generator, *, correlated: bool) -> dict[str, Method]:
    """Everything that is compared; sampling draws from its own generator and not from
    the reference's.
    """
    chosen: dict[str, Method] = {
        "MAP": lb.links.map_estimate,
        "probit": lb.links.probit,  # as published
        "probit, centred": partial(lb.links.probit, centered=True),
        "second order": lb.links.second_order,
        "LB centered": partial(lb.laplace_bridge, zero_sum=lb.bridges.center),
        **{PAPER_NAMES.get(name, name): bridge for name, bridge in lb.bridges.BRIDGES.items()},
    }
    del chosen["laplace-raw"]  # whose covariances have to sum to zero
    if correlated:
        chosen["race without factors"] = without_factors
    for num_samples in (10, 100, 1000):
        chosen[f"MC-{num_samples}"] = partial(
            sampled_bridge, num_samples=num_samples, generator=generator
        )
    return chosen


def without_factors(gaussian: lb.LogitGaussian) -> lb.Dirichlet:
    """The race as it is for the Gaussians of a fit."""
    return lb.race_bridge(replace(gaussian, seek_factors=False))


def sampled_bridge(
    gaussian: lb.LogitGaussian, *, num_samples: int, generator: Generator
) -> lb.Dirichlet:
    """The Dirichlet with the mean and the total variance of sampled probabilities."""
    probability = gaussian.sample(num_samples, generator).softmax(-1)
    log_mean = probability.mean(0).clamp_min(1e-30).log()
    # A Dirichlet of total one has the variances m(1 − m)/2, which it computes without
    # cancellation.
    largest_variance = 2 * lb.Dirichlet(log_mean.log_softmax(-1)).variance.sum(-1)
    variance = probability.var(0, unbiased=False).sum(-1)
    total = (largest_variance / variance.clamp_min(1e-300) - 1).clamp(1e-12, 1e12)
    return lb.Dirichlet(log_mean.log_softmax(-1) + total.log().unsqueeze(-1))


def sampled_reference(
    gaussian: lb.LogitGaussian, num_samples: int, generator: Generator
) -> Reference:
    """Averages over antithetic samples, block by block; only samples of a few likely
    classes are kept.
    """
    # Noise in float32 has the right law to seven digits, in a third of the time; the
    # softmax stays in float64.
    covariance = gaussian.covariance.factored().to(torch.float32)
    mean = gaussian.mean - gaussian.mean.amax(-1, keepdim=True)
    pilot = (mean + covariance.sample(PILOT_SAMPLES, generator)).softmax(-1).mean(0)
    candidates = pilot.topk(min(CANDIDATES, mean.shape[-1])).indices
    halves, gap, kept = (
        torch.zeros(2, *mean.shape, dtype=mean.dtype),
        torch.zeros(len(mean)).double(),
        [],
    )
    block = max(1, ELEMENTS_PER_DRAW // mean.numel())
    pairs = 2 * (num_samples // 4)  # the same number of pairs for both halves
    starts = [(half, start) for half in (0, 1) for start in range(0, pairs // 2, block)]
    for half, start in starts:
        noise = covariance.sample(min(block, pairs // 2 - start), generator)
        for logits in (mean + noise, mean - noise):
            largest = logits.amax(-1, keepdim=True)
            probability = logits.sub_(largest).exp_()
            normalizer = probability.sum(-1, keepdim=True)
            probability /= normalizer
            halves[half] += probability.sum(0) / pairs
            gap += ((normalizer.log() + largest).squeeze(-1) - mean.logsumexp(-1)).sum(0) / (
                2 * pairs
            )
            kept.append(probability.gather(-1, candidates.expand(len(logits), -1, -1)))
    average = halves.mean(0)
    best = average.gather(-1, candidates).argmax(-1, keepdim=True)
    top_samples = torch.cat(kept).gather(-1, best.expand(2 * pairs, -1, -1)).squeeze(-1)
    # The difference of the halves has twice the deviation of their average.
    noise_of_average = total_variation(halves[0], halves[1]) / 2
    gap = gap.clamp_min(SMALLEST_JENSEN_GAP)
    return Reference(
        average, noise_of_average, gap, candidates.gather(-1, best).squeeze(-1), top_samples
    )


def reference(gaussian: lb.LogitGaussian, num_samples: int, generator: Generator) -> Reference:
    """The sampled reference, with the exact mean where it is known."""
    sampled = sampled_reference(gaussian, num_samples, generator)
    if not isinstance(gaussian.covariance, lb.Diagonal):
        return sampled
    exact = exact_independent_mean(gaussian.mean, gaussian.variance)
    return replace(sampled, mean=exact, noise=torch.zeros_like(sampled.noise))


def total_variation(first: Tensor, second: Tensor) -> Tensor:
    """Half the sum of absolute differences, from 0 to 1."""
    return (first - second).abs().sum(-1) / 2


def coverage(dirichlet: lb.Dirichlet, truth: Reference) -> Tensor:
    """Share of the samples of the top class's probability inside its 95 % interval."""
    low, high = dirichlet.marginal(truth.top).interval(LEVEL)
    return ((truth.top_samples >= low) & (truth.top_samples <= high)).double().mean(0)


def interval_coverage(gaussian: lb.LogitGaussian, truth: Reference) -> Tensor:
    """The same for `Prediction.interval`, from the variances of the log-odds."""
    low, high = (
        end.gather(-1, truth.top.unsqueeze(-1)).squeeze(-1)
        for end in race_prediction(gaussian).interval(LEVEL)
    )
    return ((truth.top_samples >= low) & (truth.top_samples <= high)).double().mean(0)


def excess_divergence(
    log_concentration: Tensor, best: Tensor, mean: Tensor, jensen_gap: Tensor
) -> Tensor:
    """KL(p ‖ Dir) minus its minimum over all Dirichlets, in nats.

    For this metric log-concentrations are cut at ±log(1e12), or where the best one has
    larger ones, at those.
    """
    bound = best.abs().amax(-1, keepdim=True).clamp_min(LOG_LARGEST)
    cut = log_concentration.clamp(-bound, bound)
    return cross_entropy(cut, mean, jensen_gap) - cross_entropy(best, mean, jensen_gap)


def cross_entropy(log_concentration: Tensor, mean: Tensor, jensen_gap: Tensor) -> Tensor:
    """−E log Dir(π; α) up to a constant of the Gaussian, from E log π = log
    softmax(mean) − jensen_gap.

    By Stirling's formula log B(α) − Σ α E log π is α₀ (KL(m ‖ softmax(mean)) +
    jensen_gap), m = α/α₀, and logarithms: no difference of large numbers, even for α =
    1e12.
    """
    log_total, log_mean = log_concentration.logsumexp(-1), log_concentration.log_softmax(-1)
    log_ratio = log_mean - mean.log_softmax(-1)
    # Every term is at least zero, and with normalised rows the sum is Σ m log(m/p).
    divergence = (log_mean.exp() * (torch.expm1(-log_ratio) + log_ratio)).sum(-1)
    shape = (stirling_remainder(log_concentration) - log_concentration / 2).sum(-1)
    return (
        log_total.exp() * (divergence + jensen_gap)
        + shape
        - stirling_remainder(log_total)
        + log_total / 2
    )


def score(
    gaussian: lb.LogitGaussian, method: Method, truth: Reference, best: Tensor
) -> dict[str, Tensor]:
    """Every metric for every Gaussian of a batch; links have no Dirichlet, only a mean."""
    answer = method(gaussian)
    if isinstance(answer, Tensor):
        return {"tv": total_variation(answer, truth.mean), "noise": truth.noise}
    excess = excess_divergence(answer.log_concentration, best, gaussian.mean, truth.jensen_gap)
    return {
        "tv": total_variation(answer.mean, truth.mean),
        "noise": truth.noise,
        "coverage": coverage(answer, truth),
        "excess_kl": excess,
    }


def measure(population: Population, effort: Effort, seed: int) -> dict[str, Scores]:
    """Scores of all methods on one population, and the noise of the reference beside
    them.
    """
    parts: dict[str, list[dict[str, Tensor]]] = defaultdict(list)
    own = population.seed(seed)
    for_reference, for_methods = Generator().manual_seed(own + 1), Generator().manual_seed(own + 2)
    correlated = population.hard and not population.independent
    compared = methods(for_methods, correlated=correlated)
    for gaussian in population.batches(effort.gaussians, seed):
        truth = reference(gaussian, effort.samples(population.num_classes), for_reference)
        best = information_projection(gaussian.mean, truth.jensen_gap)
        for name, method in compared.items():
            parts[name].append(score(gaussian, method, truth, best))
        if correlated:
            estimate = lb.bridges.race_mean(gaussian, return_error=True)[1]
            parts["race"][-1]["estimate"] = estimate
            parts["race"][-1]["interval"] = interval_coverage(gaussian, truth)
    return {
        name: {key: torch.cat([part[key] for part in batch]).numpy() for key in batch[0]}
        for name, batch in parts.items()
    }


def summarize(scores: list[Scores]) -> dict[str, float | int | None]:
    """One row of the results from the scores of one method on one or several
    populations.
    """
    pooled = {key: np.concatenate([part[key] for part in scores]) for key in scores[0]}
    figures = {"tv_mean": pooled["tv"].mean(), "tv_worst": pooled["tv"].max()}
    if "coverage" in pooled:
        figures["coverage"] = pooled["coverage"].mean()
        figures["coverage_deviation"] = np.abs(pooled["coverage"] - LEVEL).mean()
        figures["excess_kl_median"] = np.median(pooled["excess_kl"])
    figures["reference_noise"] = pooled["noise"].mean()
    if "estimate" in pooled:
        sure = pooled["estimate"] < SURE
        figures["estimate_mean"] = pooled["estimate"].mean()
        figures["sure"] = sure.sum()
        figures["interval_coverage"] = pooled["interval"].mean()
        figures["sure_and_close"] = (sure & (pooled["tv"] < CLOSE)).sum()
    missing = dict.fromkeys(("coverage", "coverage_deviation", "excess_kl_median"))
    rounded = {name: float(f"{value:.6g}") for name, value in figures.items()}
    return {**missing, **rounded, "num_gaussians": len(pooled["tv"])}


def collect(
    populations: list[Population], effort: Effort, processes: int
) -> dict[str, list[dict[str, object]]]:
    """Rows of every population; beside them the same pooled over structures, and over
    regimes too.
    """
    found: dict[str, dict[tuple[object, ...], list[Scores]]] = {
        "rows": defaultdict(list),
        "by_regime": defaultdict(list),
        "overall": defaultdict(list),
    }
    # Processes of one thread each: threads would wait for each other at every operation
    # on a shared machine.
    with get_context("spawn").Pool(processes, torch.set_num_threads, (1,)) as pool:
        measured = pool.imap(partial(measure, effort=effort, seed=SEED), populations)
        for population, by_method in zip(tqdm(populations, unit="population"), measured):
            classes = population.num_classes
            for method, scores in by_method.items():
                key = (population.name, population.regime, classes, population.independent, method)
                found["rows"][key].append(scores)
                if not population.hard:
                    found["by_regime"][population.regime, classes, method].append(scores)
                    found["overall"][classes, method].append(scores)
    names = {
        "rows": ("population", "regime", "num_classes", "independent", "method"),
        "by_regime": ("regime", "num_classes", "method"),
        "overall": ("num_classes", "method"),
    }
    return {
        table: [dict(zip(names[table], key)) | summarize(scores) for key, scores in groups.items()]
        for table, groups in found.items()
    }


def main() -> None:
    """Measures, prints the tables and the verdicts, and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few Gaussians and samples, nothing written"
    )
    parser.add_argument(
        "--correlated", action="store_true", help=f"correlated laws only, to {CORRELATED_RESULTS}"
    )
    parser.add_argument("--output", type=Path, help=f"where to write; without --quick {RESULTS}")
    parser.add_argument(
        "--processes", type=int, default=2, help="how many to run at once, of one thread each"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    whole, results = (CORRELATED, CORRELATED_RESULTS) if options.correlated else (FULL, RESULTS)
    effort = QUICK if options.quick else whole
    output = options.output or (None if options.quick else results)
    started = time.perf_counter()
    populations = [
        p
        for p in (
            correlated_populations()
            if options.correlated
            else standard_populations() + hard_populations()
        )
        if p.num_classes <= effort.largest_classes
    ]
    report: dict[str, object] = {
        "command": " ".join(["python", "benchmarks/bench_accuracy.py", *sys.argv[1:]]),
        "seed": SEED,
        "machine": description(),
        "processes": options.processes,
        "samples": {
            str(k): effort.samples(k) for k in sorted({p.num_classes for p in populations})
        },
        **collect(populations, effort, options.processes),
    }
    judged = correlated_verdicts if options.correlated else verdicts
    report |= {"seconds": round(time.perf_counter() - started, 1), "verdicts": judged(report)}
    print(correlated_tables(report) if options.correlated else tables(report))
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(one_row_a_line(report), encoding="utf-8")
        print(f"Wrote {output}.")


if __name__ == "__main__":
    main()
