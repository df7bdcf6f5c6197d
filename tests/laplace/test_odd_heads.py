"""Heads that are no plain last layer: scaled logits, sums of linear maps, classes of
one's own, one token of many, outputs under odd names.
"""

import pytest
import torch
from cases import seeded
from torch import nn
from torch.nn.functional import linear

import laplacebridge as lb

NUM_FEATURES, NUM_CLASSES = 6, 3
STRONG = 1e8  # a prior that leaves the network's own probabilities


def inputs(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed))


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Linear(4, NUM_FEATURES)
            self.head = nn.Linear(NUM_FEATURES, NUM_CLASSES)
            self.weight = nn.Parameter(torch.randn(NUM_CLASSES, NUM_FEATURES))

    def features(self, x):
        return self.body(x).relu()


class Multiplied(Body):
    def forward(self, x):
        return self.head(self.features(x)) * 7.5


class Divided(Body):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.5))

    def forward(self, x):
        return self.head(self.features(x)) / self.temperature


class ScaledByTheInput(Body):
    def forward(self, x):
        return self.head(self.features(x)) * self.features(x).norm(dim=-1, keepdim=True)


class Capped(Body):
    def forward(self, x):
        return 3 * torch.tanh(2 * self.head(self.features(x)))


class Adapter(nn.Module):
    """A linear layer and a low-rank one beside it, as LoRA has them."""

    def __init__(self, base):
        super().__init__()
        self.base, self.dropout = base, nn.Dropout(0.5)
        self.down = nn.Linear(NUM_FEATURES, 2, bias=False)
        self.up = nn.Linear(2, NUM_CLASSES, bias=False)

    def forward(self, x):
        return self.base(x) + 0.5 * self.up(self.down(self.dropout(x)))


class WithAdapter(Body):
    def __init__(self):
        super().__init__()
        self.head = Adapter(self.head)

    def forward(self, x):
        return self.head(self.features(x))


