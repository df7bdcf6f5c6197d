"""Weights from files: state dicts, heads alone, and the head inside a saved classifier. Nothing is ever unpickled."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from laplacebridge import checkpoint
from laplacebridge.errors import CheckpointError, LaplaceBridgeError

# What training scripts keep the weights under, and what wrappers put before their names.
WRAPPERS = ("state_dict", "model_state_dict", "model")
PREFIXES = ("module.", "_orig_mod.")
SHOWN_NAMES = 3


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file.

    Args:
        path: The file.
    """
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_arrays(file: Path | BufferedIOBase, *, name: str = "") -> dict[str, np.ndarray]:
    """Arrays of an npz file.

    Args:
        file: The file, or a stream of it.
        name: What to call it in messages; by default its path.

    Raises:
        LaplaceBridgeError: If it is damaged or holds Python objects.
    """
    try:
        with np.load(file, allow_pickle=False) as held:
            return {key: held[key] for key in held.files}
    except (ValueError, TypeError, AttributeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise LaplaceBridgeError(
            f"{name or file} cannot be read as an .npz file: it is damaged, of another format or holds Python objects, "
            "which are never unpickled. Write arrays of numbers with `numpy.savez(path, name=array)`."
        ) from error


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """A state dict, out of the wrappers that training scripts save it in.

    Args:
        path: A safetensors file, or one that `torch.save` wrote.

    Raises:
        LaplaceBridgeError: If the file is damaged, or holds something else.
    """
    if path.suffix == ".safetensors":
        return _without_prefix(read_safetensors(path))
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise LaplaceBridgeError(
            f"{path} cannot be read as a state dict: it is damaged, or holds Python objects beside tensors, which are "
            "never unpickled because that can run any code. Save it again with `torch.save(model.state_dict(), path)`, "
            "or as safetensors."
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(state, Mapping) and isinstance(state.get(wrapper), Mapping):
            state = state[wrapper]
    if not isinstance(state, Mapping) or not any(isinstance(value, Tensor) for value in state.values()):
        raise LaplaceBridgeError(
            f"{path} needs to hold a state dict, names and tensors, by itself or under {_listed(WRAPPERS)}; it holds "
            f"{_listed(list(state)) if isinstance(state, Mapping) else type(state).__name__}."
        )
    return _without_prefix({name: value for name, value in state.items() if isinstance(value, Tensor)})


def load_weights(model: nn.Module, path: Path) -> None:
    """Puts the weights of a file into a network, all of them and nothing else.

    Args:
        model: The network.
        path: The file.

    Raises:
        LaplaceBridgeError: If names or shapes do not agree.
    """
    state, expected = read_state_dict(path), model.state_dict()
    missing = [name for name in expected if name not in state]
    unknown = [name for name in state if name not in expected]
    problems = [f"lacks {_listed(missing)}"] if missing else []
    problems += [f"has {_listed(unknown)} too many"] if unknown else []
    if problems:
        raise LaplaceBridgeError(
            f"The weights are not those of {type(model).__name__}: {path} {' and '.join(problems)}. Give the weights "
            "of this network, or the factory of theirs."
        )
    for name, tensor in expected.items():
        if state[name].shape != tensor.shape:
            raise LaplaceBridgeError(
                f"The weights are not those of {type(model).__name__}: '{name}' has shape {tuple(state[name].shape)} "
                f"in {path} and {tuple(tensor.shape)} in the network. Is its number of classes another one?"
            )
    model.load_state_dict(state)


def read_head(path: Path) -> nn.Linear:
    """A linear layer from a file that holds `weight`, shape (K, D), and perhaps `bias`, shape (K,).

    Args:
        path: An npz or safetensors file.

    Raises:
        LaplaceBridgeError: If it does not.
    """
    if path.suffix == ".npz":
        tensors = {
            name: torch.from_numpy(array) for name, array in read_arrays(path).items() if array.dtype.kind in "fiu"
        }
    else:
        tensors = read_safetensors(path)
    weight, bias = tensors.get("weight"), tensors.get("bias")
    if weight is None or weight.dim() != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        shapes = {name: tuple(tensor.shape) for name, tensor in list(tensors.items())[:SHOWN_NAMES]}
        raise LaplaceBridgeError(
            f"{path} needs `weight` of shape (K, D) and, if the head has one, `bias` of shape (K,); it holds "
            f"{shapes or 'no numbers'}."
        )
    return linear(weight, bias)


def read_metadata(path: Path) -> dict[str, str]:
    """What a saved classifier says about itself, without its tensors.

    Args:
        path: A file written by `laplacebridge.save`.

    Raises:
        CheckpointError: If it is not one.
    """
    with _opened(path) as file:
        metadata = dict(file.metadata() or {})
    if metadata.get("format") != checkpoint.FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not a classifier saved by `laplacebridge.save`.")
    return metadata


def read_scalars(path: Path, names: Sequence[str]) -> dict[str, float]:
    """Single numbers of a safetensors file.

    Args:
        path: The file.
        names: What they are called.
    """
    with _opened(path) as file:
        return {name: float(file.get_tensor(name)) for name in names}


def head_in_classifier(path: Path) -> nn.Linear:
    """The head that a saved classifier was fitted to, which is in its file.

    Args:
        path: A file written by `laplacebridge.save`.
    """
    tensors = read_safetensors(path)
    return linear(tensors["weight"], tensors.get("bias"))


def linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer with given weights, in float64 if they are and in float32 otherwise.

    Args:
        weight: Shape (K, D).
        bias: Shape (K,), or None.
    """
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    num_classes, num_features = weight.shape
    layer = nn.Linear(num_features, num_classes, bias=bias is not None, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


class HeadAlone(nn.Module):
    """A head under the name that it has in its network, where a saved classifier looks for it.

    Args:
        head: The linear layer.
        name: Its name, with dots.
    """

    def __init__(self, head: nn.Linear, name: str) -> None:
        super().__init__()
        *outer, last = name.split(".")
        parent: nn.Module = self
        for part in outer:
            parent.add_module(part, nn.Module())
            parent = parent.get_submodule(part)
        parent.add_module(last, head)
        self._name = name

    def forward(self, features: Tensor) -> Tensor:
        """Logits of features."""
        return self.get_submodule(self._name)(features)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(
            f"{path} cannot be read as a safetensors file: it is damaged, cut short or of another format ({error})."
        ) from error


def _without_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    for prefix in PREFIXES:
        if state and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return dict(state)


def _listed(names: "list[str] | tuple[str, ...]") -> str:
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN_NAMES])
    return f"{shown} and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else shown
