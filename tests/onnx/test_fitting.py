"""ONNX in, ONNX out: fitted as a network is, written with the model untouched."""

import re

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
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
    save,
)
from onnx_models import ACCEPTED, plain
from torch import nn

import laplacebridge as lb
from laplacebridge.onnx.fitting import FittedModel
from laplacebridge.onnx.running import Runner

ANSWERS = ["probabilities", "interval"]
SIZES = (1, 7, 64)


def made(name, folder):
    build = Builder()
    if name.startswith("linear_model"):
        build.domains["ai.onnx.ml"] = 3
    build = ACCEPTED[name][0](build)
    return save(build, folder), build.feed


def fitted(path, feed, **options) -> FittedModel:
    head = lb.onnx.find_head(path, feed)
    rows = head.rows_per_example * len(next(iter(feed.values())))
    labels = np.arange(rows) % head.num_classes
    if head.class_labels:
        labels = np.array(head.class_labels)[labels]
    return fitted_on(path, feed, labels, **options)


def fitted_on(path, feed, labels, **options) -> FittedModel:
    options = {"prior_precision": 1.0, "bridge": lb.laplace_bridge, "progress": False, **options}
    return lb.onnx.fit(path, [(feed, labels)], **options)


def repeated(feed, count):
    return {name: np.resize(array, (count, *array.shape[1:])) for name, array in feed.items()}


def run(path, names, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options)
    names = names or [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, feed)))


def require_untouched(old_path, new_path):
    old, new = (onnx.load(path, load_external_data=False) for path in (old_path, new_path))
    assert list(old.opset_import) == list(new.opset_import)
    assert old.ir_version == new.ir_version
    assert list(old.functions) == list(new.functions)
    for name in ("node", "initializer", "input", "output", "value_info"):
        before, after = getattr(old.graph, name), getattr(new.graph, name)
        kept = [entry.SerializeToString() for entry in after[: len(before)]]
        assert [entry.SerializeToString() for entry in before] == kept, name


def require_same_bits(old_path, new_path, feed):
    first = run(old_path, [], feed)
    second = run(new_path, list(first), feed)
    for name, value in first.items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            assert value.tobytes() == second[name].tobytes(), name
        else:
            assert np.all(np.array(value) == np.array(second[name])), name


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_written_file_has_the_model_untouched_and_the_answers_of_eager(name, tmp_path):
    path, feed = made(name, tmp_path)
    model = fitted(path, feed)
    new = tmp_path / "with-uncertainty.onnx"
    names = model.write(new, outputs=ANSWERS)
    onnx.checker.check_model(str(new))
    require_untouched(path, new)
    is_fixed = name in {"batches_of_four", "one_example_at_a_time"}
    for size in [len(feed["x"])] if is_fixed else SIZES:
        require_same_bits(path, new, repeated(feed, size))
    prediction, answers = model.predict(feed), run(new, names, feed)
    classes = model.classifier.num_classes
    mean, lower, upper = (answers[each].reshape(-1, classes) for each in names)
    np.testing.assert_allclose(mean, prediction.mean, atol=2e-6)
    for bound, expected in zip((lower, upper), prediction.interval(0.95)):
        np.testing.assert_allclose(bound, expected, atol=1e-4)
    steps = model.head.rows_per_example
    leading = (len(feed["x"]),) if steps == 1 else (len(feed["x"]), steps)
    assert answers[names[0]].shape == (*leading, classes)


@pytest.mark.parametrize("opset", range(OLDEST, min(NEWEST, 24) + 1))
def test_files_of_every_opset_keep_it(opset, tmp_path):
    build = plain(opset)
    build.format = 10 if opset > 21 else 8
    path, new = save(build, tmp_path), tmp_path / "new.onnx"
    model = fitted(path, build.feed)
    names = model.write(new, outputs=["probabilities", "interval", "total", "epistemic"])
    require_untouched(path, new)
    mean = run(new, names, build.feed)["lb_probabilities"]
    np.testing.assert_allclose(mean, model.predict(build.feed).mean, atol=2e-6)


def test_older_opsets_are_refused_before_any_work(tmp_path):
    path = save(plain(10), tmp_path)  # its softmax was defined anew in opset 11
    with pytest.raises(lb.InputError, match=r"opset 10; answers need opset 11.*convert_version"):
        lb.onnx.fit(path, [])


