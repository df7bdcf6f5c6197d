"""A saved posterior over layers comes back the same, or is refused with a reason."""

import copy

import network_cases as cases
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace import Diag, Full, Kron, MatrixNormalPosterior

BATCHES = {name: [(cases.inputs(name, 9), cases.labels(9))] for name in cases.NETWORKS}


def fit(model, name="cnn", **options):
    return lb.fit(
        model, BATCHES[name], progress=False, **{"layers": "*", "prior_precision": 0.7, **options}
    )


@pytest.mark.parametrize("name", ["mlp", "cnn with groups"])
@pytest.mark.parametrize(
    ("curvature", "posterior"),
    [(Diag, None), (Kron, None), (Kron, MatrixNormalPosterior), (Full, None)],
    ids=["Diag", "Kron", "Kron damped", "Full"],
)
def test_what_is_loaded_predicts_what_was_saved(name, curvature, posterior, tmp_path):
    model, queries = cases.network(name), cases.inputs(name, 5, seed=1)
    classifier = fit(
        model, name, curvature=curvature, posterior=posterior, bridge=lb.bridges.one_vs_rest_bridge
    )
    cooled = lb.Classifier(
        classifier.network,
        classifier.posterior.with_temperature(1.5),
        bridge=classifier.bridge,
        labels=classifier.labels,
    )
    lb.save(cooled, tmp_path / "classifier.safetensors")
    loaded = lb.load(tmp_path / "classifier.safetensors", copy.deepcopy(model))
    torch.testing.assert_close(
        loaded(queries).dirichlet.log_concentration,
        cooled(queries).dirichlet.log_concentration,
        rtol=1e-12,
        atol=1e-12,
    )
    assert loaded.evidence() == pytest.approx(cooled.evidence())
    assert loaded.bridge is lb.bridges.one_vs_rest_bridge
    assert loaded.network.layer_names == classifier.network.layer_names
    moved = loaded.with_prior(9.0).logits(queries).variance
    torch.testing.assert_close(
        moved, cooled.with_prior(9.0).logits(queries).variance, rtol=1e-12, atol=0
    )


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "classifier.safetensors"
    lb.save(fit(cases.network("cnn"), layers=["0", "6"]), path)
    return path


def test_only_what_the_posterior_needs_is_in_the_file(saved):
    tensors = load_file(saved)
    values = torch.cat([tensor.flatten().double() for tensor in tensors.values()])
    model = cases.network("cnn")
    assert torch.isin(model[0].weight.flatten(), values).all()
    assert not torch.isin(model[2].weight.flatten(), values).any()  # a layer that is not covered
    assert not torch.isin(BATCHES["cnn"][0][0].flatten(), values).any()


def test_other_weights_of_a_covered_layer_are_refused(saved):
    model = cases.network("cnn")
    with torch.no_grad():
        model[0].bias[1] += 1e-3
    with pytest.raises(
        lb.CheckpointError, match=r"layers '0', '6' have other weights.*or fit again"
    ):
        lb.load(saved, model)


def test_a_network_without_these_layers_is_refused(saved):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))
    with pytest.raises(
        lb.CheckpointError, match=r"Sequential has no linear layers or convolutions '6'"
    ):
        lb.load(saved, model)


def test_a_posterior_of_ones_own_is_not_saved(tmp_path):
    class Mine(lb.laplace.KronPosterior):
        pass

    with pytest.raises(
        lb.CheckpointError, match=r"`save` knows .*KronPosterior.*; got Mine, NetworkPosterior"
    ):
        lb.save(
            fit(cases.network("mlp"), "mlp", posterior=Mine), tmp_path / "classifier.safetensors"
        )


def test_it_moves_to_another_type_with_its_network(saved):
    wide = lb.load(saved, cases.network("cnn"))
    narrow = lb.load(saved, cases.network("cnn")).float()
    queries = cases.inputs("cnn", 5, seed=1)
    found = narrow.logits(queries.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found.variance.double(), wide.logits(queries).variance, rtol=1e-4, atol=1e-5
    )
