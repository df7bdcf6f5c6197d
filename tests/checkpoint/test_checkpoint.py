"""A saved classifier comes back the same, or is refused with a reason."""

import copy
import os
import stat

import pytest
import torch
from cases import POSTERIORS, seeded
from safetensors.torch import load_file, save_file
from small_network import examples, fit
from torch import nn

import laplacebridge as lb
from laplacebridge.classifier import Classifier


@pytest.mark.parametrize(("curvature", "kind"), POSTERIORS)
def test_what_is_loaded_predicts_what_was_saved(model, curvature, kind, tmp_path):
    classifier = fit(
        model, curvature=curvature, posterior=kind, bridge=lb.bridges.one_vs_rest_bridge
    )
    assert type(classifier.posterior) is kind
    lb.save(classifier, tmp_path / "classifier.safetensors")
    loaded = lb.load(tmp_path / "classifier.safetensors", model)
    inputs, _ = examples(20, seed=1)
    torch.testing.assert_close(
        loaded(inputs).dirichlet.log_concentration,
        classifier(inputs).dirichlet.log_concentration,
        rtol=0,
        atol=0,
    )
    assert loaded.evidence() == pytest.approx(classifier.evidence())
    assert loaded.bridge is lb.bridges.one_vs_rest_bridge
    assert loaded.prior_choice.method == classifier.prior_choice.method
    moved = loaded.with_prior(9.0).logits(inputs).variance
    torch.testing.assert_close(
        moved, classifier.with_prior(9.0).logits(inputs).variance, rtol=0, atol=0
    )


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "classifier.safetensors"
    lb.save(fit(model), path)
    return path


def test_no_training_data_are_in_the_file(saved):
    inputs, _ = examples(400)
    values = torch.cat([tensor.flatten().double() for tensor in load_file(saved).values()])
    sizes = {tensor.numel() for tensor in load_file(saved).values()}
    assert inputs.numel() not in sizes
    assert not torch.isin(inputs.flatten().double(), values).any()


def test_a_network_with_other_weights_is_refused(saved):
    other = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
    with pytest.raises(lb.CheckpointError, match="another model"):
        lb.load(saved, other)


def test_a_network_without_that_head_is_refused(saved):
    with pytest.raises(lb.CheckpointError, match=r"another model. No linear layer called '3'"):
        lb.load(saved, nn.Sequential(nn.Linear(5, 3)))
    with pytest.raises(
        lb.CheckpointError, match=r"16 features and 3 classes.*5 features and 3 classes"
    ):
        lb.load(saved, nn.Linear(5, 3))


def test_a_head_alone_takes_features(saved, model):
    features, head = torch.randn(6, 16, generator=seeded(0)), model[3]
    whole = lb.load(saved, model)
    expected = lb.race_bridge(whole.posterior(features)).mean
    for classifier in (lb.load(saved), lb.load(saved, head)):
        with torch.no_grad():
            torch.testing.assert_close(classifier(features).mean, expected)


def test_a_file_cut_short_is_refused(saved, model):
    content = saved.read_bytes()
    saved.write_bytes(content[: len(content) // 2])
    with pytest.raises(lb.CheckpointError, match="damaged"):
        lb.load(saved, model)


@pytest.mark.parametrize("content", [b"", b"not a safetensors file at all", b"\x80\x04pickle"])
def test_another_kind_of_file_is_refused(saved, model, content):
    saved.write_bytes(content)
    with pytest.raises(lb.CheckpointError):
        lb.load(saved, model)


def test_somebody_elses_safetensors_are_refused(saved, model):
    save_file({"weight": torch.zeros(3)}, saved)
    with pytest.raises(lb.CheckpointError, match="not a classifier"):
        lb.load(saved, model)


def test_another_version_is_refused(saved, model):
    save_file(load_file(saved), saved, metadata={"format": "laplacebridge", "version": "99"})
    with pytest.raises(lb.CheckpointError, match="version 99"):
        lb.load(saved, model)


def test_a_missing_file_is_a_missing_file(model, tmp_path):
    with pytest.raises(FileNotFoundError):
        lb.load(tmp_path / "nowhere.safetensors", model)


def test_a_crash_while_saving_leaves_the_old_file(saved, model, monkeypatch):
    before = saved.read_bytes()

    def crash(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="disk full"):
        lb.save(fit(model, prior_precision=3.0), saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o007, 0o660)], ids=["022", "007"])
def test_a_new_file_has_the_permissions_that_new_files_have(model, tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        lb.save(fit(model, prior_precision=1.0), tmp_path / "classifier.safetensors")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "classifier.safetensors").stat().st_mode) == mode


def test_a_file_that_is_replaced_keeps_its_permissions(saved, model):
    saved.chmod(0o604)
    lb.save(fit(model, prior_precision=3.0), saved)
    assert stat.S_IMODE(saved.stat().st_mode) == 0o604
    assert float(lb.load(saved, model).posterior.prior_precision) == 3.0


def test_a_bridge_of_ones_own_is_asked_for(model, tmp_path):
    def mine(gaussian):
        return lb.race_bridge(gaussian, num_nodes=16)

    classifier = fit(model, bridge=mine)
    path = tmp_path / "classifier.safetensors"
    lb.save(classifier, path)
    with pytest.raises(lb.CheckpointError, match=r"bridge=\.\.\."):
        lb.load(path, model)
    assert isinstance(lb.load(path, model, bridge=mine), Classifier)


def test_it_loads_into_another_type(saved, model):
    narrow, wide = lb.load(saved, model), lb.load(saved, copy.deepcopy(model)).double()
    inputs, _ = examples(10)
    assert wide(inputs.double()).dtype == torch.float64
    torch.testing.assert_close(
        wide(inputs.double()).mean.float(), narrow(inputs).mean, rtol=1e-3, atol=1e-5
    )


def test_what_is_no_classifier_or_no_path_is_refused(tmp_path):
    save = getattr(lb.save, "__wrapped__", lb.save)  # before the tests' own check of types
    model = nn.Linear(2, 2)
    with pytest.raises(lb.errors.InputTypeError, match=r"needs what `lb.fit` returns; got Linear"):
        save(model, tmp_path / "model.safetensors")
    classifier = lb.fit(model, [torch.eye(2)], prior_precision=1.0, progress=False)
    with pytest.raises(lb.errors.InputTypeError, match=r"name of a file.*got int"):
        save(classifier, 3)
    with pytest.raises(lb.errors.InputTypeError, match=r"name of a file.*got none"):
        save(classifier)
