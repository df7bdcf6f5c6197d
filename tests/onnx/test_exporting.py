"""One file with the network, its uncertainty and its decisions answers as the classifier
does.
"""

import json

import numpy as np
import onnx_cases
import pytest
import torch
from torch import nn

import laplacebridge as lb
from laplacebridge import selective, sets

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
pytest.importorskip("onnxscript", reason="needs the extra `onnx`")

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's exporter, about itself
NAMES = [f"kind {index}" for index in range(4)]


@pytest.fixture(scope="module")
def problem():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 4)
    )
    images = torch.randn(400, 1, 8, 8)
    labels = (images.mean((1, 2, 3)) * 16).long().clamp(-2, 1) + 2
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[:200]), labels[:200]).backward()
        optimiser.step()
    classifier = lb.fit(
        model,
        [(images[:200], labels[:200])],
        val_loader=[(images[200:300], labels[200:300])],
        bridge=lb.bridges.one_vs_rest_bridge,
        progress=False,
    )
    return classifier, images[300:], labels[300:]


def ready(problem, rule=None):
    classifier, images, labels = problem
    prediction = classifier(images)
    return classifier.with_rule(
        selective.calibrate(lb.scores.msp, prediction, answer_share=0.5),
        sets=sets.calibrate(rule or sets.LeastAmbiguous(), prediction, labels, coverage=0.9),
        max_set_size=3,
        unusual_above=0.9,
        class_names=NAMES,
        preprocessing="none",
    )


@pytest.fixture(scope="module")
def written(problem, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    full = ready(problem)
    names = lb.export(full, path, problem[1][:1])
    return full, path, names


def test_one_file_answers_and_decides_as_the_classifier_does(written):
    full, path, names = written
    session = onnx_cases.session_of(str(path))
    for rows in (1, 7, 64):
        images = torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(rows))
        answers, prediction = onnx_cases.run(session, images), full(images)
        assert list(answers) == names
        assert max(onnx_cases.differences(answers, prediction).values()) < 1
        members = full.policy.sets(prediction).to_lists()
        assert [np.flatnonzero(row).tolist() for row in answers["lb_set"]] == [
            sorted(classes) for classes in members
        ]
        assert answers["lb_decision"].tolist() == full.decide(images).action.tolist()
        model = full.network.model.eval()
        np.testing.assert_allclose(answers["logits"], model(images).detach(), atol=1e-4)


def test_images_that_are_not_finite_are_deferred(written):
    _, path, _ = written
    images = torch.randn(4, 1, 8, 8)
    images[1, 0, 0, 0], images[2, 0, 3, 3] = float("nan"), float("-inf")
    answers = onnx_cases.run(onnx_cases.session_of(str(path)), images)
    assert np.isnan(answers["lb_probabilities"][1:3]).all()
    assert np.isfinite(answers["lb_probabilities"][[0, 3]]).all()
    assert answers["lb_decision"][1:3].tolist() == [2, 2]
    assert answers["lb_set"][1:3].all()


def test_the_file_is_sound_and_says_what_it_is(written):
    full, path, _ = written
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} <= {""}
    assert max(entry.version for entry in model.opset_import if not entry.domain) >= 17
    held = {entry.key: entry.value for entry in model.metadata_props}
    policy = json.loads(held["laplacebridge.policy"])
    assert policy["class_names"] == NAMES
    assert policy["sets"]["threshold"] == full.policy.sets.threshold
    assert policy["rule"]["score"] == "msp"
    assert json.loads(held["laplacebridge.versions"])["laplacebridge"] == lb.__version__
    assert len(json.loads(held["laplacebridge.promises"])) == 3
    assert held["laplacebridge.fingerprint"] == full.network.metadata()["fingerprint"]