def test_older_opsets_are_raised_where_all_operators_mean_the_same_and_it_says_so(tmp_path):
    build = Builder(opset=9)
    build.output(build.logits(build.features()))
    path, new = save(build, tmp_path), tmp_path / "new.onnx"
    model = fitted(path, build.feed)
    with pytest.warns(UserWarning, match=r"has opset 9, and new\.onnx opset 11"):
        names = model.write(new, outputs=ANSWERS)
    require_same_bits(path, new, build.feed)
    assert onnx.load(new).opset_import[0].version == OLDEST
    mean = run(new, names, build.feed)["lb_probabilities"]
    np.testing.assert_allclose(mean, model.predict(build.feed).mean, atol=2e-6)


def test_sets_and_decisions_are_written_behind_a_model(tmp_path):
    build = plain(13)
    path, new = save(build, tmp_path), tmp_path / "new.onnx"
    generator = np.random.default_rng(1)
    some = {"x": generator.standard_normal((300, INPUTS)).astype(np.float32)}
    model = fitted(path, build.feed, bridge=lb.bridges.one_vs_rest_bridge)
    prediction = model.predict(some)
    full = model.with_rule(
        lb.selective.calibrate(lb.scores.msp, prediction, answer_share=0.4),
        sets=lb.sets.calibrate(
            lb.sets.LeastAmbiguous(), prediction, prediction.label.numpy(), coverage=0.9
        ),
        class_names=[f"kind {index}" for index in range(CLASSES)],
    )
    names = full.write(new)
    assert names[-2:] == ["lb_set", "lb_decision"]
    others = {"x": generator.standard_normal((64, INPUTS)).astype(np.float32)}
    answers, again = run(new, names, others), full.predict(others)
    expected = full.classifier.policy(again)
    assert answers["lb_decision"].tolist() == expected.action.tolist()
    assert set(expected.action.tolist()) > {0}
    members = [np.flatnonzero(row).tolist() for row in answers["lb_set"]]
    assert members == [sorted(classes) for classes in expected.sets.to_lists()]
    held = {entry.key: entry.value for entry in onnx.load(new).metadata_props}
    assert "kind 1" in held["laplacebridge.classes"]
    assert "nothing is promised" in held["laplacebridge.promises"]
    others["x"][3, 0] = np.nan
    broken = run(new, names, others)
    assert broken["lb_decision"][3] == 2
    assert np.isnan(broken["lb_probabilities"][3]).all()


def test_a_decision_without_a_rule_is_refused(tmp_path):
    build = plain(17)
    model = fitted(save(build, tmp_path), build.feed)
    with pytest.raises(lb.InputError, match="`decision` needs a rule"):
        model.write(tmp_path / "new.onnx", ["decision"])


def test_comparison_with_held_out_data_that_were_not_given_is_refused(tmp_path):
    build = plain(17)
    model = fitted(save(build, tmp_path), build.feed)
    with pytest.raises(lb.InputError, match="this classifier has seen none"):
        model.write(tmp_path / "new.onnx", ["ood_quantile"])


