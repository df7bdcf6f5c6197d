"""Networks from the command line: what `package.module:name` stands for, weights from
files, saved classifiers.
"""

import importlib
import os
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn

from laplacebridge._files import read_arrays, read_safetensors
from laplacebridge.bridges import BRIDGES
from laplacebridge.checkpoint.layout import MULTI_LABEL
from laplacebridge.checkpoint.saved_classifier import linear_layer
from laplacebridge.classifier import Classifier
from laplacebridge.cli.classifier_files import read_classifier, with_network
from laplacebridge.errors import InputError, LaplaceBridgeError
from laplacebridge.laplace.network import unwrapped

if TYPE_CHECKING:
    from laplacebridge.cli.data import Batches
    from laplacebridge.cli.options import BridgeName

# What training scripts keep the weights under.
WRAPPERS = ("state_dict", "model_state_dict", "model")
SHOWN_NAMES = 3


def import_object(source: str, option: str) -> Any:  # noqa: ANN401
    """What ``package.module:name`` stands for; the current folder can be imported from.

    Args:
        source: The module and the name in it.
        option: The option that it was given with.
    """
    module_name, _, name = source.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"needs package.module:name; got '{source}'.", param_hint=option)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(
            f"{error.name}."
        ):
            raise typer.BadParameter(
                f"there is no module '{error.name}' in {os.getcwd()} or among the installed"
                " packages. Write it as after `import`, without .py.",
                param_hint=option,
            ) from error
        raise LaplaceBridgeError(
            f"Importing `{module_name}` failed: {type(error).__name__}: {error}"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(f"'{module_name}' has no '{name}'.", param_hint=option)
        found = getattr(found, part)
    return found


def call_factory(source: str, factory: object) -> Any:  # noqa: ANN401
    """What a user's function returns, which must take no arguments.

    Args:
        source: What the user wrote.
        factory: What it stands for.
    """
    if not callable(factory):
        raise InputError(
            f"`{source}` must be a function without arguments; it is a {type(factory).__name__}."
        )
    try:
        return factory()
    except Exception as error:
        raise LaplaceBridgeError(f"`{source}` failed: {type(error).__name__}: {error}") from error


def network_from(
    model: str | None, weights: Path | None, head_only: Path | None
) -> nn.Module | None:
    """The network of a factory, filled with weights if there are any; or a head alone;
    or None if neither is given.

    Args:
        model: ``package.module:factory``.
        weights: A file of its weights.
        head_only: A file with its last layer.
    """
    if model is not None and head_only is not None:
        raise typer.BadParameter(
            "give a network or its last layer alone, not both.", param_hint="--model or --head-only"
        )
    if model is None:
        if weights is not None:
            raise typer.BadParameter("belong to a --model.", param_hint="--weights")
        return None if head_only is None else read_head(head_only)
    found = import_object(model, "--model")
    network = found if isinstance(found, nn.Module) else call_factory(model, found)
    if not isinstance(network, nn.Module):
        raise InputError(
            f"`{model}` must return a torch.nn.Module; it returned {type(network).__name__}."
        )
    if weights is not None:
        load_weights(network, weights)
    return network


def network_to_fit(
    model: str | None, weights: Path | None, head_only: Path | None, device: str
) -> nn.Module:
    """The network that `network_from` gives, on a device; one must be given."""
    network = network_from(model, weights, head_only)
    if network is None:
        raise typer.BadParameter(
            "give either a network or its last layer alone.", param_hint="--model or --head-only"
        )
    return network.to(device_named(device))


def load_classifier(
    path: Path,
    data: "Batches",
    *,
    model: str | None,
    weights: Path | None,
    head_only: Path | None,
    device: str,
    bridge: "BridgeName | None",
    multi_label: bool = False,
) -> Classifier:
    """A saved classifier, whose file is opened once. Without a network it takes
    features.

    Args:
        path: The file.
        data: What will be predicted.
        model: As for `network_from`.
        weights: The same.
        head_only: The same; without either, the head is the one in the classifier's
            file.
        device: Where to compute.
        bridge: Another bridge than the saved one.
        multi_label: Whether the command knows what to do with several labels at once.
    """
    network = network_from(model, weights, head_only)
    saved = read_classifier(path)
    if MULTI_LABEL in saved.metadata and not multi_label:
        raise typer.BadParameter(
            f"{path} is of several labels at once, which `info`, `predict`, `report`, `export`,"
            " `score` and `serve` take; for the rest use it from Python: `lb.load(path, model)`.",
            param_hint="CLASSIFIER",
        )
    if model is None and saved.layer_names:
        raise typer.BadParameter(
            f"{path} covers the layers {', '.join(saved.layer_names)} and needs the whole network.",
            param_hint="--model",
        )
    if network is None and data.holds == "inputs" and saved.metadata["head"]:
        raise typer.BadParameter(
            f"{data.source} has inputs, which need the network: give --model. Only features can do"
            " without.",
            param_hint="DATA",
        )
    chosen = (network or saved.head()).to(device_named(device))
    other = BRIDGES[bridge.value] if bridge else None
    return with_network(saved, chosen, model=model, weights=weights, bridge=other)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """A state dict, out of the wrappers that training scripts save it in. Nothing is
    ever unpickled.

    Args:
        path: A safetensors file, or one that `torch.save` wrote.
    """
    if path.suffix == ".safetensors":
        return dict(read_safetensors(path).tensors)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (
        UnpicklingError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
    ) as error:
        raise InputError(
            f"{path} cannot be read as a state dict: it is damaged, or holds Python objects beside"
            " tensors, which are never unpickled because that can run any code. Save it again with"
            " `torch.save(model.state_dict(), path)`, or as safetensors."
        ) from error
    for wrapper in WRAPPERS:
        if isinstance(state, Mapping) and isinstance(state.get(wrapper), Mapping):
            state = state[wrapper]
    if not isinstance(state, Mapping) or not any(
        isinstance(value, Tensor) for value in state.values()
    ):
        raise InputError(
            f"{path} needs to hold a state dict, names and tensors, by itself or under"
            f" {_listed(WRAPPERS)}; it holds"
            f" {_listed(list(state)) if isinstance(state, Mapping) else type(state).__name__}."
        )
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def load_weights(model: nn.Module, path: Path) -> None:
    """Puts the weights of a file into a network, all of them and nothing else.

    What torch can do without, such as batch counters of batch normalisation in old
    files, may be missing.
    """
    state = _named_as_in(model, read_state_dict(path))
    refused = f"The weights are not those of {type(model).__name__}:"
    for name, tensor in model.state_dict().items():
        if name in state and state[name].shape != tensor.shape:
            raise InputError(
                f"{refused} '{name}' has shape {tuple(state[name].shape)} in {path} and"
                f" {tuple(tensor.shape)} in the network. Is its number of classes another one?"
            )
    missing, unknown = model.load_state_dict(state, strict=False)
    problems = [f"lacks {_listed(missing)}"] if missing else []
    problems += [f"has {_listed(unknown)} too many"] if unknown else []
    if problems:
        raise InputError(
            f"{refused} {path} {' and '.join(problems)}. Give the weights of this network, or the"
            " factory of theirs."
        )


def read_head(path: Path) -> nn.Linear:
    """A linear layer from an npz or safetensors file with `weight`, shape (K, D), and
    perhaps `bias`, shape (K,).
    """
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        tensors = {
            name: torch.from_numpy(array)
            for name, array in arrays.items()
            if array.dtype.kind in "fiu"
        }
    else:
        tensors = read_safetensors(path).tensors
    weight, bias = tensors.get("weight"), tensors.get("bias")
    if weight is None or weight.dim() != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        shapes = {name: tuple(tensor.shape) for name, tensor in list(tensors.items())[:SHOWN_NAMES]}
        raise InputError(
            f"{path} needs `weight` of shape (K, D) and, if the head has one, `bias` of shape (K,);"
            f" it holds {shapes or 'no numbers'}."
        )
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    return linear_layer(weight.to(dtype), None if bias is None else bias.to(dtype))


def device_named(name: str) -> torch.device:
    """A device that is there."""
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise typer.BadParameter(
            f"'{name}' cannot be used here: {reason}", param_hint="--device"
        ) from error


def seed_everything(seed: int) -> None:
    """Seeds the global random numbers, for the user's factories and loaders; this
    library draws none of them.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (loaders use it)
    torch.manual_seed(seed)


def _named_as_in(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the names of a network, whatever wraps the one or the other."""
    own = model.state_dict()
    names = {unwrapped(name): name for name in own}
    renamed = {
        name if name in own else names.get(unwrapped(name), unwrapped(name)): tensor
        for name, tensor in state.items()
    }
    return renamed if len(renamed) == len(state) else state  # two may differ in that alone


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN_NAMES])
    return f"{shown} and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else shown
