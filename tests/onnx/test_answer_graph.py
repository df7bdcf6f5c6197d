"""Answers in an ONNX graph agree with those of the classifier."""

import runpy
from pathlib import Path

import numpy as np
import onnx_cases
import pytest
import torch

import laplacebridge as lb
from laplacebridge.errors import InputError

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")

from laplacebridge.onnx import Wanted, append_answers  # noqa: E402
from laplacebridge.onnx.formulas.predictions import WRITABLE  # noqa: E402

PARTS = (
    "probabilities",
    "interval",
    "total",
    "epistemic",
    "aleatoric",
    "log_concentration",
    "ood_score",
)
# rows, and how large features are beside those of the fit: ordinary, surer than any, hardly
# anything known
BATCHES = ((1, 1.0), (7, 1.0), (64, 1.0), (64, 30.0), (64, 0.01))


def extended(classifier, outputs=PARTS, opset=17, **options):
    model = onnx_cases.head_graph(classifier.network.model, opset)
    append_answers(
        model,
        classifier,
        features="x",
        logits="logits",
        inputs=["x"],
        wanted=Wanted(outputs, **options),
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def inputs_of(rows, scale, features=onnx_cases.NUM_FEATURES):
    return scale * torch.randn(rows, features, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("held_out", [True, False])
@pytest.mark.parametrize("curvature", onnx_cases.CURVATURES)
@pytest.mark.parametrize("bridge", WRITABLE)
def test_answers_agree_with_the_classifier(curvature, bridge, held_out):
    classifier = onnx_cases.classifier_of(curvature, bridge, held_out=held_out)
    session = onnx_cases.session_of(extended(classifier))
    for rows, scale in BATCHES:
        inputs = inputs_of(rows, scale)
        found = onnx_cases.differences(onnx_cases.run(session, inputs), classifier(inputs))
        assert max(found.values()) < 1, (rows, scale, found)


@pytest.mark.parametrize("scale", [1e8, 1e10, 1e12])
@pytest.mark.parametrize("bridge", ["race", "one-vs-rest"])
def test_variances_that_leave_nothing_of_the_mean_beside_them_agree(bridge, scale):
    classifier = onnx_cases.classifier_of("kron", bridge, held_out=False)
    inputs = inputs_of(64, scale)
    session = onnx_cases.session_of(extended(classifier, ("probabilities", "interval")))
    found = onnx_cases.differences(onnx_cases.run(session, inputs), classifier(inputs))
    assert max(found.values()) < 1, found


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e12, 1e30])
def test_distances_along_some_directions_agree(scale):
    """More features than directions that the metric keeps."""
    classifier = onnx_cases.classifier_of("kron", "race", 3, features=64)
    assert classifier.unusual.distances.basis.shape == (64, 48)
    inputs = inputs_of(64, scale, 64)
    session = onnx_cases.session_of(extended(classifier, ("ood_score", "probabilities")))
    found = onnx_cases.differences(onnx_cases.run(session, inputs), classifier(inputs))
    assert max(found.values()) < 1, found


def test_classifiers_of_files_with_whitened_distances_agree():
    path = Path(__file__).parents[1] / "fixtures" / "checkpoints" / "version-3-kron.safetensors"
    script = Path(__file__).parents[2] / "scripts" / "make_checkpoint_fixtures.py"
    model = runpy.run_path(str(script))["network"]()
    classifier, features = lb.load(path, model), inputs_of(20, 2.0, 3)
    graph = onnx_cases.head_graph(model[-1])
    append_answers(
        graph,
        classifier,
        features="x",
        logits="logits",
        inputs=["x"],
        wanted=Wanted(("ood_score",)),
    )
    answers = onnx_cases.run(onnx_cases.session_of(graph), features)
    found = onnx_cases.differences(answers, classifier.predict_features(features))
    assert found["ood_score"] < 1


@pytest.mark.parametrize("num_classes", [10, 1000])
def test_the_interval_of_the_most_probable_class_is_that_of_all(num_classes):
    classifier = onnx_cases.classifier_of("kron", "race", num_classes)
    model = extended(classifier, ("interval", "top_interval", "label"))
    answers = onnx_cases.run(onnx_cases.session_of(model), inputs_of(7, 1.0))
    top = np.arange(7), answers["lb_label"]
    for end in ("lower", "upper"):
        np.testing.assert_allclose(answers[f"lb_top_{end}"], answers[f"lb_{end}"][top], atol=1e-6)


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 18, 21])
def test_every_opset_answers_the_same(opset):
    classifier = onnx_cases.classifier_of("kron", "race")
    inputs = inputs_of(7, 1.0)
    answers = onnx_cases.run(onnx_cases.session_of(extended(classifier, opset=opset)), inputs)
    assert max(onnx_cases.differences(answers, classifier(inputs)).values()) < 1