def test_the_fit_is_that_of_a_torch_network_with_the_same_weights(tmp_path):
    build = plain(17)
    path = save(build, tmp_path)
    inputs = np.random.default_rng(5).standard_normal((120, INPUTS)).astype(np.float32)
    hidden = onnx.numpy_helper.to_array(build.model().graph.initializer[0])
    network = nn.Sequential(nn.Linear(INPUTS, 12, bias=False), nn.ReLU(), nn.Linear(12, CLASSES))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor(hidden.T))
        network[2].weight.copy_(torch.tensor(WEIGHT.T))
        network[2].bias.copy_(torch.tensor(BIAS))
    labels = np.arange(120) % CLASSES
    parts = [slice(0, 40), slice(40, 80)]
    batches = [(inputs[part], labels[part]) for part in parts]
    held_out = [(inputs[80:], labels[80:])]
    with pytest.warns(UserWarning, match="network"):  # labels are drawn
        ours = lb.onnx.fit(path, batches, val=held_out, progress=False)
    tensors = [
        [(torch.tensor(x), torch.tensor(y)) for x, y in each] for each in (batches, held_out)
    ]
    with pytest.warns(UserWarning, match="network"):
        theirs = lb.fit(network, tensors[0], val_loader=tensors[1], progress=False)
    with torch.no_grad():
        first, second = ours.predict(inputs), theirs(torch.tensor(inputs))
    torch.testing.assert_close(first.mean, second.mean, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(first.interval(0.9), second.interval(0.9), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(first.ood_score, second.ood_score, atol=1e-3, rtol=1e-3)


def test_batches_in_every_usual_form(tmp_path):
    path, feed = made("several_inputs", tmp_path)
    labels = np.arange(9) % CLASSES
    forms = [
        [(feed, labels)],
        [{**feed, "labels": labels}],
        [(feed["x"], feed["tokens"], labels)],
        [({name: torch.tensor(value) for name, value in feed.items()}, torch.tensor(labels))],
    ]
    means = [
        lb.onnx.fit(path, form, prior_precision=1.0, progress=False).predict(feed).mean
        for form in forms
    ]
    for mean in means[1:]:
        torch.testing.assert_close(mean, means[0])


def test_inputs_alone_need_a_prior(tmp_path):
    build = plain(17)
    path = save(build, tmp_path)
    model = lb.onnx.fit(path, [build.feed], prior_precision=2.0, progress=False)
    assert model.classifier.log_likelihood is None


def test_what_are_no_batches_is_refused(tmp_path):
    build = plain(17)
    path = save(build, tmp_path)
    with pytest.raises(
        lb.errors.InputTypeError, match="yields batches of tensors; got a single mapping"
    ):
        lb.onnx.fit(path, build.feed)
    with pytest.raises(lb.InputError, match="at least one batch"):
        lb.onnx.fit(path, [])
    pair = build.feed["x"], np.zeros(9, int)
    with pytest.raises(
        lb.errors.InputTypeError, match=r"`batches`.* got a pair .* Give `\[\(inputs"
    ):
        lb.onnx.fit(path, pair)
    with pytest.raises(lb.errors.InputTypeError, match=r"`val`.* got a pair of"):
        lb.onnx.fit(path, [pair], val=pair)
    with pytest.raises(lb.InputError, match="it is `val=` here"):
        lb.onnx.fit(path, [pair], val_loader=[pair])
    with pytest.raises(lb.InputError, match="does not name its classes; got the label 'a'"):
        lb.onnx.fit(path, [(pair[0], np.array(["a"] * 9))])


def test_labels_are_the_names_that_the_file_gives(tmp_path):
    path, feed = made("linear_model_with_named_classes", tmp_path)
    head = lb.onnx.find_head(path, feed)
    assert head.class_labels == ("cat", "dog", "emu", "fox", "gnu")
    labels = np.array(["gnu", "cat", "emu"] * 3)
    model = lb.onnx.fit(path, [(feed, labels)], progress=False, prior_precision=1.0)
    assert model.classifier.labels.class_counts.tolist() == [3, 0, 3, 0, 3]
    with pytest.raises(lb.InputError, match="got the label 'yak'"):
        lb.onnx.fit(path, [(feed, np.array(["yak"] * 9))], progress=False)
    new = tmp_path / "new.onnx"
    model.write(new)
    metadata = {entry.key: entry.value for entry in onnx.load(new).metadata_props}
    assert metadata["laplacebridge.classes"] == '["cat", "dog", "emu", "fox", "gnu"]'


def renamed_labels(build, names, kind="Gather"):
    """As where a file maps places of classes to names of its own."""
    logits = build.logits(build.features(examples=60))
    places = build.node("ArgMax", logits, axis=-1, keepdims=0)
    domain = "ai.onnx.ml" if kind == "ArrayFeatureExtractor" else ""
    build.output(
        build.node(kind, build.array(names), places, domain=domain), "label",
        kind=TensorProto.STRING if names.dtype == object else TensorProto.INT64,
    )  # fmt: skip
    return logits


NAMES = [np.array([3, 0, 4, 1, 2]), np.array(["gnu", "cat", "emu", "dog", "fox"], object)]


@pytest.mark.parametrize("with_probabilities", [True, False])
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("kind", ["Gather", "ArrayFeatureExtractor"])
def test_labels_are_those_that_the_file_maps_classes_to(kind, names, with_probabilities, tmp_path):
    build = Builder()
    logits = renamed_labels(build, names, kind)
    if with_probabilities:
        build.output(build.node("Softmax", logits, axis=-1))
    path = save(build, tmp_path)
    own = run(path, [], build.feed)["label"].reshape(-1)
    few = lb.onnx.find_head(path, {"x": build.feed["x"][:1]})
    assert few.class_labels == tuple(names)
    model = fitted_on(path, build.feed, own)
    assert model.head.class_labels == tuple(names)
    assert model.classifier.labels.accuracy == 1


def test_labels_of_time_steps_may_be_renamed(tmp_path):
    build = Builder()
    logits = build.logits(build.features(steps=STEPS))
    places = build.node("ArgMax", logits, axis=-1, keepdims=0)
    build.output(build.node("Gather", build.array(NAMES[0]), places))
    path = save(build, tmp_path)
    own = run(path, [], build.feed)["y"]
    assert fitted_on(path, build.feed, own).classifier.labels.accuracy == 1


def test_labels_of_two_classes_may_be_renamed(tmp_path):
    build = Builder()
    logit = build.node("MatMul", build.features(), build.array(WEIGHT[:, :1].copy()))
    positive = build.node("Greater", logit, build.array(np.float32(0)))
    both = build.array(np.array(["no", "yes"], object))
    build.output(build.node("Gather", both, build.node("Cast", positive, to=TensorProto.INT64)))
    head = lb.onnx.find_head(save(build, tmp_path), build.feed)
    assert head.class_labels == ("no", "yes")


def test_models_of_a_fixed_batch_size_take_any_number_of_examples(tmp_path):
    path, _ = made("batches_of_four", tmp_path)
    inputs = np.random.default_rng(5).standard_normal((10, INPUTS)).astype(np.float32)
    model = lb.onnx.fit(
        path, [(inputs, np.arange(10) % CLASSES)], prior_precision=1.0, progress=False
    )
    whole = model.predict(inputs).mean
    assert whole.shape == (10, CLASSES)
    torch.testing.assert_close(model.predict(inputs[8:]).mean, whole[8:])
    assert model.classifier.labels.class_counts.sum() == 10
    values = Runner(lb.onnx.model.FileGraph(path)).run({"x": inputs}, ["y"])
    assert values["y"].shape == (10, CLASSES)


@pytest.mark.parametrize("examples", [9, 100])
def test_a_batch_size_that_a_file_holds_and_does_not_declare(examples, tmp_path):
    """As tracing leaves it where a network reshapes by the size that it saw."""
    build = Builder()
    shape = build.array(np.array([examples, FEATURES]))
    features = build.node("Reshape", build.features(examples=examples), shape)
    build.output(build.node("Softmax", build.logits(features), axis=-1))
    path, new = save(build, tmp_path), tmp_path / "new.onnx"
    model = fitted_on(path, build.feed, np.arange(examples) % CLASSES)
    names = model.write(new, outputs=ANSWERS)
    require_same_bits(path, new, build.feed)
    mean = run(new, names, build.feed)["lb_probabilities"]
    np.testing.assert_allclose(mean, model.predict(build.feed).mean, atol=2e-6)


@pytest.mark.parametrize("examples", [1, 3])
def test_a_state_beside_the_examples_is_not_cut(examples, tmp_path):
    """Recurrent models take and give their state, layers first."""
    build = Builder()
    features = build.features(examples=examples)
    state = build.input("state", np.ones((2, examples, FEATURES), np.float32), [2, "batch", None])
    last = build.node("Gather", state, build.array(np.array(1)), axis=0)
    build.output(build.logits(build.node("Add", features, last)))
    path, new = save(build, tmp_path), tmp_path / "new.onnx"
    labels = np.arange(examples) % CLASSES
    model = lb.onnx.fit(path, [(build.feed, labels)], prior_precision=1.0, progress=False)
    names = model.write(new, outputs=ANSWERS)
    require_untouched(path, new)
    require_same_bits(path, new, build.feed)
    mean = run(new, names, build.feed)["lb_probabilities"]
    assert mean.shape == (examples, CLASSES)
    np.testing.assert_allclose(mean, model.predict(build.feed).mean, atol=2e-6)


def test_outputs_declared_with_too_few_dimensions_are_answered_row_by_row(tmp_path):
    """ONNX Runtime plans memory by what a file declares, and fails where its shape is read."""
    build = Builder()
    rows = build.node("Reshape", build.features(steps=STEPS), build.array(np.array([-1, FEATURES])))
    shape = build.array(np.array([-1, STEPS, CLASSES]))
    build.nodes.append(helper.make_node("Reshape", [build.logits(rows), shape], ["y"]))
    build.outputs.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "steps"]))
    path, new = tmp_path / "model.onnx", tmp_path / "new.onnx"
    onnx.save(build.model(), path)
    model = fitted(path, build.feed)
    names = model.write(new, outputs=ANSWERS)
    require_untouched(path, new)
    require_same_bits(path, new, build.feed)
    mean = run(new, names, build.feed)["lb_probabilities"]
    assert mean.shape == (len(build.feed["x"]) * STEPS, CLASSES)
    np.testing.assert_allclose(mean, model.predict(build.feed).mean, atol=2e-6)


