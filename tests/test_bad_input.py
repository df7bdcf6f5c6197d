"""What goes wrong on the first day is said in the library's words, before work is
done for it.
"""

import jaxtyping
import numpy as np
import pytest
import torch
from small_network import examples, fit
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace import Kron

INPUTS, LABELS = examples(60)
IGNORED = torch.full((60,), -100)
ONE_HOT = nn.functional.one_hot(LABELS, 4).float()
NAN = INPUTS.clone()
NAN[[7, 9], 0] = torch.tensor([float("nan"), float("inf")])


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch):
    """Without the types that the tests check: users have no such checks."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def never():
    raise AssertionError("the loader was read before the options were looked at")
    yield


FITS = {
    "curvature by name": ({"curvature": "kron"}, r"such as `lb.laplace.Kron`.*got 'kron'"),
    "posterior by name": ({"posterior": "kron"}, r"MatrixNormalPosterior`.*got 'kron'"),
    "bridge by name": ({"bridge": "race"}, r"got 'race'.*BRIDGES\['race'\]"),
    "no bridge": ({"bridge": 0}, r"as `bridge`; got 0"),
    "prior as text": ({"prior_precision": "1"}, r"positive number.*got '1', of type str"),
    "prior of zero": ({"prior_precision": 0}, r"positive number.*got 0"),
    "weights by name": ({"class_weight": "balanced"}, r"got 'balanced'.*torch\.bincount"),
    "prior of NaN": ({"prior_precision": float("nan")}, r"positive number.*got nan"),
}


@pytest.mark.parametrize("layers", [None, "*"])
@pytest.mark.parametrize("case", FITS)
def test_an_option_is_refused_before_any_batch_is_read(model, case, layers):
    options, message = FITS[case]
    options = {"prior_precision": 1.0, **options}
    with pytest.raises(lb.LaplaceBridgeError, match=message):
        lb.fit(model, never(), layers=layers, progress=False, **options)


@pytest.mark.parametrize("loader", [None, 3, "train.csv"])
def test_what_yields_nothing_is_no_loader(model, loader):
    for name in ("train_loader", "val_loader"):
        given = {"train_loader": [(INPUTS, LABELS)], name: loader}
        if given.get("val_loader", "") is None:
            continue  # not given
        with pytest.raises(lb.errors.InputTypeError, match=f"needs a loader as `{name}`"):
            lb.fit(model, given.pop("train_loader"), progress=False, **given)


@pytest.mark.filterwarnings("ignore:With 60 held-out labels")
@pytest.mark.parametrize("layers", [None, "*"])
def test_empty_batches_are_passed_over_wherever_they_are(model, layers):
    empty = (INPUTS[:0], LABELS[:0])
    whole = [(INPUTS, LABELS)]
    first = fit(model, whole, layers=layers, prior_precision=1.0)
    for loader in ([empty, *whole], [*whole, empty]):
        again = fit(model, loader, layers=layers, prior_precision=1.0)
        assert torch.equal(again(INPUTS).mean, first(INPUTS).mean)
    with pytest.raises(lb.LaplaceBridgeError, match="at least one batch"):
        fit(model, [empty], layers=layers)
    held_out = fit(model, whole, layers=layers, val_loader=[empty, *whole])
    assert held_out.prior_choice.width.num_labels == 60


@pytest.mark.parametrize("layers", [None, "*"])
@pytest.mark.parametrize("prior", [None, 1.0])
def test_labels_that_are_all_left_out_are_no_examples(model, layers, prior):
    with pytest.raises(lb.LaplaceBridgeError, match=r"are all labels -100\?"):
        fit(model, [(INPUTS, IGNORED)], layers=layers, prior_precision=prior)


def test_held_out_labels_that_are_all_left_out_are_no_examples(model):
    with pytest.raises(lb.LaplaceBridgeError, match=r"Validation needs .* all labels are -100"):
        fit(model, [(INPUTS, LABELS)], val_loader=[(INPUTS, IGNORED)])


@pytest.mark.parametrize("columns", [2, 4])
@pytest.mark.parametrize("layers", [None, "*"])
def test_labels_in_too_many_or_too_few_columns(model, columns, layers):
    one_hot = nn.functional.one_hot(LABELS % columns, columns).float()
    with pytest.raises(lb.errors.ShapeError, match=f"{columns} columns; the model has 3 classes"):
        fit(model, [(INPUTS, one_hot)], layers=layers)
    with pytest.raises(lb.errors.ShapeError, match=f"{columns} columns; the model has 3 classes"):
        fit(model, [(INPUTS, LABELS)], layers=layers, val_loader=[(INPUTS, one_hot)])


@pytest.mark.parametrize("layers", [None, "*"])
def test_a_loader_that_fails_keeps_the_sums(model, layers):
    def fails():
        yield INPUTS[:40], LABELS[:40]
        raise OSError("the disk went away")

    with pytest.raises(
        lb.laplace.LoaderError, match=r"after 1 batches: OSError: the disk"
    ) as stopped:
        fit(model, fails(), layers=layers)
    assert isinstance(stopped.value.__cause__, OSError)
    options = {"layers": layers, "prior_precision": 1.0}
    resumed = fit(model, [(INPUTS[40:], LABELS[40:])], resume=stopped.value, **options)
    whole = fit(model, [(INPUTS, LABELS)], **options)
    torch.testing.assert_close(resumed(INPUTS).mean, whole(INPUTS).mean)
    assert resumed.log_likelihood == pytest.approx(whole.log_likelihood)


def test_a_loader_that_fails_at_once_fails_as_it_does(model):
    def fails():
        raise OSError("the disk was never there")
        yield

    with pytest.raises(OSError, match="never there"):
        fit(model, fails())


def test_a_bridge_that_returns_something_else(model):
    with pytest.raises(lb.errors.InputTypeError, match=r"must return a `Dirichlet`.*Tensor"):
        fit(model, prior_precision=1.0, bridge=lambda gaussian: gaussian.mean)


PREDICTIONS = {
    "NaN": (NAN, r"not finite of 2 rows: 7, 9"),
    "another width": (torch.randn(3, 6), r"could not run these inputs, torch.float32 \(3, 6\)"),
    "another type": (INPUTS.double(), r"torch.float64 \(60, 5\).*convert the inputs"),
    "integers": (INPUTS.long(), r"torch.int64.*shape and type that the model was trained with"),
    "a list": ([[1.0] * 5], r"these inputs, list|needs a tensor"),
}


@pytest.mark.parametrize("case", PREDICTIONS)
@pytest.mark.parametrize("method", ["__call__", "probabilities", "logits"])
@pytest.mark.parametrize("layers", [None, "*"])
def test_inputs_that_cannot_be_predicted(model, case, method, layers):
    if layers and method == "logits":
        pytest.skip("runs the network when its Gaussian is asked for, in torch's words")
    classifier = fit(model, prior_precision=1.0, layers=layers)
    inputs, message = PREDICTIONS[case]
    with pytest.raises(lb.InputError, match=message):
        getattr(classifier, method)(inputs)


def test_features_that_cannot_be_predicted(model):
    classifier = fit(model, prior_precision=1.0)
    with pytest.raises(lb.InputError, match="not finite of 1 rows: 1"):
        classifier.predict_features(torch.tensor([[0.0] * 16, [float("nan")] * 16]))
    for features in (torch.zeros(2, 17), np.zeros((2, 17))):
        with pytest.raises(lb.errors.ShapeError, match=r"posterior\(features\)"):
            classifier.predict_features(features)


def test_other_options_of_a_classifier(model, tmp_path):
    classifier = fit(model, prior_precision=1.0)
    lb.save(classifier, tmp_path / "classifier.safetensors")
    for call in (
        lambda: classifier.with_bridge("race"),
        lambda: lb.load(tmp_path / "classifier.safetensors", model, bridge="race"),
    ):
        with pytest.raises(lb.errors.InputTypeError, match=r"got 'race'"):
            call()
    with pytest.raises(lb.errors.InputTypeError, match="got '1', of type str"):
        classifier.with_prior("1")


def test_a_place_in_a_tuple_is_given_as_a_function(model):
    class Second(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = model

        def forward(self, inputs):
            return inputs, self.network(inputs)

    with pytest.raises(lb.errors.InputTypeError, match=r"output=lambda returned: returned\[1\]"):
        fit(Second(), prior_precision=1.0, output=1)
    classifier = fit(Second(), prior_precision=1.0, output=lambda returned: returned[1])
    expected = fit(model, prior_precision=1.0)(INPUTS).mean
    torch.testing.assert_close(classifier(INPUTS).mean, expected)


def test_inputs_of_inference_mode_are_answered_or_named_where_gradients_are_needed(model):
    with torch.inference_mode():
        inputs = INPUTS.clone()
    classifier = fit(model, prior_precision=1.0)
    torch.testing.assert_close(classifier(inputs).mean, classifier(INPUTS).mean)
    all_layers = fit(model, prior_precision=1.0, layers="*")
    with pytest.raises(lb.InputError, match=r"under `torch\.inference_mode`"):
        all_layers(inputs)


def test_a_level_that_is_no_number_and_a_folder_that_is_no_file_are_named(model, tmp_path):
    prediction = fit(model, prior_precision=1.0)(INPUTS)
    for interval in (prediction.interval, prediction.dirichlet.marginal(0).interval):
        with pytest.raises(lb.InputError, match=r"got '0\.9'"):
            interval("0.9")
    with pytest.raises(lb.CheckpointError, match="is a folder"):
        lb.load(tmp_path, model)


def test_what_is_fitted_in_inference_mode_can_be_differentiated(model):
    with torch.inference_mode():
        classifier = fit(model, prior_precision=1.0, curvature=Kron)
    inputs = INPUTS.clone().requires_grad_()
    classifier(inputs).mean[:, 0].sum().backward()
    assert inputs.grad.isfinite().all()
    with torch.inference_mode():
        fit(model, prior_precision=1.0, layers="*")
