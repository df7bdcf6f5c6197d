"""A damaged, cut, edited, foreign or newer file is refused with a `CheckpointError`; it
never answers something else without a word, and never raises anything else.
"""

import json
import random
import struct

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_network import examples, fit
from torch import nn

import laplacebridge as lb
from laplacebridge._files import checksum, read_safetensors

FLIPS, CUTS, EDITS = 2000, 200, 100


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "classifier.safetensors"
    lb.save(fit(model), path)
    return path


def outcome(path, model, expected):
    """What loading and predicting gave: refused, unchanged, or what was wrong."""
    inputs, _ = examples(4, seed=1)
    try:
        answer = lb.load(path, model)(inputs).dirichlet.log_concentration
    except lb.CheckpointError as error:
        return "refused" if len(str(error)) > 40 else f"unclear: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "unchanged" if torch.equal(answer, expected) else "silently wrong"


def answer_of(path, model):
    inputs, _ = examples(4, seed=1)
    return lb.load(path, model)(inputs).dirichlet.log_concentration


def edited(content, edit):
    """A file whose header, as JSON, was changed; the tensors follow as they were."""
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + size])
    edit(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def random_edit(generator):
    """Something that a careless or hostile hand does to a header."""
    values = ["", "null", "[]", "{}", "-1", "NaN", "Evil", "1e999", "[1, 2]", '{"a": 1}', "3", "é"]

    def edit(header):
        metadata, names = header["__metadata__"], [name for name in header if name[0] != "_"]
        kind = generator.randrange(6)
        if kind == 0:
            del metadata[generator.choice(sorted(metadata))]
        elif kind == 1:
            metadata[generator.choice(sorted(metadata))] = generator.choice(values)
        elif kind == 2:
            del header[generator.choice(names)]
        elif kind == 3:
            header[generator.choice(names)]["dtype"] = generator.choice(["I64", "BF16", "Evil"])
        elif kind == 4:
            first, second = generator.sample(names, 2)
            header[first], header[second] = header[second], header[first]
        else:
            header[generator.choice(names)]["shape"] = [generator.randrange(9), 7]

    return edit


def test_flips_cuts_and_edits_are_refused_or_change_nothing(saved, model):
    generator, content = random.Random(0), saved.read_bytes()  # noqa: S311
    expected, found = answer_of(saved, model), {}
    cases = []
    for _ in range(FLIPS):
        place = generator.randrange(len(content))
        flipped = bytes([content[place] ^ 1 << generator.randrange(8)])
        cases.append(content[:place] + flipped + content[place + 1 :])
    cases += [content[: generator.randrange(len(content))] for _ in range(CUTS)]
    cases += [edited(content, random_edit(generator)) for _ in range(EDITS)]
    for case in cases:
        saved.write_bytes(case)
        what = outcome(saved, model, expected)
        found[what] = found.get(what, 0) + 1
    assert sum(found.values()) == FLIPS + CUTS + EDITS
    assert set(found) <= {"refused", "unchanged"}, found
    assert found.get("unchanged", 0) < 20, found  # only bits that say nothing, such as padding


def resealed(path, tensors, metadata):
    """Writes a file with a right checksum, as a hostile hand would."""
    metadata = {name: text for name, text in metadata.items() if name != "sha256"}
    save_file(tensors, path, metadata={**metadata, "sha256": checksum(tensors, metadata)})


SCALAR = torch.ones((), dtype=torch.float64)
TENSORS = {
    "prior_precision": [SCALAR * 0, -SCALAR, SCALAR * float("nan"), SCALAR.reshape(1)],
    "temperature": [SCALAR * float("nan"), SCALAR * 0],
    "mean_share": [-SCALAR],
    "class_values": [torch.full((3,), -5.0).double(), torch.ones(4).double(), torch.ones(3).long()],
    "feature_basis": [torch.full((17, 17), float("inf")), torch.eye(16), torch.eye(17).double()],
    "weight": [torch.zeros(3, 16), torch.zeros(16, 3), torch.zeros(48)],
    "bias": [torch.zeros(3) + 1, torch.zeros(4)],
    "blocks.0.weight": [torch.zeros(3, 16)],
}
ENTRIES = {
    "structure": ["DiagPosterior", "NetworkPosterior", "Evil", "", "__class__"],
    "bridge": ["evil", "Race"],
    "num_classes": ["4", "x", "-3", "3.0", "", "9" * 5000],
    "num_features": ["0", "17", "None"],
    "head": ["", "9", "0"],
    "fingerprint": ["", "0" * 64],
    "labels": ["", "{", "[]", "{}", "1", "[" * 100_000, '{"class_counts": [1]}'],
    "width": ["", "1", "[]", "{}", "[[1,1,0,0,1],0]", "[[NaN,1,0,0,1],0,0,0,0,0,0,0,0,1]"],
    "layers": ['["0"]', "[]", "3", "[[]]"],
    "block": ["KronPosterior"],
    "surprise": ["1"],
    "version": ["", "2", "4", "x", "٣"],
}


@pytest.mark.parametrize(
    ("name", "index"), [(n, i) for n, values in TENSORS.items() for i in range(len(values))]
)
def test_a_tensor_that_does_not_fit_is_refused_though_the_checksum_is_right(
    saved, model, name, index
):
    tensors, metadata = load_file(saved), read_safetensors(saved).metadata
    resealed(saved, {**tensors, name: TENSORS[name][index]}, metadata)
    with pytest.raises(lb.CheckpointError, match=r"is not a sound classifier: .*(shape|type|holds|"
                       r"fingerprint|belong)"):  # fmt: skip
        lb.load(saved, model)


@pytest.mark.parametrize(
    ("name", "index"), [(n, i) for n, values in ENTRIES.items() for i in range(len(values))]
)
def test_an_entry_that_does_not_fit_is_refused_though_the_checksum_is_right(
    saved, model, name, index
):
    tensors, metadata = load_file(saved), read_safetensors(saved).metadata
    resealed(saved, tensors, {**metadata, name: ENTRIES[name][index]})
    with pytest.raises(lb.CheckpointError):
        lb.load(saved, model)


def test_every_missing_part_is_named(saved, model):
    tensors, metadata = load_file(saved), read_safetensors(saved).metadata
    for name in sorted(set(metadata) - {"format", "version", "sha256"}):
        resealed(saved, tensors, {key: text for key, text in metadata.items() if key != name})
        with pytest.raises(lb.CheckpointError, match=f"lacks '{name}'"):
            lb.load(saved, model)
    for name in sorted(set(tensors) - {"bias", "unusual.held_back"}):  # which may be missing
        resealed(saved, {key: held for key, held in tensors.items() if key != name}, metadata)
        with pytest.raises(lb.CheckpointError, match=f"lacks '{name}'"):
            lb.load(saved, model)


def test_the_checksum_is_what_notices_a_changed_number(saved, model):
    tensors, metadata = load_file(saved), read_safetensors(saved).metadata
    tensors["class_values"][-1] *= 1.001
    save_file(tensors, saved, metadata=metadata)
    with pytest.raises(lb.CheckpointError, match=r"damaged: .*checksum"):
        lb.load(saved, model)


@pytest.mark.parametrize(
    ("version", "words"), [("1", "Fit again"), ("2", "Fit again"), ("4", "newer laplacebridge")]
)
def test_other_versions_are_told_what_to_do(saved, model, version, words):
    tensors, metadata = load_file(saved), read_safetensors(saved).metadata
    save_file(tensors, saved, metadata={**metadata, "version": version})
    with pytest.raises(lb.CheckpointError, match=f"version {version}; .*{words}"):
        lb.load(saved, model)


def test_a_changed_body_is_warned_of_or_refused(saved, model):
    lb.load(saved, model, strict=True)
    with torch.no_grad():
        model[0].weight[0, 0] += 1e-3
    with pytest.warns(UserWarning, match="other weights or buffers elsewhere"):
        lb.load(saved, model)
    with pytest.raises(lb.CheckpointError, match="other weights or buffers elsewhere"):
        lb.load(saved, model, strict=True)
    lb.load(saved, model[3], strict=True)  # a head alone has no body


def test_changed_statistics_of_batch_normalisation_are_a_changed_body(tmp_path):
    model = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    path = tmp_path / "classifier.safetensors"
    lb.save(fit(model, prior_precision=1.0), path)
    lb.load(path, model.double(), strict=True)  # another type is the same network
    model[0].running_mean += 1
    with pytest.raises(lb.CheckpointError, match="buffers elsewhere"):
        lb.load(path, model, strict=True)
