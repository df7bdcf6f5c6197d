"""The front door for several layers: which are covered, what is refused and why, and
what stays as it was.
"""

import copy
import re

import network_cases as cases
import pytest
import torch
from cases import seeded
from torch import nn
from torch.nn import functional

import laplacebridge as lb
from laplacebridge.laplace import Diag, DiagKron, Full, Kron, NetworkPosterior
from laplacebridge.laplace.examples import examples_of
from laplacebridge.laplace.layers.fitting import require_room
from laplacebridge.laplace.layers.selection import matching_layers

EVERY_KIND = pytest.mark.parametrize("kind", [Diag, Kron, Full])


def batches(name, num=12, size=5):
    examples, labels = cases.inputs(name, num), cases.labels(num)
    return list(zip(examples.split(size), labels.split(size)))


def fit(model, given, **options):
    return lb.fit(
        model, given, progress=False, **{"layers": "*", "prior_precision": 1.0, **options}
    )


def seed_and(build):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


# which layers


def test_patterns_choose_layers_in_the_order_of_the_network():
    with_norm = nn.Sequential(nn.Conv1d(1, 2, 2), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(4, 2))
    model = nn.ModuleDict({"features": with_norm, "head": nn.Linear(2, 2)})
    assert matching_layers(model, "*") == ("features.0", "features.3", "head")
    assert matching_layers(model, "features.*") == ("features.0", "features.3")
    assert matching_layers(model, ["head", "*.0"]) == ("features.0", "head")
    assert matching_layers(nn.Linear(2, 2), "*") == ("",)


def test_without_layers_the_head_alone_is_fitted_as_ever():
    model = cases.network("cnn")
    plain = lb.fit(model, batches("cnn"), prior_precision=1.0, progress=False)
    assert isinstance(plain.posterior, lb.laplace.KronPosterior)
    assert isinstance(fit(model, batches("cnn")).posterior, NetworkPosterior)


@EVERY_KIND
def test_one_line_to_fit_one_to_predict(kind):
    classifier = fit(cases.network("cnn"), batches("cnn"), curvature=kind)
    queries = cases.inputs("cnn", 30, seed=1)
    prediction = classifier(queries)
    assert isinstance(prediction, lb.Prediction)
    sampled = lb.links.monte_carlo(
        classifier.logits(queries), num_samples=4000, generator=seeded(0)
    )
    assert 0.5 * (prediction.mean - sampled).abs().sum(-1).mean() < 0.02


def test_the_representation_says_what_it_is():
    text = repr(fit(cases.network("mlp"), batches("mlp"), prior_precision=2.0))
    for word in (
        "Sequential",
        "3 layers '0', '2', '4'",
        "(39 weights)",
        "K = 3",
        "prior precision 2",
        "race_bridge",
    ):
        assert word in text
    many = fit(
        nn.Sequential(*(nn.Linear(2, 2) for _ in range(5))),
        [torch.randn(3, 2, generator=seeded(0))],
    )
    assert "5 layers '0', …, '4' (30 weights)" in repr(many)


def test_it_says_what_it_does_unless_asked_not_to(capsys):
    lb.fit(cases.network("mlp"), batches("mlp"), layers="*", prior_precision=1.0)
    assert re.search(
        r"3 layers with 39 weights, Kron curvature, \d\.\d kB", capsys.readouterr().err
    )
    fit(cases.network("mlp"), batches("mlp"))
    assert "".join(capsys.readouterr()) == ""


def test_batch_normalisation_is_left_as_it_was_trained():
    classifier = fit(cases.network("tokens"), batches("tokens"))
    assert classifier.network.layer_names == ("embed", "mix", "head")
    assert classifier.network.num_parameters == 2 * 4 + 4 + 4 * 4 + 4 * 3 + 3


# what stays as it was


