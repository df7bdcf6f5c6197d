"""Examples and time steps in every order: told by numbers where sizes agree."""

import numpy as np
import onnxruntime
import pytest
import torch
from onnx_builder import CLASSES, FEATURES, INPUTS, Builder, numbers, save

import laplacebridge as lb
from laplacebridge.onnx.model import FileGraph
from laplacebridge.onnx.placing import place_of
from laplacebridge.onnx.running import Runner

OPEN = ["batch", "steps", INPUTS]


def network(build, x):
    hidden = build.node("MatMul", x, build.array(numbers(INPUTS, FEATURES, seed=4)))
    return build.node("Relu", hidden)


def steps_first(shape, examples, steps):
    """The output has time steps first, the input examples."""
    build = Builder()
    x = build.input("x", numbers(examples, steps, INPUTS, seed=3), shape)
    features = build.node("Transpose", network(build, x), perm=[1, 0, 2])
    build.output(build.node("Softmax", build.logits(features), axis=-1))
    return build


def run(path, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, feed)))


def fitted(path, feed, labels, prior_precision=1.0):
    return lb.onnx.fit(path, [(feed, labels)], prior_precision=prior_precision, progress=False)


def written(path, feed, labels):
    new = path.with_name("new.onnx")
    fitted(path, feed, labels).write(new, ["probabilities"])
    return new


def test_a_fixed_batch_with_time_steps_first_keeps_examples_and_labels_together(tmp_path):
    build = steps_first([4, 8, INPUTS], 4, 8)
    path, inputs = save(build, tmp_path), numbers(8, 8, INPUTS, seed=1)
    parts = [run(path, {"x": inputs[start : start + 4]})["y"] for start in (0, 4)]
    own = np.concatenate(parts, 1)  # (T, B, K)
    model = fitted(path, inputs, own.argmax(-1), prior_precision=1e8)
    mean = model.predict(inputs).mean.reshape(own.shape)
    np.testing.assert_allclose(mean, own, atol=1e-4)
    assert model.classifier.labels.accuracy == 1
    few = model.predict(inputs[:3]).mean.reshape(8, 3, CLASSES)
    torch.testing.assert_close(few, mean[:, :3])


@pytest.mark.parametrize("turned", [False, True])
def test_a_fixed_batch_of_rows_keeps_examples_together(turned, tmp_path):
    """Rows of all time steps one after another, of each example or of each step."""
    build = Builder()
    features = network(build, build.input("x", numbers(4, 3, INPUTS, seed=3), [4, 3, INPUTS]))
    if turned:
        features = build.node("Transpose", features, perm=[1, 0, 2])
    rows = build.node("Reshape", features, build.array(np.array([-1, FEATURES])))
    build.output(build.node("Softmax", build.logits(rows), axis=-1))
    path, inputs = save(build, tmp_path), numbers(8, 3, INPUTS, seed=1)
    parts = [run(path, {"x": inputs[start : start + 4]})["y"] for start in (0, 4)]
    whole = Runner(FileGraph(path)).run({"x": inputs}, ["y"])["y"]
    shape = (3, 4, CLASSES) if turned else (4, 3, CLASSES)
    parts = [part.reshape(shape) for part in parts]
    own = np.concatenate(parts, 1 if turned else 0).reshape(-1, CLASSES)
    np.testing.assert_array_equal(whole, own)


def test_a_fixed_batch_whose_examples_are_mixed_is_refused(tmp_path):
    build = Builder()
    features = network(build, build.input("x", numbers(4, INPUTS, seed=3), [4, INPUTS]))
    mixed = build.node("CumSum", features, build.array(np.array(0)))
    build.output(build.node("Softmax", build.logits(mixed), axis=-1))
    path = save(build, tmp_path)
    with pytest.raises(
        lb.InputError, match=r"takes 4 examples at a time, and got 8; .* mixes them"
    ):
        fitted(path, numbers(8, INPUTS), np.arange(8) % CLASSES)


