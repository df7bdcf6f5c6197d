"""Recording: one forward pass of a network that notes what some layers take in and give
out, ready to differentiate.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace.batch import Batch, logits_of
from laplacebridge.laplace.running import watched


class Recorded(NamedTuple):
    """A forward pass; lists are in the order of the layers."""

    logits: Float[Tensor, "B K"]
    inputs: list[Tensor]
    outputs: list[Tensor]  # the logits can be differentiated by them


def recorded(model: nn.Module, layer_names: Sequence[str], batch: Batch) -> Recorded:
    """Runs a batch in evaluation mode, with gradients even for callers who have
    switched them off.

    Args:
        model: The network.
        layer_names: The layers to watch.
        batch: Inputs.

    Raises:
        InputError: If a layer does not run exactly once with examples first, or the
            logits cannot be differentiated.
    """
    taken: dict[str, list[Tensor]] = {name: [] for name in layer_names}
    given: dict[str, list[Tensor]] = {name: [] for name in layer_names}

    def note(name: str, inputs: Tensor, output: Tensor) -> Tensor:
        if not output.requires_grad:  # its weights are frozen, and it is the first
            output.requires_grad_()
        taken[name].append(inputs.detach())
        given[name].append(output)
        return output.clone()  # what follows may work in place

    layers = {name: model.get_submodule(name) for name in layer_names}
    with (
        watched(model, layers, note),
        torch.inference_mode(mode=False),
        torch.enable_grad(),
    ):
        arguments = [_outside_inference(value) for value in batch.arguments]
        keywords = {name: _outside_inference(value) for name, value in batch.keywords.items()}
        logits = one_row_each(logits_of(model(*arguments, **keywords)), num_examples(batch))
    _require_one_run_each(given, num_examples(batch))
    if not logits.requires_grad:
        raise InputError(
            "The logits do not depend on any of the `layers` in a way that autograd can follow."
            " Does the model run under `torch.no_grad`?"
        )
    return Recorded(
        logits, [taken[name][0] for name in layer_names], [given[name][0] for name in layer_names]
    )


def num_examples(batch: Batch) -> int:
    """How many examples a batch has: the length of the first tensor.

    Args:
        batch: Inputs.

    Raises:
        ShapeError: If there is no tensor.
    """
    for value in (*batch.arguments, *batch.keywords.values()):
        if isinstance(value, Tensor) and value.dim():
            return len(value)
    raise ShapeError(
        "A posterior over several layers needs a tensor among the inputs of the network; there is"
        " none."
    )


def one_row_each(logits: Tensor, num_rows: int) -> Float[Tensor, "B K"]:
    """Logits with one row for each example. One logit z is read as the two logits
    (−z/2, z/2).

    Args:
        logits: As the network gave them.
        num_rows: How many examples there are.

    Raises:
        ShapeError: If there are more or fewer rows.
    """
    if logits.dim() == 1:
        logits = logits.unsqueeze(-1)
    if logits.dim() != 2 or len(logits) != num_rows:
        raise ShapeError(
            "A posterior over several layers needs one prediction for each example, logits of"
            f" shape ({num_rows}, K); got {tuple(logits.shape)}. For tokens and pixels fit the head"
            " alone: leave out `layers`."
        )
    return torch.cat([-logits / 2, logits / 2], -1) if logits.shape[1] == 1 else logits


def _require_one_run_each(outputs: dict[str, list[Tensor]], num_rows: int) -> None:
    for words, wrong in (
        (
            "ran more than once in a forward pass",
            [name for name, runs in outputs.items() if len(runs) > 1],
        ),
        (
            "did not run, or not as modules of their own",
            [name for name, runs in outputs.items() if not runs],
        ),
        (
            f"gave out another number of rows than the {num_rows} examples",
            [name for name, runs in outputs.items() if any(len(run) != num_rows for run in runs)],
        ),
    ):
        if wrong:
            raise InputError(
                f"`layers` matches layers that {words}: {', '.join(map(repr, wrong))}. Each must"
                " run once, with examples first: narrow `layers` to leave these as they were"
                " trained."
            )


def _outside_inference(value: Any) -> Any:  # noqa: ANN401
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value
