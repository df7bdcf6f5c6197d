"""One file in, one file out; killed at any moment and started again, all are there,
once, and as in a run that nobody disturbed.
"""

import json
import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from small_network import examples, fit

import laplacebridge as lb

parquet = pytest.importorskip("pyarrow.parquet")
arrow = pytest.importorskip("pyarrow")
FILES, ROWS = 7, 400


@pytest.fixture(scope="module")
def classifier(model):
    head, features = model[3], model[:3].eval()(examples(400)[0]).detach()
    held_out = model[:3](examples(300, seed=1)[0]).detach()
    labels = [examples(400)[1], examples(300, seed=1)[1]]
    return fit(head, [(features, labels[0])], val_loader=[(held_out, labels[1])])


@pytest.fixture(scope="module")
def inputs(model):
    return model[:3].eval()(examples(ROWS, seed=2)[0]).detach().numpy()


def test_each_kind_of_file_gives_what_the_library_answers(classifier, inputs, tmp_path):
    names = [f"x{index}" for index in range(inputs.shape[1])]
    identifiers = [f"id{index}" for index in range(ROWS)]
    lists = {"features": inputs.tolist(), "id": identifiers, "label": [0] * ROWS}
    columns = {"id": identifiers, **{name: inputs[:, i] for i, name in enumerate(names)}}
    parquet.write_table(arrow.table(lists), tmp_path / "lists.parquet")
    parquet.write_table(arrow.table(columns), tmp_path / "columns.parquet")
    rows = [",".join([identifiers[i], *map(repr, inputs[i].tolist())]) for i in range(ROWS)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(["id", *names]), *rows]))
    np.savez(tmp_path / "arrays.npz", features=inputs, id=np.array(identifiers))
    with torch.no_grad():
        expected = classifier(torch.from_numpy(inputs))
    lower, upper = (each.amax(-1) for each in expected.interval(0.95))
    for name in ("lists.parquet", "columns.parquet", "rows.csv", "arrays.npz"):
        target = tmp_path / "out" / f"{name}.out"
        target.parent.mkdir(exist_ok=True)
        scored = lb.score_file(classifier, tmp_path / name, target, keep=["id"], batch_size=64)
        assert scored.rows == ROWS
        found = parquet.read_table(target).to_pydict()
        assert found["row"] == list(range(ROWS))
        assert found["id"] == identifiers
        assert found["label"] == expected.label.tolist()
        np.testing.assert_allclose(found["probability"], expected.mean.amax(-1), atol=1e-5)
        np.testing.assert_allclose(found["upper"], upper, atol=1e-5)
        assert (np.array(found["lower"]) <= lower.numpy() + 1e-5).all()
        assert found["set"] == lb.sets.overlap_sets(expected).to_lists()
        np.testing.assert_allclose(found["ood_quantile"], expected.ood_quantile, atol=0.02)


def test_what_a_classifier_carries_decides_about_its_scores(classifier, inputs, tmp_path):
    np.savez(tmp_path / "day.npz", features=inputs)
    with torch.no_grad():
        usual = classifier(torch.from_numpy(inputs))
    rule = lb.selective.calibrate(lb.scores.msp, usual, answer_share=0.5)
    sets = lb.sets.calibrate(lb.sets.LeastAmbiguous(), usual, usual.label, coverage=0.9)
    names = [f"class {index}" for index in range(usual.num_classes)]
    whole = classifier.with_rule(
        rule, sets=sets, max_set_size=2, unusual_above=0.8, class_names=names
    )
    assert lb.score_file(whole, tmp_path / "day.npz", tmp_path / "whole", batch_size=64).rows
    found = parquet.read_table(tmp_path / "whole").to_pydict()
    decisions = whole.decide(torch.from_numpy(inputs))
    assert found["decision"] == [each.action for each in decisions]
    assert found["reason"] == [each.reason for each in decisions]
    assert {"answer", "defer"} <= set(found["decision"])
    assert found["set"] == sets(usual).to_lists() != lb.sets.overlap_sets(usual).to_lists()
    assert found["label_name"] == [names[index] for index in found["label"]]

    limited = classifier.with_rule(unusual_above=0.8)
    lb.score_file(limited, tmp_path / "day.npz", tmp_path / "limited")
    found = parquet.read_table(tmp_path / "limited").to_pydict()
    assert found["unusual"] == [each > 0.8 for each in found["ood_quantile"]]
    assert any(found["unusual"])
    assert "decision" not in found