@pytest.mark.parametrize("steps", [6, 1])
def test_a_file_with_time_steps_first_takes_other_batch_sizes(steps, tmp_path):
    """As many steps as there are examples look like examples by their size."""
    build = steps_first(["batch", steps, INPUTS], 6, steps)
    labels = np.arange(6 * steps).reshape(steps, 6) % CLASSES
    new = written(save(build, tmp_path), build.feed, labels)
    inputs = numbers(3, steps, INPUTS)
    inputs[1, 0, 0] = np.nan
    answers = run(new, {"x": inputs})["lb_probabilities"]
    if steps > 1:
        assert answers.shape == (steps, 3, CLASSES)
    else:
        answers = answers.reshape(steps, 3, CLASSES)
    is_broken = np.isnan(answers).any(-1)
    assert is_broken[:, 1].all()
    assert not is_broken[:, [0, 2]].any()


@pytest.mark.parametrize("as_rows", [False, True])
@pytest.mark.parametrize("examples", [9, 1])
def test_a_first_batch_of_one_step_is_one_of_many(examples, as_rows, tmp_path):
    build = Builder()
    features = network(build, build.input("x", numbers(examples, 1, INPUTS, seed=3), OPEN))
    if as_rows:
        features = build.node("Reshape", features, build.array(np.array([-1, FEATURES])))
    build.output(build.node("Softmax", build.logits(features), axis=-1))
    path = save(build, tmp_path)
    labels = np.arange(examples) % CLASSES
    new = written(path, build.feed, labels if as_rows else labels[:, None])
    inputs = numbers(4, 3, INPUTS)
    own = run(path, {"x": inputs})["y"]
    assert run(new, {"x": inputs})["lb_probabilities"].shape == own.shape


def test_a_layer_over_all_pixels_has_one_prediction_whatever_sizes_are_open(tmp_path):
    build = Builder()
    x = build.input("x", numbers(9, 2, 4, 4), ["batch", 2, "height", "width"])
    kernel = build.array(numbers(CLASSES, 2, 4, 4, seed=4))
    build.output(build.node("Softmax", build.node("Conv", x, kernel), axis=1))
    new = written(save(build, tmp_path), build.feed, np.arange(9) % CLASSES)
    assert run(new, build.feed)["lb_probabilities"].shape == (9, CLASSES)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_state_of_more_layers_than_examples_counts_no_examples(is_named, tmp_path):
    build = Builder()
    name = "batch" if is_named else None
    x = build.input("x", numbers(1, 3, INPUTS), [name, 3, INPUTS])
    state = build.input("state", numbers(2, 1, FEATURES), [2, name, FEATURES])
    last = build.node("Unsqueeze", build.node("ReduceMean", state, axes=[0], keepdims=0), "one")
    build.array(np.array([1]), "one")
    features = build.node("Relu", build.node("Add", network(build, x), last))
    build.output(build.node("Softmax", build.logits(features), axis=-1))
    path = save(build, tmp_path)
    new = written(path, build.feed, np.array([[0, 1, 2]]))
    answers = run(new, build.feed)
    assert answers["lb_probabilities"].shape == answers["y"].shape == (1, 3, CLASSES)
    other = {"x": numbers(5, 3, INPUTS), "state": numbers(2, 5, FEATURES)}
    assert run(new, other)["lb_probabilities"].shape == (5, 3, CLASSES)


def test_labels_in_the_other_order_are_refused(tmp_path):
    build = steps_first(OPEN, 9, 3)
    path, labels = save(build, tmp_path), np.arange(27).reshape(3, 9) % CLASSES
    model = fitted(path, build.feed, labels)
    assert model.classifier.labels.class_counts.sum() == labels.size
    with pytest.raises(lb.InputError, match=r"shape \(3, 9\); got .* shape \(9, 3\).*labels\.T"):
        fitted(path, build.feed, labels.T)


def test_what_does_not_follow_the_examples_has_no_place():
    value = numbers(4, 4, 2)
    assert place_of(value, value[::-1], 4).axis == 0
    assert place_of(value, value[:, ::-1], 4).axis == 1
    assert place_of(value, value[::-1, ::-1], 4) is None
    assert place_of(numbers(3, 2), numbers(3, 2), 4) is None
