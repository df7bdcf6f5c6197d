"""Far away from all data nothing is known: means tend to 1/K and intervals to (0, 1),
and near the data nothing changes."""

import copy

import pytest
import torch
from torch import nn

import laplacebridge as lb

CLASSES, INPUTS = 3, 5
CURVATURES = [lb.laplace.Diag, lb.laplace.DiagKron, lb.laplace.Kron, lb.laplace.Full]


def data(number, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (number,), generator=generator)
    centers = 2 * torch.eye(CLASSES, INPUTS)
    return centers[labels] + torch.randn(number, INPUTS, generator=generator), labels


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(INPUTS, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
    model = nn.Sequential(*model, nn.Linear(32, CLASSES))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    inputs, labels = data(300, 0)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()
    return model.eval()


def fitted(model, **options):
    return lb.fit(model, [data(300, 0)], val_loader=[data(200, 1)], progress=False, **options)


def directions(number):
    drawn = torch.randn(number, INPUTS, generator=torch.Generator().manual_seed(2))
    return drawn / drawn.norm(dim=-1, keepdim=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("curvature", CURVATURES)
@torch.no_grad()
def test_far_away_nothing_is_known(network, curvature):
    classifier = fitted(network, curvature=curvature)
    for distance, largest in ((1e4, 0.2), (1e5, 0.06), (1e6, 0.02)):
        prediction = classifier(distance * directions(50))
        assert (prediction.mean - 1 / CLASSES).abs().max() < largest
        lower, upper = prediction.interval(0.95)
        assert lower.max() < 0.02
        assert upper.min() > 0.98
        assert torch.allclose(
            classifier.probabilities(distance * directions(50)), prediction.mean, atol=1e-6
        )


# as far as features and logits of these networks are finite
EDGES = {torch.float32: (1e9, 1e15, 1e20, 1e30, 1e37), torch.float64: (1e15, 1e30, 1e150, 1e305)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["ReLU network", "linear head", "linear head without bias"])
@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("dtype", list(EDGES))
@torch.no_grad()
def test_nothing_is_known_up_to_the_edge_of_the_type(network, kind, curvature, dtype):
    generator = torch.Generator().manual_seed(3)
    head = nn.Linear(INPUTS, CLASSES, bias="without" not in kind)
    head.weight.copy_(torch.randn(CLASSES, INPUTS, generator=generator))
    model = copy.deepcopy(network if kind == "ReLU network" else head).to(dtype)
    train, held_out = ([(x.to(dtype), y)] for x, y in (data(100, 0), data(40, 1)))
    classifier = lb.fit(model, train, val_loader=held_out, curvature=curvature, progress=False)
    for distance in EDGES[dtype]:
        far = distance * directions(50).to(dtype)
        prediction = classifier(far)
        assert (prediction.mean - 1 / CLASSES).abs().max() < 1e-3, distance
        lower, upper = prediction.interval(0.95)
        assert lower.max() < 1e-6, distance
        assert upper.min() > 1 - 1e-6, distance
        assert torch.allclose(classifier.probabilities(far), prediction.mean, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("distance", [1e6, 1e9, 1e12, 1e15])
def test_far_away_nothing_is_known_by_several_layers(network, distance):
    classifier = fitted(network, layers="*", curvature=lb.laplace.Kron)
    prediction = classifier(distance * directions(10))
    assert (prediction.mean - 1 / CLASSES).abs().max() < 0.02
    lower, upper = prediction.interval(0.95)
    assert lower.max() < 0.02
    assert upper.min() > 0.98


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_logits_that_leave_their_type_are_named(network):
    far = 3e38 * directions(3)
    with pytest.raises(lb.InputError, match="not finite of"):
        fitted(network)(far)


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_surer_and_surer_is_what_softmax_gets(network):
    classifier, far = fitted(network), 1e4 * directions(50)
    assert network(far).softmax(-1).amax(-1).mean() > 0.99
    assert classifier(far).mean.amax(-1).max() < 0.5


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_ordinary_inputs_are_answered_as_without_distances(network):
    inputs, _ = data(500, 3)
    near, without = fitted(network)(inputs), fitted(network, feature_statistics=False)(inputs)
    same = (near.mean - without.mean).abs().amax(-1) < 1e-6
    assert 0.95 < same.double().mean() < 1


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_few_held_out_labels_do_not_tell_what_is_far(network):
    inputs, labels = data(33, 1)
    classifier = lb.fit(network, [data(300, 0)], val_loader=[(inputs, labels)], progress=False)
    assert classifier(1e4 * directions(50)).mean.amax(-1).mean() > 0.6


@pytest.mark.filterwarnings("ignore")
@torch.no_grad()
def test_a_prior_and_a_temperature_chosen_together_are_left_alone(network):
    sure, far = copy.deepcopy(network), 1e4 * directions(50)
    sure[-1].weight.mul_(10)
    tuned = fitted(sure, tune_temperature=True)
    assert tuned.posterior.temperature != 1
    without = fitted(sure, tune_temperature=True, feature_statistics=False)
    assert torch.equal(tuned(far).mean, without(far).mean)