@pytest.mark.parametrize("name", ["gemm", "batches_of_four", "convolution_of_one_pixel"])
def test_no_examples_have_no_predictions(name, tmp_path):
    path, feed = made(name, tmp_path)
    prediction = fitted(path, feed).predict(feed["x"][:0])
    assert prediction.mean.shape == (0, CLASSES)
    assert prediction.interval()[0].shape == (0, CLASSES)
    assert prediction.epistemic.shape == (0,)


def test_weights_in_other_files_go_along(tmp_path):
    build = plain(17)
    path = save(build, tmp_path, external=True)
    model = fitted(path, build.feed)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in (tmp_path, elsewhere):
        new = folder / "new.onnx"
        model.write(new, outputs=ANSWERS)
        require_untouched(path, new)
        require_same_bits(path, new, build.feed)
    assert (elsewhere / "weights.bin").read_bytes() == (tmp_path / "weights.bin").read_bytes()
    (elsewhere / "weights.bin").write_bytes(b"others")
    with pytest.raises(lb.InputError, match=r"weights.bin exists and is not"):
        model.write(elsewhere / "new.onnx")


def test_a_file_that_has_answers_is_refused_before_any_work(tmp_path):
    build = plain(17)
    path, new = save(build, tmp_path), tmp_path / "new.onnx"
    fitted(path, build.feed).write(new)
    with pytest.raises(lb.InputError, match="has answers already"):
        lb.onnx.fit(new, [], output="y")


