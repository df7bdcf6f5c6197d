"""From real trained networks to probabilities: the default bridge must agree with
sampling, in and out of distribution.

Four networks with 10, 10, 100 and 1000 classes, with Kronecker and diagonal posteriors,
each under the prior that `fit` chooses and under one of the paper's size. Run with
``-s`` to see what every other method gives.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from cases import seeded, total_variation
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb
from laplacebridge_reproduction.data import DataSet, find
from laplacebridge_reproduction.models import initialised, mnist_cnn, pretrained
from laplacebridge_reproduction.train import MNIST, train

pytestmark = [pytest.mark.data, pytest.mark.slow]

STRUCTURES = {"Diag": lb.laplace.Diag, "Kron": lb.laplace.Kron}
REFERENCE_SAMPLES = 10_000
# Allowed mean total variation from the exact mean. The goal is 0.01 for all; but on
# confident networks the paper's bridge comes under that too, and the race is exact for
# independent logits. So it is held to what it reaches.
LARGEST_ERROR = {"Diag": 0.002, "Kron": 0.005}
LARGEST_NOISE = 0.0075  # of the reference; above it the comparison would say little
ROUNDING = 1e-5  # relative, of what float32 does to sums over 65 features

METHODS: dict[str, Callable[[lb.LogitGaussian], Tensor]] = {
    "race": lambda gaussian: lb.race_bridge(gaussian).mean,
    "one-vs-rest": lambda gaussian: lb.bridges.one_vs_rest_bridge(gaussian).mean,
    "LB": lambda gaussian: lb.laplace_bridge(gaussian).mean,
    "LB-norm": lambda gaussian: lb.bridges.laplace_bridge_norm(gaussian).mean,
    "probit": lambda gaussian: lb.links.probit(gaussian, centered=True),
    "MAP": lb.links.map_estimate,
    "MC-100": lambda gaussian: lb.links.monte_carlo(
        gaussian, num_samples=100, generator=seeded(100)
    ),
    "MC-1000": lambda gaussian: lb.links.monte_carlo(
        gaussian, num_samples=1000, generator=seeded(1000)
    ),
}


@dataclass(frozen=True)
class Case:
    """A trained network with data.

    Attributes:
        network: In evaluation mode.
        fit: Examples to fit on.
        judged: Examples to predict, by name; the first are in-distribution.
        accuracy: Smallest share of the first that must be right: a check that network
            and data belong together.
        priors: Prior precisions for `Diag` and `Kron`; None is `fit`'s own choice.
    """

    network: nn.Module
    fit: DataSet
    judged: dict[str, DataSet]
    accuracy: float
    priors: dict[str, tuple[float | None, ...]] = field(default_factory=dict)


def mnist(folder, cache):
    training = find("mnist", "train", folder)
    judged = {
        name: find(name, "test", folder)[:500] for name in ("mnist", "kmnist", "fashion-mnist")
    }
    priors = {"Diag": (None, 5e-4), "Kron": (None, 5e-4)}
    network = train(initialised(mnist_cnn, seed=0), training, MNIST, cache=cache, progress=False)
    return Case(network, training, judged, 0.96, priors)


def cifar_10(folder, _):
    judged = {name: find(name, "test", folder)[:500] for name in ("cifar-10", "cifar-100")}
    training = find("cifar-10", "train", folder)[:30_000]
    priors = {"Diag": (None, 1.0), "Kron": (None, 0.1)}
    return Case(pretrained("cifar-10-resnet20", folder), training, judged, 0.88, priors)


def cifar_100(folder, _):
    test = find(
        "cifar-100", "test", folder
    )  # its training set is not at hand: one half to fit, one to judge
    judged = {"cifar-100": test[5000:5500], "cifar-10": find("cifar-10", "test", folder)[:250]}
    priors = {"Diag": (None, 50.0), "Kron": (None, 5.0)}
    return Case(pretrained("cifar-100-resnet14", folder), test[:5000], judged, 0.60, priors)


def imagenet(folder, _):
    features = find("imagenet-features", "test", folder)
    head = pretrained("imagenet-efficientnet-lite0", folder)._fc
    # One image per class. Sampling 1000 correlated classes 10 000 times takes a second
    # per image, hence so few. From 500 images the evidence chooses a prior so wide
    # (3.2) that even 10 000 samples are 0.09 from the truth. The first prior here
    # lowers the confidence by 5 %, the paper's rule.
    priors = {"Diag": (560.0, 100.0), "Kron": (560.0, 100.0)}
    return Case(head, features[::2], {"imagenet": features[1:101:2]}, 0.80, priors)


CASES = {case.__name__: case for case in (mnist, cifar_10, cifar_100, imagenet)}


@pytest.fixture(scope="module", params=CASES)
def case(request, data_folder, tmp_path_factory):
    kept = getattr(request.config, "cache", None)
    cache = kept.mkdir("laplacebridge") if kept else tmp_path_factory.mktemp("laplacebridge")
    return CASES[request.param](data_folder, cache)


def loader(examples):
    tensors = TensorDataset(examples.scaled, examples.labels)
    return DataLoader(tensors, batch_size=250)


def reference(gaussian):
    """The mean by sampling, and its own total variation from the truth, seen in the
    difference of two halves.

    Half the difference of the halves has the law of the error of their average.
    """
    generator = seeded(0)
    first, second = (
        lb.links.monte_carlo(
            gaussian, num_samples=REFERENCE_SAMPLES // 2, generator=generator
        ).double()
        for _ in range(2)
    )
    return (first + second) / 2, total_variation(first, second).mean().item() / 2


def judge(gaussian):
    """Mean total variation of every method from the reference, and the reference's
    noise.
    """
    sampled, noise = reference(gaussian)
    distances = {
        name: total_variation(method(gaussian), sampled).mean().item()
        for name, method in METHODS.items()
    }
    return distances, noise


@pytest.mark.filterwarnings(
    "ignore:Under the prior precision"
)  # evidence may doubt much; here the bridge is judged
@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_default_bridge_agrees_with_ten_thousand_samples(case, structure, request):
    classifier = lb.fit(
        case.network,
        loader(case.fit),
        curvature=STRUCTURES[structure],
        prior_precision=case.priors[structure][0],
        progress=False,
    )
    assert classifier.bridge is lb.race_bridge
    first = next(iter(case.judged.values()))
    with torch.no_grad():
        right = classifier(first.scaled).mean.argmax(-1) == first.labels
    assert right.double().mean() >= case.accuracy
    print(
        f"\n{request.node.name}\n{'prior':>10} {'examples':<13} {'noise':>7}",
        *(f"{m:>11}" for m in METHODS),
    )
    failures = []
    for prior in case.priors[structure]:
        chosen = classifier if prior is None else classifier.with_prior(prior)
        for name, examples in case.judged.items():
            with torch.no_grad():
                distances, noise = judge(chosen.logits(examples.scaled))
            row = f"{float(chosen.posterior.prior_precision):>10.3g} {name:<13} {noise:7.4f}"
            row = " ".join([row, *(f"{distance:11.4f}" for distance in distances.values())])
            print(row)
            error = math.sqrt(
                max(distances["race"] ** 2 - noise**2, 0)
            )  # independent errors add in squares
            if not (error <= LARGEST_ERROR[structure] and noise <= LARGEST_NOISE):
                failures.append(f"{row}: error {error:.4f}")
            # as good as many samples, and better than every other closed form
            better = [other for other in METHODS if distances[other] < distances["race"]]
            if better:
                failures.append(f"{row}: {better} are closer than the race")
    assert not failures, "\n".join(failures)


@pytest.fixture(scope="module")
def resnet(data_folder):
    """A network with batch normalisation, 500 examples to fit and 50 to predict."""
    test = find("cifar-10", "test", data_folder)
    return pretrained("cifar-10-resnet20", data_folder), test[:500], test[500:550].scaled


def features_of(network, images):
    """The input of the last layer and the constant one, seen without the library."""
    seen = []
    handle = network.linear.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].double())
    )
    with torch.no_grad():
        network(images)
    handle.remove()
    return torch.cat([seen[0], torch.ones(len(images), 1, dtype=torch.float64)], -1)


@pytest.fixture(scope="module")
def resnet_features(resnet):
    network, examples, queries = resnet
    return features_of(network, examples.scaled), features_of(network, queries)


def head_of(network):
    return (
        torch.cat([network.linear.weight, network.linear.bias.unsqueeze(-1)], -1).detach().double()
    )


def textbook(structure, features, head, queries, prior_precision):
    """Covariances of the logits from the dense inverse of curvature plus prior, in
    float64.
    """
    probabilities = (features @ head.T).softmax(-1)
    hessians = torch.diag_embed(probabilities) - probabilities.unsqueeze(
        -1
    ) * probabilities.unsqueeze(-2)
    curvature = {
        "Diag": (
            lambda: (hessians.diagonal(dim1=-2, dim2=-1).T @ features.square()).flatten().diag()
        ),
        "Kron": lambda: torch.kron(hessians.sum(0), features.T @ features / len(features)),
        "Full": (
            lambda: torch.einsum("bkl,bd,be->kdle", hessians, features, features).reshape(
                head.numel(), -1
            )
        ),
    }[structure]()
    covariance = torch.linalg.inv(
        curvature + prior_precision * torch.eye(head.numel(), dtype=torch.float64)
    )
    return torch.einsum(
        "bd,kdle,be->bkl", queries, covariance.view(*head.shape, *head.shape), queries
    )


@pytest.mark.parametrize("structure", [*STRUCTURES, "Full"])
@pytest.mark.parametrize("prior_precision", [0.1, 10.0])
def test_the_gaussian_is_that_of_the_textbook(resnet, resnet_features, structure, prior_precision):
    network, examples, queries = resnet
    classifier = lb.fit(
        network,
        loader(examples),
        curvature=getattr(lb.laplace, structure),
        prior_precision=prior_precision,
        progress=False,
    )
    with torch.no_grad():
        gaussian = classifier.logits(queries)
    features, seen = resnet_features
    expected = textbook(structure, features, head_of(network), seen, prior_precision)
    torch.testing.assert_close(
        gaussian.mean.double(), seen @ head_of(network).T, rtol=ROUNDING, atol=ROUNDING
    )
    torch.testing.assert_close(
        gaussian.variance.double(), expected.diagonal(dim1=-2, dim2=-1), rtol=ROUNDING, atol=0
    )
    # what softmax sees of it, to the same accuracy, although the variance that it
    # cannot see is far larger
    centering = torch.eye(10, dtype=torch.float64) - 0.1
    visible = centering @ expected @ centering
    found = gaussian.centered().covariance.to_dense().double()
    scale = visible.diagonal(dim1=-2, dim2=-1).amax(-1)[:, None, None]
    assert ((found - visible).abs() / scale).max() <= ROUNDING


@pytest.mark.parametrize("structure", [*STRUCTURES, "Full"])
@pytest.mark.parametrize("num_examples", [5, 15, 50, 150, 250])
def test_a_network_that_is_sure_of_every_example_can_be_fitted(
    resnet, resnet_features, structure, num_examples
):
    network, examples, _ = resnet
    features, seen = resnet_features
    doubt = 1 - (features @ head_of(network).T).softmax(-1).amax(-1)
    surest = doubt.argsort()[:num_examples]
    assert (
        doubt[surest].max() < 1e-4
    )  # as of a network that was trained until it knew its training data
    batch = features[surest, :-1].float(), examples.labels[surest]
    kind = getattr(lb.laplace, structure)
    classifier = lb.fit(
        network.linear, [batch], curvature=kind, prior_precision=1.0, progress=False
    )
    expected = textbook(structure, features[surest], head_of(network), seen, 1.0).diagonal(
        dim1=-2, dim2=-1
    )
    with torch.no_grad():
        variance = classifier.logits(seen[:, :-1].float()).variance.double()
    torch.testing.assert_close(variance, expected, rtol=ROUNDING, atol=0)


def test_the_likelihood_is_that_of_the_labels(resnet):
    network, examples, _ = resnet
    classifier = lb.fit(network, loader(examples), prior_precision=1.0, progress=False)
    with torch.no_grad():
        logits = network(examples.scaled).double()
    loss = nn.functional.cross_entropy(logits, examples.labels, reduction="sum")
    assert classifier.log_likelihood == pytest.approx(-loss.item(), rel=1e-5)


def test_a_network_in_training_mode_is_fitted_in_evaluation_mode_and_not_changed(resnet):
    network, examples, queries = resnet
    expected = lb.fit(network, loader(examples), prior_precision=1.0, progress=False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network.train()
    network.layer1.eval()  # some users freeze parts
    try:
        modes = [module.training for module in network.modules()]
        found = lb.fit(network, loader(examples), prior_precision=1.0, progress=False)
        with torch.no_grad():
            gaussian = found.logits(queries)
        assert [module.training for module in network.modules()] == modes
    finally:
        network.eval()
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in network.modules()
    )
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(
            gaussian.variance, expected.logits(queries).variance, rtol=1e-6, atol=0
        )
