"""Every curvature is the generalised Gauss–Newton matrix that autograd gives, as far as
its structure can hold it.
"""

import pytest
import torch
from cases import CURVATURES, seeded
from dense_curvature import CLASSES, FEATURES, dense
from torch import autograd
from torch.nn.functional import cross_entropy

import laplacebridge as lb
from laplacebridge.laplace import Diag, DiagKron, Full, Kron

EXAMPLES = 7


def batch(examples=EXAMPLES, seed=0):
    generator = seeded(seed)
    features = torch.randn(examples, FEATURES, generator=generator, dtype=torch.float64)
    logits = 2 * torch.randn(examples, CLASSES, generator=generator, dtype=torch.float64)
    return features, logits.softmax(-1)


def autograd_ggn(features, probabilities):
    """Σ Jᵀ ∇²loss J over examples, by automatic differentiation; weights in the order
    (class, feature).
    """
    weight = torch.zeros(CLASSES, FEATURES, dtype=torch.float64)
    total = torch.zeros(CLASSES * FEATURES, CLASSES * FEATURES, dtype=torch.float64)
    for feature, probability in zip(features, probabilities):
        offset = probability.log()  # logits that give these probabilities at zero weights
        jacobian = autograd.functional.jacobian(
            lambda w, f=feature, o=offset: w @ f + o, weight
        ).flatten(1)
        hessian = autograd.functional.hessian(
            lambda z: cross_entropy(z.unsqueeze(0), torch.tensor([0])), offset
        )
        total += jacobian.T @ hessian @ jacobian
    return total


def test_the_full_curvature_is_autograds():
    features, probabilities = batch()
    torch.testing.assert_close(
        Full.of_batch(features, probabilities).matrix,
        autograd_ggn(features, probabilities),
        rtol=1e-10,
        atol=1e-12,
    )


def test_the_diagonal_is_autograds():
    features, probabilities = batch()
    expected = autograd_ggn(features, probabilities).diagonal().view(CLASSES, FEATURES)
    torch.testing.assert_close(
        Diag.of_batch(features, probabilities).diagonal, expected, rtol=1e-10, atol=1e-12
    )


def test_the_diagonal_of_float32_features_is_right_to_their_rounding_also_beyond_its_range():
    features, probabilities = batch(200)
    for scale in (1.0, 1e25):  # squares of the larger ones are not in float32
        wide, narrow = (
            Diag.of_batch(f, probabilities).diagonal
            for f in (scale * features, (scale * features).float())
        )
        torch.testing.assert_close(narrow, wide, rtol=2e-6, atol=0.0)


def test_the_diagonal_of_a_confident_network_keeps_its_digits():
    features, probabilities = (
        torch.ones(3, 1),
        torch.tensor([[18.0, 0.0]]).expand(3, 2).softmax(-1),
    )  # 1 and 1.5e-8
    expected = torch.full(
        (2, 1), 3 * torch.tensor(-18.0, dtype=torch.float64).exp().item(), dtype=torch.float64
    )
    torch.testing.assert_close(
        Diag.of_batch(features, probabilities).diagonal, expected, rtol=1e-6, atol=0.0
    )


@pytest.mark.parametrize("shared", ["features", "probabilities", "one example"])
def test_kronecker_factors_are_exact_where_examples_share_features_or_probabilities(shared):
    features, probabilities = batch(1 if shared == "one example" else EXAMPLES)
    if shared == "features":
        features = features[:1].expand(EXAMPLES, -1)
    if shared == "probabilities":
        probabilities = probabilities[:1].expand(EXAMPLES, -1)
    curvature = Kron.of_batch(features, probabilities)
    torch.testing.assert_close(
        dense(curvature), autograd_ggn(features, probabilities), rtol=1e-10, atol=1e-12
    )


def test_the_diagonal_class_factor_keeps_the_blocks_of_the_kronecker_product():
    features, probabilities = batch()
    kron, diag_kron = (
        dense(Kron.of_batch(features, probabilities)),
        dense(DiagKron.of_batch(features, probabilities)),
    )
    for first in range(0, CLASSES * FEATURES, FEATURES):
        block = slice(first, first + FEATURES)
        torch.testing.assert_close(diag_kron[block, block], kron[block, block])


@pytest.mark.parametrize("kind", CURVATURES)
def test_batches_in_any_split_and_order_give_the_same_sum(kind):
    features, probabilities = batch(20)
    whole = kind.of_batch(features, probabilities)
    order = torch.randperm(20, generator=seeded(1))
    parts = [kind.of_batch(features[rows], probabilities[rows]) for rows in order.split([1, 12, 7])]
    summed = parts[2] + (parts[0] + parts[1])
    for name, tensor in whole.tensors().items():
        torch.testing.assert_close(summed.tensors()[name], tensor, rtol=1e-12, atol=1e-12)
    assert summed.num_examples == 20


@pytest.mark.parametrize("kind", CURVATURES)
def test_sums_are_in_float64_whatever_the_batch_is_in(kind):
    features, probabilities = batch()
    narrow = kind.of_batch(features.float(), probabilities.float())
    for tensor in narrow.tensors().values():
        assert tensor.dtype == torch.float64


def test_the_class_factor_annihilates_one_to_rounding_after_many_batches():
    total = None
    for seed in range(50):
        part = Kron.of_batch(*batch(100, seed))
        total = part if total is None else total + part
    scale = total.class_factor.diagonal().max()
    assert total.class_factor.sum(-1).abs().max() < 1e-13 * scale
    values = torch.linalg.eigvalsh(total.class_factor)
    assert values[0].abs() < 1e-13 * values[-1]


def test_curvatures_of_different_kinds_or_heads_do_not_add():
    features, probabilities = batch()
    diag = Diag.of_batch(features, probabilities)
    with pytest.raises(lb.errors.ShapeError, match="of its kind"):
        diag + Kron.of_batch(features, probabilities)
    with pytest.raises(lb.errors.ShapeError, match="same head"):
        diag + Diag.of_batch(features[:, :2], probabilities)
    with pytest.raises(lb.errors.ShapeError, match="same examples"):
        Diag.of_batch(features[:2], probabilities)


def test_the_memory_that_is_stated_is_what_the_sums_take():
    features, probabilities = batch()
    for kind in (Diag, Kron, Full):
        held = sum(
            tensor.nbytes for tensor in kind.of_batch(features, probabilities).tensors().values()
        )
        assert kind.num_bytes(FEATURES, CLASSES) == held - 8  # and one number for N