def test_the_model_is_not_changed():
    model = cases.network("tokens").train()
    model.embed.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    classifier = fit(model, batches("tokens"))
    classifier.with_prior(3.0)(cases.inputs("tokens", 5))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert all(module.training and not module._forward_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.embed.weight.requires_grad


@pytest.mark.parametrize("name", ["mlp", "cnn", "tokens"])
def test_frozen_weights_make_no_difference(name):
    model, frozen = cases.network(name), cases.network(name).requires_grad_(False)
    queries = cases.inputs(name, 4, seed=1)
    expected = fit(model, batches(name)).logits(queries).covariance.to_dense()
    torch.testing.assert_close(
        fit(frozen, batches(name)).logits(queries).covariance.to_dense(), expected
    )


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_predictions_are_the_same_with_gradients_switched_off(mode):
    model = cases.network("cnn")
    classifier = fit(model, batches("cnn"))
    expected = classifier.logits(cases.inputs("cnn", 4, seed=1))
    with mode():
        gaussian = classifier.logits(cases.inputs("cnn", 4, seed=1))
        fitted = fit(model, batches("cnn")).logits(cases.inputs("cnn", 4, seed=1))
        for found in (gaussian, fitted):
            torch.testing.assert_close(found.mean, expected.mean)
            torch.testing.assert_close(found.covariance.to_dense(), expected.covariance.to_dense())
    assert not expected.requires_grad


def test_an_interrupted_fit_goes_on_where_it_stopped():
    model, given = cases.network("cnn"), batches("cnn", 20)

    def interrupted():
        yield from given[:3]
        raise KeyboardInterrupt

    with pytest.raises(lb.FitInterrupted) as stop:
        fit(model, interrupted())
    assert stop.value.curvature.num_examples == 15
    whole = fit(model, given)
    queries = cases.inputs("cnn", 4, seed=1)
    for earlier in (stop.value, stop.value.curvature):
        continued = fit(model, given[3:], resume=earlier)
        torch.testing.assert_close(
            continued.logits(queries).variance, whole.logits(queries).variance
        )
    assert fit(model, given[3:], resume=stop.value).evidence() == pytest.approx(
        whole.evidence(), rel=1e-10
    )
    with pytest.raises(lb.errors.ShapeError, match="same layers"):
        fit(model, given[3:], resume=stop.value, layers="0")
    with pytest.raises(lb.errors.ShapeError, match="of its kind"):
        lb.fit(model, given[3:], resume=stop.value, progress=False)


def test_ignored_labels_are_left_out():
    examples, labels = cases.inputs("mlp", 12), cases.labels(12)
    masked = labels.clone()
    masked[7:] = -100
    classifier = fit(cases.network("mlp"), [(examples, masked), (examples[7:], masked[7:])])
    expected = fit(cases.network("mlp"), [(examples[:7], labels[:7])])
    torch.testing.assert_close(
        classifier.logits(examples).variance, expected.logits(examples).variance
    )
    assert classifier.evidence() == pytest.approx(expected.evidence())


class Keywords(nn.Module):
    """Takes what a mapping holds, and calls its layer by keyword."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, *, pixels, scale, mask):
        return {"logits": self.head(input=pixels * mask * scale)}


def test_mappings_with_several_inputs_are_cut_into_chunks_together(monkeypatch):
    model = seed_and(Keywords).double()
    pixels, mask = cases.inputs("mlp", 9), (torch.arange(9).double() % 2).unsqueeze(-1)
    given = {"pixels": pixels, "mask": mask, "scale": torch.tensor(2.0)}
    classifier = fit(model, [{**given, "labels": cases.labels(9)}])
    plain = lb.fit(
        model.head,
        [(pixels * mask * 2, cases.labels(9))],
        layers="*",
        prior_precision=1.0,
        progress=False,
    )
    expected = plain.logits(pixels * mask * 2)
    monkeypatch.setattr("laplacebridge._blocks.BYTES_AT_ONCE", 1)
    torch.testing.assert_close(
        classifier.logits(**given).covariance.to_dense(), expected.covariance.to_dense()
    )


def test_half_precision_networks_predict_in_float32():
    model = cases.network("cnn").bfloat16()
    examples = cases.inputs("cnn", 8).bfloat16()
    gaussian = fit(model, [(examples, cases.labels(8))]).logits(examples)
    exact = fit(cases.network("cnn"), [(cases.inputs("cnn", 8), cases.labels(8))]).logits(
        cases.inputs("cnn", 8)
    )
    assert gaussian.dtype == torch.float32
    ratio = gaussian.variance.double() / exact.variance
    assert ((ratio > 0.7) & (ratio < 1.4)).all()


# what is refused


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(2, 2), nn.Linear(2, 3)

    def forward(self, inputs):
        return self.head(self.layer(self.layer(inputs)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 3)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.head(self.second(self.first(inputs)))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(2, 2), nn.Linear(2, 3)

    def forward(self, inputs):
        return self.head(functional.linear(inputs, self.layer.weight))


class WithoutGradient(nn.Module):
    def __init__(self, *, whole):
        super().__init__()
        self.whole = whole
        self.layer, self.head = nn.Linear(2, 2), nn.Linear(2, 3)

    def forward(self, inputs):
        with torch.no_grad():
            features = self.layer(inputs)
            if self.whole:
                return self.head(features)
        return self.head(features)


class RawParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift, self.head = nn.Parameter(torch.zeros(2)), nn.Linear(2, 3)

    def forward(self, inputs):
        return self.head(inputs + self.shift)


class Doubled(nn.Linear):
    def forward(self, inputs):
        return 2 * super().forward(inputs)


class TokensFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(2, 2), nn.Linear(2, 3)

    def forward(self, inputs):
        tokens = inputs.unsqueeze(0).expand(4, -1, -1)  # (T, B, D)
        return self.head(self.layer(tokens).mean(0))


class Centred(nn.Module):
    def forward(self, inputs):
        return inputs - inputs.mean(0)


def parts(*layers):
    return lambda: nn.Sequential(*(build() for build in layers))


REFUSED = {
    "embedding": (
        parts(lambda: nn.Embedding(3, 2), lambda: nn.Linear(2, 3)),
        r"'0' \(Embedding with weight\).*Narrow `layers`.*are '1'",
    ),
    "layer norm": (
        parts(lambda: nn.Linear(2, 2), lambda: nn.LayerNorm(2), lambda: nn.Linear(2, 3)),
        r"'1' \(LayerNorm with weight, bias\).*are '0', '2'",
    ),
    "recurrent": (
        parts(lambda: nn.GRU(2, 2), lambda: nn.Linear(2, 3)),
        r"'0' \(GRU with weight_ih_l0, .*Narrow",
    ),
    "attention": (
        parts(lambda: nn.MultiheadAttention(2, 1), lambda: nn.Linear(2, 3)),
        r"'0' \(MultiheadAttention with in_proj_weight, in_proj_bias\).*Narrow",
    ),
    "raw parameter": (RawParameter, r"'' \(RawParameter with shift\).*Narrow `layers`.*are 'head'"),
    "used twice": (Shared, r"ran more than once in a forward pass: 'layer'.*narrow"),
    "tied": (Tied, r"'first.weight', 'second.weight' are one and the same.*narrow"),
    "used as a function": (Functional, r"did not run.*: 'layer'.*narrow"),
    "under no_grad": (
        lambda: WithoutGradient(whole=False),
        r"do not depend on the layer 'layer'.*no_grad.*Narrow",
    ),
    "all under no_grad": (
        lambda: WithoutGradient(whole=True),
        r"do not depend on any of the `layers`.*no_grad",
    ),
    "forward of its own": (
        parts(lambda: Doubled(2, 3)),
        r"'0' \(Doubled\) does not give its weights times its input",
    ),
    "tokens first": (TokensFirst, r"another number of rows than the 1 examples: 'layer'"),
    "softmax": (
        parts(lambda: nn.Linear(2, 3), lambda: nn.Softmax(-1)),
        r"returns probabilities; logits are needed",
    ),
    "batch statistics": (
        parts(lambda: nn.Linear(2, 3), lambda: nn.BatchNorm1d(3, track_running_stats=False)),
        r"batch normalisation '1' keeps no running statistics.*leave out `layers`",
    ),
    "coupled examples": (
        parts(lambda: nn.Linear(2, 3), Centred),
        r"depends on the other examples of its batch.*leave out `layers`",
    ),
    "no layers": (
        parts(nn.ReLU),
        r"matches no linear layer or convolution of Sequential.*It has no linear layers",
    ),
    "only batch normalisation": (
        parts(lambda: nn.BatchNorm1d(2)),
        r"`layers='\*'` matches no linear layer",
    ),
}


OF_OTHER_KINDS = {"embedding", "layer norm", "recurrent", "attention", "raw parameter"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_covered_is_named_with_what_to_do(name):
    build, message = REFUSED[name]
    # "*" leaves out what it cannot cover; every other pattern means what it matches
    layers = "**" if name in OF_OTHER_KINDS else "*"
    given = [(torch.randn(6, 2, generator=seeded(0)), cases.labels(6))]
    with pytest.raises(ValueError, match=message):
        fit(seed_and(build), given, layers=layers)


@pytest.mark.parametrize(
    "name", ["layer norm", "raw parameter", "used twice", "tied", "used as a function"]
)
def test_narrowing_the_layers_helps_as_the_message_says(name):
    model = seed_and(REFUSED[name][0])
    layers = "2" if name == "layer norm" else "head"
    given = [(torch.randn(6, 2, generator=seeded(0)), cases.labels(6))]
    assert fit(model, given, layers=layers).network.layer_names == (layers,)


def test_a_pattern_that_matches_nothing_lists_the_layers():
    for layers in ("conv*", ["0", "conv*"], []):
        with pytest.raises(ValueError, match=r"matches no linear layer.*are '0', '2', '4'\."):
            fit(cases.network("mlp"), batches("mlp"), layers=layers)
    long = nn.Sequential(*(nn.Linear(2, 2) for _ in range(30)))
    with pytest.raises(ValueError, match=r"'19' and 10 more\."):
        fit(long, [torch.zeros(2, 2)], layers="x")


def test_other_structures_are_refused():
    with pytest.raises(ValueError, match=r"Diag, Kron, Full.*got `DiagKron`.*leave out `layers`"):
        fit(cases.network("mlp"), batches("mlp"), curvature=DiagKron)
    of_head = Kron.of_batch(torch.zeros(1, 3), torch.full((1, 3), 1 / 3))
    with pytest.raises(
        ValueError, match=r"earlier fit of the same layers; got sums of a head, `Kron`"
    ):
        fit(cases.network("mlp"), batches("mlp"), resume=of_head)


def test_a_full_matrix_is_for_tiny_networks_only():
    model = nn.Sequential(nn.Linear(70, 70), nn.Linear(70, 3))
    with pytest.raises(
        ValueError, match=r"every pair of 5183 weights; at most 5000.*`Kron` or `Diag`, or narrow"
    ):
        fit(model, [torch.zeros(2, 70)], curvature=Full)
    assert (
        fit(model, [torch.zeros(2, 70)], curvature=Full, layers="1").network.num_parameters == 213
    )


def test_factors_that_do_not_fit_into_memory_are_refused_before_they_are_made():
    with torch.device("meta"):
        model = nn.Linear(500_000, 2)
    network = lb.laplace.LinearisedNetwork(model, [""])
    with pytest.raises(
        ValueError, match=r"`Kron` needs 2000\.0 GB for 1000002 weights.*`Diag` needs 0\.0 GB"
    ):
        require_room(Kron, network)
    require_room(Diag, network)
    with pytest.raises(ValueError, match=r"one example takes 5000\.0 GB.*Narrow `layers`"):
        require_room(Diag, network, 5 * 10**12)


def test_head_and_layers_exclude_each_other():
    with pytest.raises(ValueError, match=r"`head` or `layers`, not both.*`layers='4'`"):
        fit(cases.network("mlp"), batches("mlp"), head="4")


def test_predictions_for_tokens_are_left_to_the_head():
    model = nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3))
    given = [(torch.randn(2, 5, 2, generator=seeded(0)), torch.zeros(2, 5).long())]
    with pytest.raises(
        lb.errors.ShapeError,
        match=r"one prediction for each example.*\(1, 5, 3\).*leave out `layers`",
    ):
        fit(model, given)
    lb.fit(model, given, prior_precision=1.0, progress=False)


def test_inputs_without_a_tensor_are_refused():
    with pytest.raises(lb.errors.ShapeError, match="needs a tensor among the inputs"):
        fit(cases.network("mlp"), ["text"])


def test_validation_examples_of_different_shapes_are_refused():
    model = nn.Sequential(nn.Conv1d(1, 3, 2), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    examples = [torch.randn(4, 1, size, generator=seeded(size)) for size in (5, 6)]
    given = [(part, cases.labels(4)) for part in examples]
    assert fit(model, given).log_likelihood < 0  # one after another they may differ
    with pytest.raises(lb.errors.ShapeError, match=r"must have one shape; got \(1, 5\), \(1, 6\)"):
        fit(model, given, prior_precision=None, val_loader=given)


def test_a_batch_with_nan_is_named_and_nothing_of_it_is_added():
    given = batches("mlp", 12, 3)
    given[2][0][1] = float("nan")
    with pytest.raises(
        ValueError, match=r"Batch 2 \(counted from 0\) gave logits that are not finite.*row 1"
    ):
        fit(cases.network("mlp"), given)


def test_examples_are_kept_as_the_posterior_takes_them():
    classifier = fit(cases.network("mlp"), batches("mlp"))
    examples = examples_of(classifier.network, batches("mlp"), purpose="A test")
    inputs = torch.cat([batch[0] for batch in batches("mlp")])
    torch.testing.assert_close(
        classifier.posterior(examples.features).mean, classifier.logits(inputs).mean
    )
    assert len(examples) == len(inputs)
