"""Heads of ONNX models: found in every shape, verified by numbers, refused with a reason."""

import re

import jaxtyping
import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_builder import (
    BIAS,
    CLASSES,
    FEATURES,
    INPUTS,
    NEWEST,
    OLDEST,
    STEPS,
    WEIGHT,
    Builder,
    numbers,
    save,
)
from onnx_models import ACCEPTED, plain, two_classes
from onnx_refused import REFUSED

import laplacebridge as lb
from laplacebridge.onnx.fitting import Reader
from laplacebridge.onnx.model import FileGraph
from laplacebridge.onnx.running import Runner


def made(maker, folder, **options):
    build = Builder(**options)
    if maker.__name__.startswith(("linear_model", "tree")):
        build.domains["ai.onnx.ml"] = 3
    build = maker(build)
    return save(build, folder), build.feed


def logits_of(path, head, feed):
    """What weight and bias make of the features, in float64."""
    features, _ = Reader(FileGraph(path), head).read(feed)
    return features.numpy().astype(np.float64) @ head.weight.T.astype(np.float64) + head.bias


def softmax(logits):
    parts = np.exp(logits - logits.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def own_output(path, head, feed):
    """The model's own output as rows of classes."""
    value = Runner(FileGraph(path)).run(feed, [head.output])[head.output]
    if isinstance(value, list):
        value = np.array([[row[name] for name in head.class_labels] for row in value])
    if len(head.weight) == 1:
        return value
    if head.relation in {"softmax", "log-softmax", "logits"} and value.ndim > 1:
        value = np.moveaxis(value, list(value.shape).index(len(head.weight)), -1)
    if head.relation in {"softmax", "log-softmax", "logits"}:
        return value.reshape(-1, len(head.weight))
    return value


@pytest.mark.parametrize("name", ACCEPTED)
def test_weights_and_features_make_the_models_own_output(name, tmp_path):
    maker, relation = ACCEPTED[name]
    path, feed = made(maker, tmp_path)
    head = lb.onnx.find_head(path, feed)
    assert head.relation == relation
    logits, given = logits_of(path, head, feed), own_output(path, head, feed)
    room = {"float16": 5e-3, "8-bit": 0.1}.get(head.precision, 2e-6)
    if relation == "softmax":
        np.testing.assert_allclose(softmax(logits), given, atol=room)
    elif relation == "log-softmax" and logits.shape[1] == 1:
        odds = given.reshape(len(logits), 2) @ [[-1], [1]]
        np.testing.assert_allclose(logits, odds, atol=20 * room)
    elif relation == "log-softmax":
        np.testing.assert_allclose(np.log(softmax(logits)), given, atol=20 * room)
    elif relation == "logits":
        of_last = given.reshape(len(logits), -1)[:, -logits.shape[1] :]
        np.testing.assert_allclose(logits, of_last, atol=20 * room)
    elif relation == "sigmoid":
        last = given.reshape(len(logits), -1)[:, -1:]
        np.testing.assert_allclose(1 / (1 + np.exp(-logits)), last, atol=room)
    elif relation == "top classes":
        best = np.sort(softmax(logits), -1)[:, ::-1][:, : given.shape[-1]]
        np.testing.assert_allclose(best, given, atol=room)
    else:
        best = logits.argmax(-1) if logits.shape[1] > 1 else (logits[:, 0] > 0)
        np.testing.assert_array_equal(best, given.reshape(-1))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_covered_is_refused_with_the_reason(name, tmp_path):
    maker, words = REFUSED[name]
    path, feed = made(maker, tmp_path)
    with pytest.raises(lb.HeadNotFoundError) as refusal:
        lb.onnx.find_head(path, feed)
    for part in words:
        assert part in str(refusal.value), str(refusal.value)


@pytest.mark.parametrize("opset", range(OLDEST, min(NEWEST, 24) + 1))
def test_every_opset_from_eleven_on(opset, tmp_path):
    build = plain(opset)
    build.format = 10 if opset > 21 else 8
    head = lb.onnx.find_head(save(build, tmp_path), build.feed)
    np.testing.assert_array_equal(head.weight, WEIGHT.T)
    np.testing.assert_array_equal(head.bias, BIAS)


def test_one_of_several_heads_can_be_named(tmp_path):
    path, feed = made(REFUSED["two_heads"][0], tmp_path)
    assert lb.onnx.find_head(path, feed, output="b").weight.shape == (3, FEATURES)
    with pytest.raises(lb.HeadNotFoundError, match="no output 'c'; it has 'a', 'b'"):
        lb.onnx.find_head(path, feed, output="c")


def test_a_scale_inside_the_softmax_is_told_even_where_the_batch_is_sure(tmp_path):
    maker, _ = ACCEPTED["softmax_in_parts_with_a_temperature_inside"]
    path, feed = made(maker, tmp_path)
    sure = {"x": 1000 * feed["x"]}
    assert lb.onnx.find_head(path, sure).scale == pytest.approx(0.4, rel=1e-5)


def test_without_a_feed_numbers_are_drawn(tmp_path):
    path, _ = made(ACCEPTED["several_inputs"][0], tmp_path)
    assert lb.onnx.find_head(path).num_classes == CLASSES


def test_time_steps_are_predictions(tmp_path):
    path, feed = made(ACCEPTED["time_steps"][0], tmp_path)
    assert lb.onnx.find_head(path, feed).rows_per_example == STEPS


@pytest.mark.parametrize("name", ["", "_without_probabilities", "_that_gives_labels"])
def test_scores_of_two_classes_are_one_logit_whatever_is_seen_of_them(name, tmp_path):
    maker, _ = ACCEPTED[f"linear_model_of_two_classes{name}"]
    head = lb.onnx.find_head(*made(maker, tmp_path))
    np.testing.assert_allclose(head.weight, WEIGHT.T[:1], rtol=1e-6)
    np.testing.assert_allclose(head.bias, BIAS[:1], rtol=1e-6)


@pytest.mark.parametrize("column", [0, 1])
def test_a_column_of_a_linear_classifier_keeps_its_classes(column, tmp_path):
    build = Builder(domains={"ai.onnx.ml": 3})
    _, scores = two_classes(build, "LOGISTIC")
    build.output(build.node("Gather", scores, build.array(np.array(column)), axis=1))
    head = lb.onnx.find_head(save(build, tmp_path), build.feed)
    np.testing.assert_allclose(head.weight, WEIGHT.T[:1], rtol=1e-6)


@pytest.mark.parametrize("base", [2, 10])
@pytest.mark.parametrize("one_logit", [False, True])
def test_logarithms_of_probabilities_in_another_base_are_told(one_logit, base, tmp_path):
    build = Builder()
    features = build.features()
    logits = build.logits(features)
    if one_logit:
        product = build.node("MatMul", features, build.array(WEIGHT[:, :1].copy()))
        logits = build.node("Concat", build.node("Sub", product, product), product, axis=-1)
    logarithms = build.node("LogSoftmax", logits, axis=-1)
    build.output(build.node("Div", logarithms, build.array(np.float32(np.log(base)))))
    head = lb.onnx.find_head(save(build, tmp_path), build.feed)
    assert head.relation == "log-softmax"
    np.testing.assert_allclose(head.weight, WEIGHT.T[: len(head.weight)], rtol=1e-4)
    assert head.num_classes == (2 if one_logit else CLASSES)


def turned(build):
    """Time steps, with classes before them."""
    x = build.input("x", numbers(9, STEPS, INPUTS), ["batch", "steps", INPUTS])
    features = build.node("Relu", build.node("MatMul", x, build.array(numbers(INPUTS, FEATURES))))
    logits = build.node("Transpose", build.logits(features), perm=[0, 2, 1])
    build.output(build.node("Softmax", logits, axis=1))
    return build


def classes_by_examples(build):
    """Logits of shape (K, B)."""
    logits = build.node("Transpose", build.logits(build.features()), perm=[1, 0])
    build.output(build.node("Softmax", logits, axis=0))
    return build


@pytest.mark.parametrize(
    ("maker", "few"),
    [(turned, np.s_[:, :1]), (turned, np.s_[:1, :1]), (classes_by_examples, np.s_[:1])],
)
def test_a_head_verified_by_one_example_or_step_reads_more_of_them(maker, few, tmp_path):
    path, feed = made(maker, tmp_path)
    head = lb.onnx.find_head(path, {"x": feed["x"][few]})
    features, logits = Reader(FileGraph(path), head).read(feed)
    given = own_output(path, head, feed)
    np.testing.assert_allclose(softmax(logits.numpy()), given, atol=2e-6)
    expected = features.numpy() @ head.weight.T + head.bias
    np.testing.assert_allclose(softmax(expected), given, atol=2e-6)


def test_a_feed_without_examples_is_refused(tmp_path):
    path, feed = made(ACCEPTED["gemm"][0], tmp_path)
    with pytest.raises(lb.InputError, match=r"shape is \(0, 7\). Give at least one example"):
        lb.onnx.find_head(path, {"x": feed["x"][:0]})


def test_types_that_the_runtime_lacks_are_told(tmp_path):
    build = Builder()
    features = build.node("Cast", build.features(), to=TensorProto.BFLOAT16)
    weight = build.node("Cast", build.array(WEIGHT), to=TensorProto.BFLOAT16)
    product = build.node("MatMul", features, weight)
    build.output(build.node("Cast", product, to=TensorProto.FLOAT), kind=TensorProto.FLOAT)
    onnx.save(build.model(), tmp_path / "model.onnx")
    with pytest.raises(lb.LaplaceBridgeError, match=r"bfloat16 least of all: export .* float32"):
        lb.onnx.find_head(tmp_path / "model.onnx", build.feed)


def test_weights_in_another_file(tmp_path):
    build = plain(17)
    path = save(build, tmp_path, external=True)
    assert (tmp_path / "weights.bin").exists()
    np.testing.assert_array_equal(lb.onnx.find_head(path, build.feed).weight, WEIGHT.T)


def test_what_is_no_onnx_file_is_refused(tmp_path):
    with pytest.raises(lb.InputError, match="There is no file"):
        lb.onnx.find_head(tmp_path / "nothing.onnx")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\xff" * 100)
    with pytest.raises(lb.InputError, match="cannot be read as an ONNX model"):
        lb.onnx.find_head(broken)
    broken.write_bytes(b"")
    with pytest.raises(lb.InputError, match="no ONNX graph"):
        lb.onnx.find_head(broken)


def test_a_model_in_memory_is_no_file(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for given in (plain(17).model(), plain(17).model().SerializeToString()):
        with pytest.raises(lb.errors.InputTypeError, match=r"reads files; got .* Save it first"):
            lb.onnx.find_head(given)


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({"z": np.zeros((2, 7))}, "takes 'x' float \\(batch, 7\\); got 'z'"),
        ((np.zeros((2, 7)), np.zeros(2)), "got 2 arrays"),
        (np.array([["a"]]), "of type <U1"),
        (np.zeros((2, 8), np.float32), "cannot run .* on 'x' float32 \\(2, 8\\)"),
    ],
)
def test_a_feed_that_does_not_fit_is_named(feed, words, tmp_path):
    path = save(plain(17), tmp_path)
    with pytest.raises(lb.LaplaceBridgeError, match=words):
        lb.onnx.find_head(path, feed)


def test_a_feed_that_is_not_finite_is_named(tmp_path):
    path = save(plain(17), tmp_path)
    with pytest.raises(lb.HeadNotFoundError, match=re.escape("not finite")):
        lb.onnx.find_head(path, np.full((2, 7), np.nan, np.float32))