def test_from_a_thousand_classes_on_the_interval_is_that_of_the_most_probable(tmp_path):
    for classes, bounds in (
        (10, ["lb_lower", "lb_upper"]),
        (1000, ["lb_top_lower", "lb_top_upper"]),
    ):
        classifier = onnx_cases.classifier_of("kron", "one-vs-rest", classes)
        inputs = torch.randn(2, onnx_cases.NUM_FEATURES)
        names = lb.export(classifier, tmp_path / "model.onnx", inputs)
        assert names == [
            "logits",
            "lb_probabilities",
            *bounds,
            *(f"lb_{part}" for part in ("total", "epistemic", "aleatoric")),
        ]


def test_the_file_grows_by_the_arrays_of_the_posterior(written):
    full, path, _ = written
    own = sum(tensor.numel() * 4 for tensor in full.network.model.state_dict().values())
    added = [*full.posterior.state_dict().values(), *full.unusual.state_dict().values()]
    assert path.stat().st_size < own + sum(4 * tensor.numel() for tensor in added) + 200_000


def test_half_precision_is_smaller_and_close(problem, tmp_path):
    full = ready(problem)
    sizes = {}
    for half in (False, True):
        lb.export(full, tmp_path / f"{half}.onnx", problem[1][:2], float16=half)
        sizes[half] = (tmp_path / f"{half}.onnx").stat().st_size
    arrays = full.posterior.feature_basis.numel() * 2
    assert sizes[False] - sizes[True] > arrays
    images = torch.randn(64, 1, 8, 8)
    answers = onnx_cases.run(onnx_cases.session_of(str(tmp_path / "True.onnx")), images)
    with torch.no_grad():
        prediction = full(images)
    np.testing.assert_allclose(answers["lb_probabilities"], prediction.mean, atol=1e-3)
    for name, bound in zip(("lb_lower", "lb_upper"), prediction.interval()):
        np.testing.assert_allclose(answers[name], bound, atol=2e-3)


@pytest.mark.parametrize(
    "rule", [sets.Mass(), sets.TopK(), sets.RAPS(0.05, 1, None), sets.APS(None)]
)
def test_every_set_without_chance_can_be_written(problem, rule):
    classifier = problem[0]
    full = ready(problem, rule)
    model = onnx_cases.head_graph(classifier.network.head)
    from laplacebridge.onnx import Wanted, append_answers

    append_answers(model, full, features="x", logits="logits", wanted=Wanted(["set"]))
    # others than those of the calibration, one of which lies on the threshold itself
    features = classifier.features(torch.randn(64, 1, 8, 8))
    found = onnx_cases.run(onnx_cases.session_of(model), features.detach())["lb_set"]
    prediction, calibrated = classifier.predict_features(features), full.policy.sets
    expected = np.zeros_like(found)
    for row, classes in enumerate(calibrated(prediction).to_lists()):
        expected[row, classes] = True
    labels = (torch.full((64,), index) for index in range(4))
    entries = torch.stack([rule.entry(prediction, label) for label in labels], -1).detach()
    apart = ((entries - calibrated.threshold).abs() > 1e-5).numpy()
    assert apart.mean() > 0.5
    np.testing.assert_array_equal(found[apart], expected[apart])


@pytest.mark.parametrize("rule", [sets.Overlap(), sets.APS()])
def test_sets_that_no_graph_can_hold_are_refused(problem, rule, tmp_path):
    with pytest.raises(lb.InputError, match="LeastAmbiguous"):
        lb.export(ready(problem, rule), tmp_path / "model.onnx", problem[1][:2])


def test_another_suffix_is_refused(problem, tmp_path):
    with pytest.raises(lb.InputError, match=r"end in \.onnx or \.pt2"):
        lb.export(problem[0], tmp_path / "model.bin", problem[1][:2])


