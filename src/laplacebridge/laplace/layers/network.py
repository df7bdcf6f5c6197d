"""A network seen as linear in the weights of some layers: its logits, and what they
change by with each weight.

One forward pass records what each layer takes in, and one backward pass per logit what
that logit changes by with what each layer gives out. Per layer these two are all that a
curvature or a covariance needs; the Jacobian itself, K numbers for every weight and
example, is formed by layer and for a few examples at a time. Batches of any size are
walked over in chunks of examples that keep within `BYTES_AT_ONCE`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from laplacebridge import _blocks
from laplacebridge._checks import rows_of
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace.batch import Batch, logits_of
from laplacebridge.laplace.layers.jacobian import LayerJacobian, Linearised
from laplacebridge.laplace.layers.layer import ParameterLayer
from laplacebridge.laplace.layers.recording import num_examples, one_row_each, recorded
from laplacebridge.laplace.network import Network, fingerprint
from laplacebridge.laplace.rounding import nearly_equal
from laplacebridge.laplace.running import eval_mode

Root = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Linearisation:
    """Examples that will be linearised, chunk by chunk, when their Gaussian over logits
    is asked for.

    Attributes:
        network: The network.
        batch: Its inputs.
    """

    network: "LinearisedNetwork"
    batch: Batch

    def __len__(self) -> int:
        return num_examples(self.batch)

    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "Linearisation":
        """Some examples; an integer keeps the batch dimension."""
        size = len(self)
        chosen = rows_of(rows, size)

        def pick(value: Any) -> Any:  # noqa: ANN401
            return (
                value[chosen]
                if isinstance(value, Tensor) and value.dim() and len(value) == size
                else value
            )

        arguments = tuple(pick(value) for value in self.batch.arguments)
        keywords = {name: pick(value) for name, value in self.batch.keywords.items()}
        return Linearisation(self.network, Batch(arguments, keywords, None))

    def chunks(self, root: Root | None = None) -> Iterator[Linearised]:
        """The examples in order, as many at a time as keep within `BYTES_AT_ONCE` and
        at least one.

        Args:
            root: From logits to the S combinations of them to differentiate, shape (B,
                S, K); by default each logit.
        """
        if not len(self):
            return
        size = max(1, _blocks.BYTES_AT_ONCE // self.network.bytes_per_example(self[:1].batch))
        for start in range(0, len(self), size):
            yield self.network.linearised(self[start : start + size].batch, root)


class LinearisedNetwork(Network):
    """A network, linear in the weights of some of its layers.

    Args:
        model: The network; it is not changed.
        layer_names: Names of these layers in `named_modules`, as `matching_layers`
            finds them.
    """

    runs_backward = True

    def __init__(self, model: nn.Module, layer_names: Sequence[str]) -> None:
        super().__init__(model)
        self.layer_names = tuple(layer_names)
        self._bytes_per_example: dict[tuple[Any, ...], int] = {}

    @property
    def layers(self) -> tuple[ParameterLayer, ...]:
        """The layers, in the order of the network."""
        return tuple(ParameterLayer(self.model.get_submodule(name)) for name in self.layer_names)  # type: ignore[arg-type]

    @property
    def num_parameters(self) -> int:
        """P, the weights of all these layers."""
        return sum(
            parameter.numel()
            for layer in self.layers
            for parameter in layer.module.parameters(recurse=False)
        )

    @property
    def num_features(self) -> int:
        """What the last of these layers takes, for each of its outputs."""
        return self.layers[-1].weight().shape[-1]

    @property
    def device(self) -> torch.device:
        """Where the layers are."""
        return self.layers[0].module.weight.device

    def described(self) -> str:
        """What a posterior covers, in a few words."""
        names = [f"'{name}'" for name in self.layer_names]
        shown = ", ".join(names) if len(names) <= 4 else f"{names[0]}, …, {names[-1]}"
        return f"{len(names)} layers {shown} ({self.num_parameters} weights)"

    def forward(self, *arguments: Any, **keywords: Any) -> Linearisation:  # noqa: ANN401
        """What a posterior over these layers takes: the inputs, which are run when it
        needs them.
        """
        return Linearisation(self, Batch(arguments, keywords, None))

    def for_posterior(self, batch: Batch) -> tuple[Linearisation]:
        """The same; of a head it would be features and logits.

        Args:
            batch: Inputs of the network.
        """
        return (Linearisation(self, batch),)

    def covered(self) -> dict[str, Any]:
        """The layers' names and how many weights they have."""
        return {"layers": list(self.layer_names), "weights": self.num_parameters}

    def metadata(self) -> dict[str, str]:
        """The layers' names and fingerprint."""
        return {
            "num_features": str(self.num_features),
            "head": self.layer_names[-1],
            "layers": json.dumps(self.layer_names),
            "fingerprint": fingerprint(
                *(tensor for layer in self.layers for tensor in (layer.weight(), layer.bias()))
            ),
        }

    def join(self, parts: Sequence[Linearisation]) -> Linearisation:
        """Several batches as one.

        Args:
            parts: Of the same network.

        Raises:
            ShapeError: If their examples have different shapes.
        """

        def join(values: Sequence[Any]) -> Any:  # noqa: ANN401
            if not isinstance(values[0], Tensor) or not values[0].dim():
                return values[0]
            shapes = {value.shape[1:] for value in values}
            if len(shapes) > 1:
                raise ShapeError(
                    "Examples of a posterior over several layers are kept together, and must have"
                    f" one shape; got {', '.join(str(tuple(shape)) for shape in sorted(shapes))}."
                    " Pad them to the same size."
                )
            return torch.cat(list(values))

        batches = [part.batch for part in parts]
        arguments = tuple(map(join, zip(*(batch.arguments for batch in batches))))
        keywords = {
            name: join([batch.keywords[name] for batch in batches]) for name in batches[0].keywords
        }
        return Linearisation(parts[0].network, Batch(arguments, keywords, None))

    def linearised(self, batch: Batch, root: Root | None = None) -> Linearised:
        """Runs a batch forward once, and backward once for each logit.

        Args:
            batch: Inputs; all of them at once.
            root: From logits to the S combinations of them to differentiate, shape (B,
                S, K); by default each logit.

        Raises:
            InputError: If the logits do not depend on a layer.
        """
        logits, inputs, outputs = recorded(self.model, self.layer_names, batch)
        detached = logits.detach()
        seeds = _each_logit(detached) if root is None else root(detached).to(logits.dtype)
        by_output = [
            output.new_empty(len(output), seeds.shape[1], *output.shape[1:]) for output in outputs
        ]
        for index in range(seeds.shape[1]):
            found = torch.autograd.grad(
                logits, outputs, seeds[:, index], retain_graph=True, allow_unused=True
            )
            for name, gradient, kept in zip(self.layer_names, found, by_output):
                if gradient is None:
                    raise InputError(
                        f"The logits do not depend on the layer '{name}' in a way that autograd can"
                        " follow. Does part of the model run under `torch.no_grad`, or is its"
                        " output left out? Narrow `layers` to leave it as it was trained."
                    )
                kept[:, index] = gradient
        return Linearised(detached, tuple(map(LayerJacobian, self.layers, inputs, by_output)))

    def bytes_per_example(self, example: Batch) -> int:
        """Memory that one example takes while it is linearised, found by running it
        once.

        Args:
            example: A batch of one.
        """
        values = [*example.arguments, *example.keywords.values()]
        shapes = tuple((value.shape, value.dtype) for value in values if isinstance(value, Tensor))
        if shapes not in self._bytes_per_example:
            self._bytes_per_example[shapes] = self._measured(example)
        return self._bytes_per_example[shapes]

    def _measured(self, example: Batch) -> int:
        parameters = {
            parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()
        }
        saved: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in parameters:
                saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            logits, inputs, outputs = recorded(self.model, self.layer_names, example)
        # of each layer its input and output, a gradient for every logit, and those of
        # one backward pass
        recorded_bytes = sum(map(_num_bytes, inputs)) + (logits.shape[1] + 2) * sum(
            map(_num_bytes, outputs)
        )
        return sum(saved.values()) + recorded_bytes

    def verify(self, batch: Batch) -> int:
        """Makes sure that this network can be linearised, by running one example; and
        says how many classes it has.

        Args:
            batch: Inputs.

        Raises:
            InputError: If a layer does not run exactly once or does not do what its
                kind does, or if the model returns something else than logits, or logits
                that depend on other examples.
        """
        example = Linearisation(self, batch)[:1].batch
        alone = self.linearised(example).logits
        with torch.no_grad(), eval_mode(self.model):
            together = one_row_each(
                logits_of(self.model(*batch.arguments, **batch.keywords)), num_examples(batch)
            )
        if not nearly_equal(alone, together[:1]):
            raise InputError(
                "The model's answer for an example depends on the other examples of its batch. A"
                " posterior over several layers needs examples on their own: leave out `layers` to"
                " fit the head alone."
            )
        if (together >= 0).all() and nearly_equal(
            together.sum(-1), torch.ones_like(together[:, 0])
        ):
            raise InputError(
                "The model returns probabilities; logits are needed. Remove the softmax, or wrap"
                " the model up to it (losses such as cross-entropy take logits as they are)."
            )
        _, inputs, outputs = recorded(self.model, self.layer_names, example)
        for name, layer, taken, given in zip(self.layer_names, self.layers, inputs, outputs):
            found, expected = (
                layer.gradients(given.detach().unsqueeze(1), given.dtype)[:, :, 0],
                layer.product(taken),
            )
            if found.shape != expected.shape or not nearly_equal(found, expected):
                raise InputError(
                    f"The layer '{name}' ({type(layer.module).__name__}) does not give its weights"
                    " times its input; has its class a forward of its own? Narrow `layers` to"
                    " leave it as it was trained."
                )
        return alone.shape[1]


def _each_logit(logits: Tensor) -> Tensor:
    batch, num_classes = logits.shape
    return torch.eye(num_classes, dtype=logits.dtype, device=logits.device).expand(batch, -1, -1)


def _num_bytes(tensor: Tensor) -> int:
    return tensor.nbytes