def test_a_folder_is_no_place_to_write(tmp_path):
    build = plain(17)
    model = fitted(save(build, tmp_path), build.feed)
    with pytest.raises(lb.InputError, match="is a folder; give the path of a file"):
        model.write(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"level": 1.0}, "needs a level between 0 and 1; got 1.0. 0.95 is usual"),
        ({"level": 1.5}, "got 1.5"),
        ({"class_names": ["cat", "dog"]}, "a name for each of 5 classes; got 2"),
    ],
)
def test_what_cannot_be_written_is_refused(options, words, tmp_path):
    build = plain(17)
    model = fitted(save(build, tmp_path), build.feed)
    with pytest.raises(lb.InputError, match=re.escape(words)):
        model.write(tmp_path / "new.onnx", **options)


def test_inputs_that_are_not_finite_answer_nan(tmp_path):
    build = plain(17)
    path, new = save(build, tmp_path), tmp_path / "new.onnx"
    names = fitted(path, build.feed).write(new, outputs=ANSWERS)
    inputs = build.feed["x"].copy()
    inputs[2, 0] = np.nan
    mean = run(new, names, {"x": inputs})["lb_probabilities"]
    assert np.isnan(mean[2]).all()
    assert np.isfinite(np.delete(mean, 2, 0)).all()


def test_the_classifier_of_the_head_can_be_saved_and_takes_features(tmp_path):
    build = plain(17)
    path = save(build, tmp_path)
    model = fitted(path, build.feed)
    lb.save(model.classifier, tmp_path / "head.safetensors")
    loaded = lb.load(tmp_path / "head.safetensors")
    features = torch.randn(3, 12)
    torch.testing.assert_close(
        loaded.predict_features(features).mean, model.classifier.predict_features(features).mean
    )
