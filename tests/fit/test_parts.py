"""Parts of a fit, summed apart and in any order, give the classifier of the whole."""

import itertools

import pytest
import torch
from small_network import examples, fit, loader, trained
from torch import nn

import laplacebridge as lb
from laplacebridge._fit import merged

CURVATURES = [lb.laplace.Diag, lb.laplace.Kron, lb.laplace.DiagKron, lb.laplace.Full]


def parts_of(model, count=4, **options):
    batches = list(loader())
    return [
        lb.partial(model, batches[index::count], shard=f"{index + 1}/{count}", **options)
        for index in range(count)
    ]


def total_of(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


@pytest.mark.parametrize("curvature", CURVATURES)
def test_merged_parts_give_the_classifier_of_the_whole_in_any_order(model, curvature, tmp_path):
    parts = parts_of(model, curvature=curvature)
    for index, part in enumerate(parts):
        part.save(tmp_path / f"{index}.safetensors")
    parts = [lb.FitSums.load(tmp_path / f"{index}.safetensors") for index in range(4)]
    held_out = [examples(200, seed=1)]
    whole, (inputs, _) = fit(model, curvature=curvature, val_loader=held_out), examples(50, seed=2)
    expected = whole(inputs)
    for order in itertools.permutations(range(4)):
        total = total_of([parts[index] for index in order])
        first = total_of(parts)
        for name, tensor in total.curvature.tensors().items():
            largest = first.curvature.tensors()[name].abs().max()
            assert (tensor - first.curvature.tensors()[name]).abs().max() <= 1e-10 * largest
    merged_fit = lb.from_sums(model, total, val_loader=held_out, progress=False)
    found = merged_fit(inputs)
    assert merged_fit.labels.num_labels == 400
    assert merged_fit.evidence() == pytest.approx(whole.evidence(), rel=1e-10)
    assert torch.allclose(found.mean, expected.mean, atol=1e-6)
    assert torch.allclose(found.log_odds_variance, expected.log_odds_variance, rtol=1e-4)
    assert torch.equal(found.ood_quantile, expected.ood_quantile)


def test_merging_files_in_another_order_gives_the_same_bits(model):
    parts = parts_of(model)
    one, other = merged(parts), merged(parts[::-1])
    for name, tensor in one.curvature.tensors().items():
        assert torch.equal(tensor, other.curvature.tensors()[name])


def test_what_does_not_belong_together_is_refused(model, tmp_path):
    parts = parts_of(model)
    with pytest.raises(lb.InputError, match="in both sums"):
        parts[0] + parts[0]
    with pytest.raises(lb.InputError, match="1 are missing: 2"):
        merged([parts[0], parts[2], parts[3]])
    with pytest.raises(lb.InputError, match="different splits"):
        merged([parts[0], *parts_of(model, 3)[1:]])
    with pytest.raises(lb.InputError, match="nothing to merge"):
        merged([])
    other = trained(
        lambda: nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)),
        *examples(100),
        steps=2,
        seed=9,
    )
    with pytest.raises(lb.errors.ShapeError, match="same network"):
        parts[0] + lb.partial(other, loader())
    with pytest.raises(lb.InputError, match="another network"):
        lb.from_sums(other, parts[0])
    with pytest.raises(lb.errors.InputTypeError, match="class_weight"):
        lb.from_sums(model, parts[0], class_weight=[1.0])
    with pytest.raises(lb.errors.ShapeError, match="Kron"):
        parts[0] + lb.partial(model, loader(), curvature=lb.laplace.Diag)
    with pytest.raises(lb.InputError, match="at least one batch"):
        lb.partial(model, [])
    lb.save(fit(model), tmp_path / "classifier.safetensors")
    with pytest.raises(lb.CheckpointError, match="does not hold the sums"):
        lb.FitSums.load(tmp_path / "classifier.safetensors")
    path = tmp_path / "part.safetensors"
    parts[0].save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(lb.CheckpointError, match="damaged"):
        lb.FitSums.load(path)


def test_labels_count_only_if_every_part_has_them(model):
    labelled, bare = lb.partial(model, loader()), lb.partial(model, [examples(40)[0]])
    assert (labelled + bare).labels is None
    with pytest.raises(lb.InputError, match="prior precision"):
        lb.from_sums(model, labelled + bare, progress=False)
    weighted = lb.partial(model, loader(), class_weight=[1.0, 2.0, 3.0])
    whole = fit(model, class_weight=[1.0, 2.0, 3.0])
    assert lb.from_sums(model, weighted, progress=False).evidence() == pytest.approx(
        whole.evidence(), rel=1e-10
    )


def test_what_sums_do_not_keep_is_refused():
    class Scaled(nn.Sequential):
        def forward(self, x):
            return 3 * super().forward(x)

    asked = []

    def batches():
        for number in range(5):
            asked.append(number)
            yield torch.randn(9, 4)

    with pytest.raises(lb.InputError, match="scaled logits"):
        lb.partial(Scaled(nn.Linear(4, 3)), batches())
    assert asked == [0]  # and not after a pass over all of them


class Own(nn.Module):
    """A linear map that does not say how many features it takes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        return nn.functional.linear(x, self.weight)


def test_a_head_that_is_another_linear_map_can_be_merged(tmp_path):
    model, inputs, labels = (
        nn.Sequential(nn.ReLU(), Own()),
        torch.randn(60, 4),
        torch.arange(60) % 3,
    )
    parts = [
        lb.partial(model, [(inputs[:40], labels[:40])]),
        lb.partial(model, [(inputs[40:], labels[40:])]),
    ]
    (parts[0] + parts[1]).save(tmp_path / "sums.safetensors")
    again = lb.FitSums.load(tmp_path / "sums.safetensors")
    found = lb.from_sums(model, again, prior_precision=1.0, progress=False)(inputs)
    whole = lb.fit(model, [(inputs, labels)], prior_precision=1.0, progress=False)(inputs)
    torch.testing.assert_close(found.mean, whole.mean)


def test_where_logits_are_is_said_to_those_who_cannot_name_it():
    class Named(nn.Sequential):
        def forward(self, x):
            return {"scores": super().forward(x)}

    with pytest.raises(lb.errors.HeadNotFoundError, match="as for `partial`, wrap the model"):
        lb.partial(Named(nn.Linear(4, 3)), [torch.randn(9, 4)])
