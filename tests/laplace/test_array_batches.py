"""Batches of arrays and frames are fitted, predicted and reported as tensors are."""

import numpy as np
import pytest
import torch
from torch import nn

import laplacebridge as lb

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 4, generator=GENERATOR, dtype=torch.float64)
Y = X[:, :3].argmax(-1)
HELD_OUT = [(X[30:], Y[30:])]


def network(dtype):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(dtype)


def arrays(batches, kind=np.asarray):
    return [tuple(kind(part.numpy()) for part in batch) for batch in batches]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arrays_are_fitted_and_predicted_as_tensors_of_the_networks_type(dtype):
    model = network(dtype)
    inputs = X.to(dtype)
    tensors = lb.fit(model, [(inputs[:30], Y[:30])], val_loader=[(inputs[30:], Y[30:])])
    found = lb.fit(model, arrays([(X[:30], Y[:30])]), val_loader=arrays(HELD_OUT))
    expected = tensors(inputs)
    torch.testing.assert_close(found(X.numpy()).mean, expected.mean)
    assert found(X.numpy()).mean.dtype == dtype
    features = tensors.features(inputs).detach()
    torch.testing.assert_close(found.features(X.numpy()).detach(), features)
    torch.testing.assert_close(found.predict_features(features.numpy()).mean, expected.mean)
    torch.testing.assert_close(found.probabilities(X.numpy()), tensors.probabilities(inputs))


def test_frames_and_mappings_are_taken():
    pd = pytest.importorskip("pandas")

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network(torch.float32)

        def forward(self, table):
            return self.inner(table)

    frames = [{"table": pd.DataFrame(X.numpy()), "labels": pd.Series(Y.numpy())}]
    classifier = lb.fit(Named(), frames, prior_precision=1.0)
    expected = lb.fit(network(torch.float32), [(X.float(), Y)], prior_precision=1.0)
    torch.testing.assert_close(classifier(frames[0]).mean, expected(X.float()).mean)


def test_parts_and_reports_take_arrays_too():
    model = network(torch.float32)
    sums = lb.partial(model, arrays([(X, Y)]))
    assert sums.num_examples == 60
    classifier = lb.fit(model, arrays([(X, Y)]), prior_precision=1.0)
    one, other = (
        classifier.report(data, ood=ood, progress=False)
        for data, ood in (
            ([(X.float(), Y)], [5 * X.float()]),
            (arrays([(X, Y)]), [5 * X.numpy()]),
        )
    )
    assert one.rows[0].nll == other.rows[0].nll
    assert one.rows[0].auroc == other.rows[0].auroc


def test_what_a_loader_makes_of_arrays_is_still_explained():
    class Loader:
        def __iter__(self):
            yield X.numpy(), Y.numpy()

    with pytest.raises(lb.InputError, match=r"are ndarray \(60, 4\).*convert arrays with"):
        lb.fit(network(torch.float32), Loader(), progress=False)


def test_inputs_and_labels_apart_are_told_where_they_belong():
    with pytest.raises(lb.errors.InputTypeError, match=r"fit\(model, \[\(X, y\)\]\)"):
        lb.fit(network(torch.float32), X, Y)
    with pytest.raises(lb.errors.InputTypeError, match="a pair of"):
        lb.fit(network(torch.float32), (X.numpy(), Y.numpy()))


def test_classifiers_of_scikit_learn_are_told_of_their_wrapper():
    linear_model = pytest.importorskip("sklearn.linear_model")
    for given in ((X, Y), ([(X, Y)],)):
        with pytest.raises(
            lb.errors.InputTypeError, match=r"LaplaceBridgeClassifier\(classifier\)"
        ):
            lb.fit(linear_model.LogisticRegression(), *given)