class Named(nn.Module):
    """Takes its inputs by name, tokens among them."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30, 6)
        self.head = nn.Linear(8, 3)

    def forward(self, *, tokens, numbers):
        return self.head(torch.cat([self.words(tokens).mean(1), numbers], -1))


def test_inputs_by_name(tmp_path):
    torch.manual_seed(0)
    model = Named().eval()
    inputs = {"tokens": torch.randint(30, (40, 5)), "numbers": torch.randn(40, 2)}
    batch = {**inputs, "labels": torch.arange(40) % 3}
    classifier = lb.fit(model, [batch], prior_precision=1.0, progress=False)
    path = tmp_path / "model.onnx"
    lb.export(classifier, path, {name: value[:1] for name, value in batch.items()})
    session = onnx_cases.session_of(str(path))
    assert [each.name for each in session.get_inputs()] == ["tokens", "numbers"]
    names = [output.name for output in session.get_outputs()]
    answers = dict(zip(names, session.run(None, {k: v.numpy() for k, v in inputs.items()})))
    assert max(onnx_cases.differences(answers, classifier(inputs)).values()) < 1
    inputs["numbers"][3, 0] = torch.nan
    broken = session.run(["lb_probabilities"], {k: v.numpy() for k, v in inputs.items()})[0]
    assert np.isnan(broken).any(-1).nonzero()[0].tolist() == [3]


def test_an_example_that_is_no_tensor_is_refused(problem, tmp_path):
    with pytest.raises(lb.InputError, match=r"needs tensors.*got str"):
        lb.export(problem[0], tmp_path / "model.onnx", "an image")


def test_writing_leaves_the_network_in_its_mode_and_is_silent(problem, tmp_path, capfd):
    model = problem[0].network.model
    model.train()
    lb.export(problem[0], tmp_path / "model.onnx", problem[1][:1], outputs=["label"])
    assert all(module.training for module in model.modules())
    model.eval()
    assert capfd.readouterr() == ("", "")


def test_comparison_with_held_out_data_that_were_not_given_is_refused(tmp_path):
    network, inputs = nn.Linear(7, 3), torch.randn(60, 7)
    classifier = lb.fit(
        network, [(inputs, torch.arange(60) % 3)], prior_precision=1.0, progress=False
    )
    rule = selective.calibrate(lb.scores.msp, classifier(inputs), answer_share=0.5)
    deferring = classifier.with_rule(rule, unusual_above=0.9)
    for each, outputs in ((classifier, ["ood_quantile"]), (deferring, None)):
        with pytest.raises(lb.InputError, match="this classifier has seen none"):
            lb.export(each, tmp_path / "model.onnx", inputs[:2], outputs=outputs)


class Renamed(nn.Module):
    """Takes an input under a name that is given."""

    def __init__(self, name):
        super().__init__()
        self.name, self.head = name, nn.Linear(7, 3)

    def forward(self, **inputs):
        return self.head(inputs[self.name])


@pytest.mark.parametrize("name", ["logits", "lb_features"])
def test_inputs_with_names_of_outputs_are_refused(name, tmp_path):
    batch = {name: torch.randn(30, 7), "labels": torch.arange(30) % 3}
    classifier = lb.fit(Renamed(name), [batch], prior_precision=1.0, progress=False)
    with pytest.raises(lb.InputError, match=f"takes an input '{name}'.*another name in `forward`"):
        lb.export(classifier, tmp_path / "model.onnx", {name: batch[name][:2]})


def test_bfloat16_is_refused_with_what_to_do(tmp_path):
    network, inputs = nn.Linear(7, 3).bfloat16(), torch.randn(30, 7).bfloat16()
    classifier = lb.fit(
        network, [(inputs, torch.arange(30) % 3)], prior_precision=1.0, progress=False
    )
    with pytest.raises(lb.InputError, match=r"bfloat16.*`lb\.fit\(network\.float\(\), \.\.\.\)`"):
        lb.export(classifier, tmp_path / "model.onnx", inputs[:2])


@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_a_level_that_is_none_is_refused(suffix, problem, tmp_path):
    with pytest.raises(lb.InputError, match=r"needs a level between 0 and 1; got 1\.0"):
        lb.export(problem[0], tmp_path / f"model.{suffix}", problem[1][:2], level=1.0)
