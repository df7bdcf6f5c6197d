"""How a network is run that other threads may run at the same time.

A network is one object, whoever calls it: a hook on a layer sees everybody's passes,
and a layer in evaluation mode is so for everybody. So a hook here answers to the thread
that hung it there, and a module is put back into training mode when the last of the
calls that need it otherwise is over. No call waits for another.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# What a layer took and gave, by its name; a tensor replaces what it gave.
Note = Callable[[str, Tensor, Tensor], Tensor | None]

_changes = threading.Lock()  # of modes and hooks; nobody holds it while a network runs
# By module: how many calls need it in evaluation mode. It was in training mode before.
_calls_in_eval: dict[nn.Module, int] = {}


def eval_mode(model: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode for a while. Modules in training mode are put back into it,
    whatever happens, as soon as no other call in any thread needs them to evaluate.

    Args:
        model: The network.
    """
    return watched(model, {}, lambda *_: None)


@contextmanager
def watched(model: nn.Module, layers: Mapping[str, nn.Module], note: Note) -> Iterator[None]:
    """Evaluation mode, and notes of what layers take and give while this thread runs
    them; passes of other threads are not seen.

    Args:
        model: The network.
        layers: Those of its layers that are watched, by name.
        note: Is called after each run of one of them.
    """
    if torch.compiler.is_dynamo_compiling():
        with _watched_forward(layers, note), _evaluating(model):
            yield
        return
    hung = []
    with _changes:  # torch numbers hooks, and two threads at once could get one number
        for name, layer in layers.items():
            hook = _Hook(name, note)
            hung.append((hook, layer.register_forward_hook(hook, with_kwargs=True)))
        # All are found before any is changed: the mode of one may be that of another.
        changed = [
            module for module in model.modules() if module.training or module in _calls_in_eval
        ]
        for module in changed:
            _calls_in_eval[module] = _calls_in_eval.get(module, 0) + 1
            # Not `eval()`, which some networks answer by changing their weights.
            module.training = False
    try:
        yield
    finally:
        with _changes:
            for module in changed:
                _calls_in_eval[module] -= 1
                if not _calls_in_eval[module]:
                    del _calls_in_eval[module]
                    module.training = True
            for hook, handle in hung:
                handle.remove()
                hook.note = None  # a pass of another thread may still hold it


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """The same for a compiler that reads Python, and knows no locks."""
    changed = [module for module in model.modules() if module.training]
    for module in changed:
        module.training = False
    try:
        yield
    finally:
        for module in changed:
            module.training = True


@contextmanager
def _watched_forward(layers: Mapping[str, nn.Module], note: Note) -> Iterator[None]:
    """The same for a compiler that reads Python, which cannot follow a hook being hung:
    nothing runs while it reads, so that no other thread is there to be told apart.
    """

    def noted(name: str, layer: nn.Module) -> Callable[..., Tensor]:
        def forward(inputs: Tensor) -> Tensor:
            given: Tensor = type(layer).forward(layer, inputs)
            replaced = note(name, inputs, given)
            return given if replaced is None else replaced

        return forward

    for name, layer in layers.items():
        layer.forward = noted(name, layer)
    try:
        yield
    finally:
        for layer in layers.values():
            del layer.forward


def with_own_modes(model: nn.Module) -> nn.Module:
    """A copy of a network's modules with the network's own tensors: its modes can be
    changed while others run the network.

    Args:
        model: The network.
    """
    tensors: dict[int, Any] = {
        id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())
    }
    with _changes:
        return copy.deepcopy(model, tensors)


class _Hook:
    """A forward hook for one call of one thread."""

    def __init__(self, name: str, note: Note | None) -> None:
        self.name = name
        self.note = note  # None once the call is over
        self.thread = threading.get_ident()

    def __call__(self, _: nn.Module, *passed: Any) -> Tensor | None:  # noqa: ANN401
        if self.note is None or threading.get_ident() != self.thread:
            return None
        # only here: another thread may see the hook before torch knows that it takes keywords
        arguments, keywords, output = passed
        given = arguments[0] if arguments else keywords.get("input")
        if not isinstance(given, Tensor) or not isinstance(output, Tensor):
            return None  # modules between layers may take and give anything
        return self.note(self.name, given, output)

    def __reduce__(self) -> tuple[type["_Hook"], tuple[str, None]]:
        # copied or pickled with the network while the call runs: without what it notes
        return _Hook, (self.name, None)
