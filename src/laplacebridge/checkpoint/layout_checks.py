"""Whether a file holds what `layout.py` says, before anything of it is used."""

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from laplacebridge.bridges import BRIDGES
from laplacebridge.checkpoint.entries import labels_from, width_from
from laplacebridge.checkpoint.layout import (
    ENTRIES,
    FORMAT_VERSION,
    LAYOUTS,
    LOGIT_SCALE,
    MULTI_LABEL,
    NETWORK_BLOCKS,
    OF_INDEPENDENT,
    OF_LABELS,
    OF_LAYERS,
    OF_UNUSUAL,
    OF_WHITENED,
    OTHERWISE,
    OUTPUT,
    POLICY,
    SCALARS,
    SHIFT_LABELS,
    TYPES,
    UNUSUAL,
    UNUSUAL_HEAD,
    Part,
    apart,
)
from laplacebridge.errors import CheckpointError
from laplacebridge.selective.policy import Policy


def require_version(path: str | os.PathLike[str], version: str) -> None:
    """Refuses other versions of the format.

    Args:
        path: The file, for messages.
        version: What it says.

    Raises:
        CheckpointError: If it is another one.
    """
    if version == str(FORMAT_VERSION):
        return
    if version.isdecimal() and int(version[:9]) < FORMAT_VERSION:
        advice = (
            "That was before the first release, and such files are not read. Fit again and save"
            " again."
        )
    elif version.isdecimal():
        advice = "It was written by a newer laplacebridge: install that one, or fit and save again."
    else:
        advice = "That is no version: the file is damaged. Take a copy, or fit and save again."
    raise CheckpointError(
        f"{path} has format version {version[:20] or 'none'}; this laplacebridge reads version"
        f" {FORMAT_VERSION}. {advice}"
    )