class OwnLayer(nn.Module):
    """A linear layer that is no `nn.Linear`."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        return linear(x, self.weight)


class WithOwnLayer(Body):
    def __init__(self):
        super().__init__()
        self.last = OwnLayer(self.weight.detach().clone())

    def forward(self, x):
        return self.last(self.features(x))


class ScaledInside(nn.Linear):
    """Its weights do not say what it does."""

    def forward(self, x):
        return 3 * super().forward(x)


def test_a_layer_that_gives_other_logits_than_its_weights_is_refused():
    last = ScaledInside(NUM_FEATURES, NUM_CLASSES)
    model = nn.Sequential(nn.Linear(4, NUM_FEATURES), nn.ReLU(), last)
    with pytest.raises(lb.HeadNotFoundError, match="is not what the last linear layer"):
        lb.fit(model, [inputs(9, 4)], prior_precision=1.0, progress=False)


class LastToken(Body):
    """Classifies a text by the token before the padding, which is all zeros."""

    def forward(self, x):
        logits = self.head(self.features(x))
        last = (x != 0).any(-1).sum(-1) - 1
        return logits[torch.arange(len(x)), last]


class InForward(Body):
    def forward(self, x):
        return linear(self.features(x), self.weight)


class ByProduct(Body):
    def forward(self, x):
        return self.features(x) @ self.weight.T


class UnderAName(Body):
    def forward(self, x):
        return {"prediction": self.head(self.features(x)), "hidden": x}


LINEAR = pytest.mark.parametrize("kind", [Multiplied, Divided, WithAdapter, WithOwnLayer])


@LINEAR
def test_what_is_a_linear_map_is_understood(kind, tmp_path):
    model, x = kind().train(), inputs(40, 4)
    classifier = lb.fit(model, [x], prior_precision=STRONG, progress=False)
    with torch.no_grad():
        expected = model.eval()(x)
        features = classifier.features(x)
        logits = linear(features, classifier.network.weight(), classifier.network.bias())
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(classifier(x).mean, expected.softmax(-1), rtol=0, atol=1e-5)
    # the same posterior as that of the plain linear layer on the same features
    plain = nn.Linear(NUM_FEATURES, NUM_CLASSES)
    bias = classifier.network.bias()
    plain.weight = nn.Parameter(classifier.network.weight())
    plain.bias = None if bias is None else nn.Parameter(bias)
    wide = lb.fit(model, [x], prior_precision=0.1, progress=False)
    reference = lb.fit(plain, [features], prior_precision=0.1, progress=False)
    torch.testing.assert_close(
        wide.logits(x).variance, reference.logits(features).variance, rtol=1e-4, atol=1e-5
    )
    lb.save(wide, tmp_path / "classifier.safetensors")
    for loaded in (
        lb.load(tmp_path / "classifier.safetensors", model)(x),
        lb.load(tmp_path / "classifier.safetensors")(features),
    ):
        torch.testing.assert_close(loaded.mean, wide(x).mean, rtol=1e-5, atol=1e-6)


def test_a_scale_that_changes_later_is_refused():
    model = Divided()
    classifier = lb.fit(model, [inputs(9, 4)], prior_precision=1.0, progress=False)
    model.temperature.data.fill_(5.0)
    with pytest.raises(lb.HeadNotFoundError, match="by something else now"):
        classifier(inputs(9, 4))


@pytest.mark.parametrize("kind", [ScaledByTheInput, Capped])
def test_what_is_no_linear_map_is_refused(kind):
    with pytest.raises(lb.HeadNotFoundError, match="something follows it"):
        lb.fit(kind(), [inputs(9, 4)], prior_precision=1.0, progress=False)


def test_one_row_cannot_show_a_scale():
    with pytest.raises(lb.HeadNotFoundError, match="something follows it"):
        lb.fit(ScaledByTheInput(), [inputs(1, 4)], prior_precision=1.0, progress=False)


@pytest.mark.parametrize("kind", [InForward, ByProduct])
def test_logits_computed_in_forward_are_refused_with_the_parameter(kind):
    with pytest.raises(lb.HeadNotFoundError, match=r"computes its logits itself.*'weight'"):
        lb.fit(kind(), [inputs(9, 4)], prior_precision=1.0, progress=False)


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, NUM_FEATURES)
        self.weight = nn.Parameter(torch.randn(NUM_CLASSES, NUM_FEATURES))

    def forward(self, x):
        features = nn.functional.normalize(self.body(x).relu(), dim=-1)
        return 16 * nn.functional.linear(features, nn.functional.normalize(self.weight, dim=-1))


def test_a_weight_made_in_forward_is_refused_with_a_true_sentence():
    with pytest.raises(lb.HeadNotFoundError, match=r"`F.linear` with a weight that it makes"):
        lb.fit(Cosine(), [inputs(9, 4)], prior_precision=1.0, progress=False)


class Several(nn.Module):
    def __init__(self, join):
        super().__init__()
        self.first, self.second = nn.Linear(4, NUM_CLASSES), nn.Linear(4, NUM_CLASSES)
        self.join = join

    def forward(self, x):
        return self.join(self.first(x.tanh()), self.second(x.relu()))


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (torch.add, r"is added to it.*one layer of their features joined by `torch.cat`"),
        (lambda *parts: torch.cat(parts, -1), "one layer with their weights joined"),
    ],
    ids=["added", "side by side"],
)
def test_logits_of_several_layers_are_refused_with_what_to_do(join, words):
    with pytest.raises(lb.HeadNotFoundError, match=words):
        lb.fit(Several(join), [inputs(9, 4)], prior_precision=1.0, progress=False)


def test_a_text_classified_by_one_token_has_the_features_of_that_token():
    model, x = LastToken(), inputs(5, 7, 4)
    lengths = torch.tensor([7, 3, 1, 5, 2])
    x = x.masked_fill(torch.arange(7).view(1, 7, 1) >= lengths.view(5, 1, 1), 0.0)
    classifier = lb.fit(
        model, [(x, torch.tensor([0, 1, 2, 0, 1]))], prior_precision=STRONG, progress=False
    )
    assert float(classifier.posterior.class_values.sum()) > 0
    with torch.no_grad():
        expected = model.features(x)[torch.arange(5), lengths - 1]
        torch.testing.assert_close(classifier.features(x), expected)
        torch.testing.assert_close(classifier(x).mean, model(x).softmax(-1), rtol=0, atol=1e-5)


class MeanOfTokens(Body):
    def forward(self, x):
        return self.head(self.features(x)).mean(1)


def test_the_mean_over_tokens_is_that_of_no_token():
    with pytest.raises(lb.HeadNotFoundError, match="that of no token"):
        lb.fit(MeanOfTokens(), [inputs(5, 7, 4)], prior_precision=1.0, progress=False)


def prediction_of(output):
    return output["prediction"]


@pytest.mark.parametrize("output", ["prediction", prediction_of])
def test_logits_under_another_name_are_taken_from_there(output, tmp_path):
    model, x = UnderAName(), inputs(9, 4)
    classifier = lb.fit(model, [x], prior_precision=1.0, output=output, progress=False)
    lb.save(classifier, tmp_path / "classifier.safetensors")
    again = {} if isinstance(output, str) else {"output": output}
    loaded = lb.load(tmp_path / "classifier.safetensors", model, **again)
    assert torch.equal(loaded(x).mean, classifier(x).mean)
    assert torch.equal(classifier.features(x), model.features(x))


def test_an_output_without_logits_is_refused_with_what_is_in_it():
    with pytest.raises(lb.HeadNotFoundError, match=r"'prediction', 'hidden'.*output='key'"):
        lb.fit(UnderAName(), [inputs(9, 4)], prior_precision=1.0, progress=False)
    with pytest.raises(lb.HeadNotFoundError, match=r"output='logit'.*'prediction', 'hidden'"):
        lb.fit(UnderAName(), [inputs(9, 4)], prior_precision=1.0, output="logit", progress=False)
    with pytest.raises(lb.InputError, match="head alone"):
        lb.fit(
            UnderAName(),
            [inputs(9, 4)],
            prior_precision=1.0,
            output="prediction",
            layers="head",
            progress=False,
        )


class Tagger(Body):
    def forward(self, x):
        return self.head(self.features(x))


def test_tokens_of_texts_stay_tokens_of_texts():
    model, x = Tagger(), inputs(5, 7, 4)
    labels = torch.arange(35).view(5, 7) % NUM_CLASSES
    classifier = lb.fit(model, [(x, labels)], val_loader=[(x, labels)], progress=False)
    with torch.no_grad():
        prediction, alone = classifier(x), classifier(x[3:4])
        assert prediction.mean.shape == model(x).shape == (5, 7, NUM_CLASSES)
        torch.testing.assert_close(classifier.probabilities(x), prediction.mean)
    rows = prediction.as_rows()
    assert len(prediction) == len(rows) == 35
    assert rows.mean.shape == (35, NUM_CLASSES)
    for name in ("label", "total", "aleatoric", "epistemic", "ood_score", "ood_quantile"):
        whole = getattr(prediction, name)
        assert whole.shape == (5, 7), name
        assert torch.equal(whole.flatten(), getattr(rows, name)), name
    for whole, part in zip(prediction.interval(), rows.interval()):
        assert torch.equal(whole, part.view(5, 7, NUM_CLASSES))
    torch.testing.assert_close(prediction.mean[3], alone.mean[0])
    assert torch.equal(prediction.probability_above(0.5).flatten(0, 1), rows.probability_above(0.5))
    assert prediction.to(torch.float64).mean.shape == (5, 7, NUM_CLASSES)
    assert prediction.numpy()["lower"].shape == (5, 7, NUM_CLASSES)
    # what takes rows takes them as rows
    assert lb.metrics.nll(prediction, labels.flatten()) == lb.metrics.nll(rows, labels.flatten())
    assert lb.scores.msp(prediction).shape == (35,)
    assert prediction[labels.flatten() == 0].mean.shape == (12, NUM_CLASSES)
    assert repr(prediction) == repr(rows)
    assert len(prediction.to_pandas()) == 35