def test_what_is_wrong_is_said_with_the_name_of_its_file(classifier, inputs, tmp_path):
    names = [f"x{index}" for index in range(inputs.shape[1])]
    columns = {name: inputs[:, index] for index, name in enumerate(names)}
    table = arrow.table({"id": list(range(ROWS)), "label": [0] * ROWS, **columns})
    parquet.write_table(table, tmp_path / "whole.parquet")
    parquet.write_table(table.drop(["x1"]), tmp_path / "fewer.parquet")
    holes = inputs.copy()
    holes[130] = np.nan
    np.savez(tmp_path / "holes.npz", features=holes, wide=np.zeros((ROWS, 2)))
    content = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(content[:-50])
    (tmp_path / "none.parquet").write_bytes(b"")
    (tmp_path / "none.csv").write_bytes(b"")
    np.savez(tmp_path / "zero.npz", features=inputs[:0])
    for name, keep, words in (
        ("cut.parquet", ["id"], "damaged"),
        ("none.parquet", [], "empty"),
        ("none.csv", [], "empty"),
        ("zero.npz", [], "at least one"),
        ("fewer.parquet", ["id"], "these inputs"),
        ("holes.npz", [], r"row 128 is counted as 0.*: 2 \(counted"),
        ("holes.npz", ["wide"], "1-dim"),
        ("whole.parquet", ["id", "label"], "something else"),
    ):
        with pytest.raises(lb.InputError, match=words) as refused:
            lb.score_file(
                classifier, tmp_path / name, tmp_path / "out.parquet", keep=keep, batch_size=64
            )
        assert name in str(refused.value)
        assert not (tmp_path / "out.parquet").exists()


def test_a_target_that_is_no_file_of_scores_is_replaced_only_when_told(
    classifier, inputs, tmp_path
):
    np.savez(tmp_path / "day.npz", features=inputs)
    target, folder = tmp_path / "out.parquet", tmp_path / "folder"
    target.write_text("something else")
    folder.mkdir()
    for place in (target, folder):
        with pytest.raises(lb.InputError, match=f"{place.name} is there and is no file"):
            lb.score_file(classifier, tmp_path / "day.npz", place)
    with pytest.raises(lb.InputError, match="folder is there"):
        lb.score_file(classifier, tmp_path / "day.npz", folder, replace=True)
    assert lb.score_file(classifier, tmp_path / "day.npz", target, replace=True).rows == ROWS


def test_several_labels_are_scored_as_lists(inputs, tmp_path):
    torch.manual_seed(0)
    features, names = torch.from_numpy(inputs), ("red", "round", "large")
    head = torch.nn.Linear(inputs.shape[1], 3)
    with torch.no_grad():
        labels = torch.bernoulli(head(features).sigmoid())
    options = {"multi_label": True, "val_loader": [(features[200:], labels[200:])]}
    several = fit(head, [(features[:200], labels[:200])], **options)
    several = several.with_rule(unusual_above=0.8, class_names=names)
    np.savez(tmp_path / "day.npz", features=inputs, id=np.arange(ROWS))
    target = tmp_path / "scores"
    scored = lb.score_file(several, tmp_path / "day.npz", target, keep=["id"], batch_size=64)
    assert scored.rows == ROWS
    assert lb.score_file(several, tmp_path / "day.npz", target, keep=["id"], batch_size=64).skipped
    found = parquet.read_table(target).to_pydict()
    with torch.no_grad():
        expected = several(features)
    assert found["id"] == list(range(ROWS))
    for row, mean, applies in zip(found["labels"], expected.mean, expected.applies):
        assert sorted(row) == applies.nonzero().flatten().tolist()
        assert row == sorted(row, key=lambda label: -float(mean[label]))
    assert found["label_names"] == [[names[each] for each in row] for row in found["labels"]]
    lower, upper = expected.interval(0.95)
    for name, wanted in (("probabilities", expected.mean), ("lower", lower), ("upper", upper)):
        np.testing.assert_allclose(found[name], wanted, atol=1e-5)
    assert found["unusual"] == [each > 0.8 for each in found["ood_quantile"]]
    assert {True, False} == set(found["unusual"])