def test_rows_that_are_not_finite_answer_nan_and_leave_others_alone():
    classifier = onnx_cases.classifier_of("kron", "one-vs-rest")
    inputs = inputs_of(7, 1.0)
    session = onnx_cases.session_of(extended(classifier))
    whole = onnx_cases.run(session, inputs)
    inputs[1, 0], inputs[3, 2] = float("nan"), float("inf")
    answers = onnx_cases.run(session, inputs)
    kept = [0, 2, 4, 5, 6]
    for name, answer in answers.items():
        if name.startswith("lb_"):
            assert np.isnan(answer[[1, 3]]).all(), name
            np.testing.assert_array_equal(answer[kept], whole[name][kept])


def test_zero_rows_fail_aloud_because_the_runtime_does_not_reduce_them():
    # ONNX Runtime reduces shape (0, D) to (0, D) instead of (0, 1)
    classifier = onnx_cases.classifier_of("kron", "one-vs-rest")
    session = onnx_cases.session_of(extended(classifier))
    with pytest.raises(Exception, match="BroadcastIterator"):
        onnx_cases.run(session, inputs_of(0, 1.0))


@pytest.mark.parametrize("gap", [25.0, 40.0, 90.0, 400.0])
@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_a_runner_up_far_below_keeps_its_digits(gap, scale):
    classifier = onnx_cases.classifier_of("kron", "one-vs-rest", 3, bias=False)
    inputs = scale * inputs_of(7, 1.0)
    inputs = inputs * gap / classifier.network.model(inputs).detach().abs().max()
    found = onnx_cases.run(onnx_cases.session_of(extended(classifier)), inputs)
    differences = onnx_cases.differences(found, classifier(inputs))
    assert max(differences.values()) < 1, differences


def test_what_is_there_stays_as_it_is():
    classifier = onnx_cases.classifier_of("kron")
    bare = onnx_cases.head_graph(classifier.network.model)
    model = extended(classifier)
    for field in ("node", "initializer", "output", "input"):
        own = getattr(bare.graph, field)
        assert list(getattr(model.graph, field))[: len(own)] == list(own)
    assert {node.domain for node in model.graph.node} == {""}


def test_an_answer_that_is_unknown_or_comes_twice_is_refused():
    with pytest.raises(InputError, match="choose from probabilities"):
        extended(onnx_cases.classifier_of("diag"), ["chances"])
    with pytest.raises(InputError, match="names of their own; got total, total"):
        extended(onnx_cases.classifier_of("diag"), ["total", "total"])


def test_an_old_opset_is_refused():
    with pytest.raises(InputError, match="opset 11 or later"):
        extended(onnx_cases.classifier_of("diag"), opset=9)


@pytest.mark.parametrize("bridge", ["one-vs-rest", "race"])
@pytest.mark.parametrize("curvature", ["diag_kron", "kron"])
def test_a_thousand_classes_answer_as_the_classifier_does(curvature, bridge):
    classifier = onnx_cases.classifier_of(curvature, bridge, 1000)
    session = onnx_cases.session_of(extended(classifier))
    for rows, scale in ((1, 1.0), (7, 30.0), (7, 0.01)):
        inputs = inputs_of(rows, scale)
        found = onnx_cases.differences(onnx_cases.run(session, inputs), classifier(inputs))
        assert max(found.values()) < 1, (rows, scale, found)


def test_no_node_or_array_is_written_that_no_output_needs():
    model = extended(onnx_cases.classifier_of("kron", "one-vs-rest"), ["probabilities"])
    read = {name for node in model.graph.node for name in node.input}
    read |= {output.name for output in model.graph.output}
    assert all(read.intersection(node.output) for node in model.graph.node)
    assert all(array.name in read for array in model.graph.initializer)


def test_nodes_are_few():
    usual = [name for name in PARTS if name not in {"ood_score", "log_concentration"}]
    for bridge, most in (("one-vs-rest", 525), ("laplace", 525), ("race", 1165)):
        model = extended(onnx_cases.classifier_of("kron", bridge), usual)
        assert len(model.graph.node) <= most, (bridge, len(model.graph.node))