def require_layout(
    path: object, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Requires that a file holds what its structure needs: entries, tensors, shapes,
    types, finite numbers in their range.

    Args:
        path: The file, for messages.
        tensors: What is in it.
        metadata: What it says about itself.
    """
    reader = _Reader(path, metadata)
    missing, unknown = reader.entries()
    if missing or unknown:
        reader.refuse(f"the metadata {_missing_or_unknown(missing, unknown)}")
    structure, layers = metadata["structure"], reader.layers()
    num_classes, num_features = reader.whole("num_classes"), reader.whole("num_features")
    if LOGIT_SCALE in metadata and not 0 < reader.parsed(LOGIT_SCALE, float) < math.inf:
        reader.refuse(f"`{LOGIT_SCALE}` is {metadata[LOGIT_SCALE][:20]}")
    if metadata["bridge"] and metadata["bridge"] not in BRIDGES:
        reader.refuse(f"it was saved with a bridge {metadata['bridge']!r} that is not known here")
    if metadata.get(MULTI_LABEL, OTHERWISE) not in {OF_LABELS, OTHERWISE}:
        reader.refuse(f"`{MULTI_LABEL}` is {metadata[MULTI_LABEL][:20]!r}")
    if MULTI_LABEL in metadata and structure not in OF_INDEPENDENT:
        reader.refuse(f"a {structure} is not of several labels at once")
    reader.labels(num_classes)
    reader.width()
    reader.policy(num_classes)
    tensors, of_score = apart(tensors)
    if of_score or UNUSUAL_HEAD in metadata:
        if UNUSUAL_HEAD not in metadata:
            reader.refuse(f"the metadata {_missing_or_unknown({UNUSUAL_HEAD}, set())}")
        sizes = {"moments": 2, "parts": 3, "sums": 3}
        if not layers:  # otherwise the features are those of the head, whatever layers there are
            sizes["D"] = num_features
        whitened = any("distance" in name for name in of_score)
        if whitened and "distance.center" in of_score:
            sizes["L"] = of_score["distance.center"].numel() + 1
        _require_block(reader, OF_WHITENED if whitened else OF_UNUSUAL, of_score, sizes, UNUSUAL)
    if structure in LAYOUTS and not layers:
        _require_block(reader, LAYOUTS[structure], tensors, {"K": num_classes, "D": num_features})
    elif structure in NETWORK_BLOCKS and layers:
        _require_network(reader, tensors, layers)
    else:
        known = ", ".join((*LAYOUTS, *NETWORK_BLOCKS))
        reader.refuse(
            f"its structure {structure!r} is not one of {known}, or does not fit `layers`"
        )


class _Reader(NamedTuple):
    """The metadata of a file, read with one kind of error."""

    path: object
    metadata: Mapping[str, str]

    def refuse(self, problem: str) -> NoReturn:
        """Raises with a reason.

        Raises:
            CheckpointError: Always.
        """
        raise CheckpointError(
            f"{self.path} is not a sound classifier: {problem}. It is damaged or was not written by"
            " `laplacebridge.save`. Take a copy, or fit and save again."
        )

    def entries(self) -> tuple[set[str], set[str]]:
        """Entries that are missing, and those that nobody knows."""
        held = set(self.metadata)
        needed = ENTRIES | (OF_LAYERS if held & OF_LAYERS else set())
        known = {UNUSUAL_HEAD, MULTI_LABEL, POLICY, SHIFT_LABELS, LOGIT_SCALE, OUTPUT}
        return needed - held, held - needed - known

    def parsed(self, name: str, parse: Callable[[str], Any]) -> Any:  # noqa: ANN401
        """An entry as what it stands for."""
        text = self.metadata[name]
        try:
            return parse(text)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError):
            self.refuse(f"the entry `{name}` of its metadata cannot be read: {text[:60]!r}")
        except RecursionError:
            self.refuse(f"the entry `{name}` of its metadata is nested too deeply")

    def whole(self, name: str) -> int:
        """A positive whole number."""
        number: int = self.parsed(name, int)
        return number if number > 0 else self.refuse(f"`{name}` is {number}")

    def layers(self) -> list[str]:
        """Names of layers; none for a head."""
        names = self.parsed("layers", json.loads) if "layers" in self.metadata else []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.refuse("`layers` of its metadata is no list of names")
        return names

    def labels(self, num_classes: int) -> None:
        """Refuses label statistics that cannot be."""
        labels = self.parsed("labels", labels_from)
        if labels is None:
            return
        sums = (labels.num_correct, labels.squared_error, labels.fourth_power)
        counts = labels.class_counts
        if not (
            all(_is_number(value) and value >= 0 for value in sums)
            and (labels.log_likelihood is None or _is_number(labels.log_likelihood))
            and counts.shape == ((2,) if MULTI_LABEL in self.metadata else (num_classes,))
            and not counts.is_floating_point()
            and (counts >= 0).all()
        ):
            self.refuse("the label statistics of its metadata are not numbers in their range")

    def width(self) -> None:
        """Refuses a width that cannot be."""
        width = self.parsed("width", width_from)
        if width is not None and not all(map(_is_number, (*width.widening, *width[1:]))):
            self.refuse("the width of its metadata is not made of finite numbers")

    def policy(self, num_classes: int) -> None:
        """Refuses a policy that cannot be."""
        if POLICY in self.metadata:
            policy: Policy = self.parsed(POLICY, Policy.from_text)
            if policy.class_names is not None and len(policy.class_names) != num_classes:
                self.refuse("the names of its metadata are not those of its classes")


def _require_network(reader: _Reader, tensors: Mapping[str, Tensor], layers: list[str]) -> None:
    structure, block = reader.metadata["structure"], reader.metadata["block"]
    if block not in NETWORK_BLOCKS[structure]:
        reader.refuse(f"a {structure} is not made of {block!r}")
    together = structure == "FullNetworkPosterior"  # one block for all layers
    parts: dict[str, dict[str, Tensor]] = {
        f"blocks.{index}.": {} for index in range(1 if together else len(layers))
    }
    scalars: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        prefix = next((prefix for prefix in parts if name.startswith(prefix)), None)
        held = scalars if prefix is None else parts[prefix]
        held[name[len(prefix or "") :]] = tensor
    _require_block(reader, SCALARS, scalars, {})
    layout = {
        name: part if together or not part.shape or name in SCALARS else _grouped(part)
        for name, part in LAYOUTS[block].items()
    }
    for prefix, held in parts.items():
        _require_block(reader, layout, held, {}, prefix)


def _grouped(part: Part) -> Part:
    return part._replace(shape=f"G {part.shape}")


def _require_block(
    reader: _Reader,
    layout: Mapping[str, Part],
    tensors: Mapping[str, Tensor],
    sizes: dict[str, int],
    prefix: str = "",
) -> None:
    """Refuses tensors that are not those of one posterior; sizes are what is known of
    its dimensions.
    """
    needed = {name for name, part in layout.items() if not part.optional}
    missing, unknown = needed - set(tensors), set(tensors) - set(layout)
    if missing or unknown:
        names = ({prefix + name for name in group} for group in (missing, unknown))
        reader.refuse(f"it {_missing_or_unknown(*names)}")
    sizes = dict(sizes)
    types: dict[bool, torch.dtype] = {}
    for name in (name for name in layout if name in tensors):
        part, tensor = layout[name], tensors[name]
        dims = part.shape.split()
        if "E" in dims and "E" not in sizes:
            sizes["E"] = sizes["D"] + ("bias" in tensors)
        if "P" in dims and "P" not in sizes:
            sizes["P"] = sizes["K"] * (sizes["D"] + ("bias" in tensors))
        if len(dims) == tensor.dim():
            expected = tuple(sizes.setdefault(dim, size) for dim, size in zip(dims, tensor.shape))
        if len(dims) != tensor.dim() or tuple(tensor.shape) != expected:
            reader.refuse(
                f"its tensor `{prefix}{name}` has shape {tuple(tensor.shape)}, which does not fit"
                f" ({', '.join(f'{dim} = {sizes.get(dim)}' for dim in dims)})"
            )
        dtype = types.setdefault(part.like_weight, tensor.dtype)
        if tensor.dtype != dtype or dtype not in TYPES:
            reader.refuse(f"its tensor `{prefix}{name}` has the type {tensor.dtype}")
        _require_values(reader, prefix + name, part, tensor)


def _require_values(reader: _Reader, name: str, part: Part, tensor: Tensor) -> None:
    if not tensor.isfinite().all():
        reader.refuse(f"its tensor `{name}` holds NaN or infinity")
    if part.least is not None and tensor.numel():
        least = float(tensor.min())
        if least < part.least or (part.above and least == part.least):
            reader.refuse(f"its tensor `{name}` holds {least:.3g}, which is out of range")


def _missing_or_unknown(missing: set[str], unknown: set[str]) -> str:
    words = []
    if missing:
        words.append(f"lacks {', '.join(map(repr, sorted(missing)))}")
    if unknown:
        words.append(f"holds {', '.join(map(repr, sorted(unknown)))}, which do not belong there")
    return " and ".join(words)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