def test_scores_by_another_rule_are_those_of_another_classifier(classifier, inputs, tmp_path):
    np.savez(tmp_path / "day.npz", features=inputs)
    with torch.no_grad():
        usual = classifier(torch.from_numpy(inputs))
    target = tmp_path / "scores"
    for share in (0.5, 0.9):
        rule = lb.selective.calibrate(lb.scores.msp, usual, answer_share=share)
        changed = classifier.with_rule(rule)
        if target.exists():
            with pytest.raises(lb.InputError, match="another classifier"):
                lb.score_file(changed, tmp_path / "day.npz", target)
        lb.score_file(changed, tmp_path / "day.npz", target, replace=True)
        actions = parquet.read_table(target).to_pydict()["decision"]
        assert actions.count("answer") == pytest.approx(share * ROWS, abs=2)
        assert lb.score_file(changed, tmp_path / "day.npz", target).skipped


def test_what_cannot_be_scored_is_refused_and_leaves_nothing(classifier, inputs, tmp_path):
    np.savez(tmp_path / "bad.npz", other=inputs)
    (tmp_path / "text.csv").write_text("a,b\nx,y\n")
    holes = inputs.copy()
    holes[7] = np.nan
    np.savez(tmp_path / "nan.npz", features=holes)
    for name, words in (("bad.npz", "features"), ("text.csv", "numbers"), ("nan.npz", "finite")):
        with pytest.raises(lb.InputError, match=words):
            lb.score_file(classifier, tmp_path / name, tmp_path / "out.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.npz", "nan.npz", "text.csv"]


def test_scores_of_another_classifier_are_not_mixed_and_changed_files_scored_again(
    classifier, inputs, tmp_path
):
    source, target = tmp_path / "day.npz", tmp_path / "day.parquet"
    np.savez(source, features=inputs)
    assert not lb.score_file(classifier, source, target).skipped
    assert lb.score_file(classifier, source, target).skipped
    other = classifier.with_prior(50.0)
    with pytest.raises(lb.InputError, match="another classifier"):
        lb.score_file(other, source, target)
    assert not lb.score_file(other, source, target, replace=True).skipped
    np.savez(source, features=inputs[:50])
    assert lb.score_file(other, source, target) == (str(source), str(target), 50, False)


@pytest.mark.slow
def test_killed_again_and_again_it_ends_complete_and_equal(classifier, inputs, tmp_path):
    lb.save(classifier, tmp_path / "classifier.safetensors")
    (tmp_path / "days").mkdir()
    for index in range(FILES):
        np.savez(tmp_path / "days" / f"day{index:02}.npz", features=inputs + index / 100)

    def start(output):
        command = [sys.executable, "-m", "laplacebridge", "score", "classifier.safetensors"]
        return subprocess.Popen(  # noqa: S603
            [*command, "days", "-o", output, "--batch-size", "16", "-q"],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    assert start("calm").wait(120) == 0
    chance, kills, halfway = random.Random(0), 0, set()  # noqa: S311
    for _ in range(20):
        process = start("killed")
        before = len(list((tmp_path / "killed").glob("*.parquet")))
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            done = len(list((tmp_path / "killed").glob("*.parquet")))
            if done > before + 2:
                time.sleep(chance.random() / 50)
                process.kill()
                break
            time.sleep(0.001)
        if process.wait(120) == 0:
            break
        kills += 1
        halfway.add(len(list((tmp_path / "killed").glob("*.parquet"))))
    assert kills >= 1
    assert any(0 < count < FILES for count in halfway)
    names = sorted(path.name for path in (tmp_path / "calm").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "killed").iterdir())
    assert len(names) == FILES + 1
    for name in names:
        calm, killed = ((tmp_path / run / name).read_bytes() for run in ("calm", "killed"))
        if name == "manifest.json":
            assert json.loads(calm)["rows"] == json.loads(killed)["rows"] == FILES * ROWS
        else:
            assert calm == killed
