"""Features: a network split at its head.

The head is the linear layer, or convolution with a 1 x 1 kernel, whose output is the
network's logits, or those divided by a number; or another module that is a linear map,
such as a layer with an adapter. `find_head` finds it. Nothing is changed: hooks are
removed and every module is left in the mode it was in.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge._checks import HALF_PRECISION, is_readable
from laplacebridge.errors import HeadNotFoundError
from laplacebridge.laplace.affine import Affine, affine_map, is_linear
from laplacebridge.laplace.batch import Batch, Output, unpack_batch
from laplacebridge.laplace.head_pass import Passed, as_rows, last_run
from laplacebridge.laplace.head_refusals import known_endings, layers_of, not_its_head
from laplacebridge.laplace.network import Network, fingerprint
from laplacebridge.laplace.rounding import common_scale, nearly_equal
from laplacebridge.laplace.running import watched


class HeadNetwork(Network):
    """A network split at its head: features on one side, weight and bias on the other.

    Args:
        model: The network; it is not changed.
        head_name: The name of its head in `named_modules`; the empty string if the
            network is the head itself.
        num_features: How many features it takes, if it may be another module that is a
            linear map.
        output: Where the logits are in what the network returns, if that is unusual.

    Raises:
        HeadNotFoundError: If there is no such linear layer.
    """

    def __init__(
        self,
        model: nn.Module,
        head_name: str,
        *,
        num_features: int | None = None,
        output: Output | None = None,
    ) -> None:
        super().__init__(model)
        self.head_name = head_name
        self.may_end_in_sigmoid = False
        self.output = output
        self.scale = 1.0  # the network's logits are those of its head times this
        # of a head that is no linear layer, but does the same
        self._affine: Affine | None = None
        head = dict(model.named_modules()).get(head_name)
        if head is not None and not is_linear(head):
            taken = num_features or getattr(head, "in_features", None)
            self._affine = affine_map(head, taken) if isinstance(taken, int) else None
        if head is None or (not is_linear(head) and self._affine is None):
            raise HeadNotFoundError(
                f"No linear layer called '{head_name}' in {type(model).__name__};"
                f" {layers_of(model)}."
            )

    @property
    def head(self) -> nn.Module:
        """The last linear layer."""
        # not `get_submodule`, which not every compiler of torch can follow
        module = self.model
        for name in self.head_name.split(".") if self.head_name else ():
            module = getattr(module, name)
        return module

    @property
    def is_binary(self) -> bool:
        """Whether the head has a single logit, which stands for two classes."""
        return self._map().weight.shape[0] == 1

    def _map(self) -> Affine:
        """What the head does to features, without the scale."""
        if self._affine is not None:
            return self._affine
        weight: Tensor = self.head.weight  # type: ignore[assignment]
        bias: Tensor | None = self.head.bias  # type: ignore[assignment]
        return Affine(weight.detach().flatten(1), None if bias is None else bias.detach())

    def _scaled(self, values: Tensor) -> Tensor:
        return values if self.scale == 1 else values * self.scale

    def weight(self) -> Float[Tensor, "K D"]:
        """Weights of the head. One logit z is read as the two logits (−z/2, z/2)."""
        weight = self._scaled(self._map().weight)
        return torch.cat([-weight / 2, weight / 2]) if self.is_binary else weight

    def bias(self) -> Float[Tensor, " K"] | None:
        """Bias of the head, or None."""
        bias = self._map().bias
        if bias is None:
            return None
        bias = self._scaled(bias)
        return torch.cat([-bias / 2, bias / 2]) if self.is_binary else bias

    def forward(self, *arguments: Any, **keywords: Any) -> Float[Tensor, "B D"]:  # noqa: ANN401
        """Features, the input of the head, one row for every prediction."""
        return self.run(Batch(arguments, keywords, None)).features

    @property
    def num_features(self) -> int:
        """D, what the head takes."""
        return self._map().weight.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the head is."""
        return self._map().weight.device

    def described(self) -> str:
        """What is covered by a posterior, in a few words."""
        return f"head '{self.head_name}' ({self.num_features} features)"

    def covered(self) -> dict[str, Any]:
        """The head's name and how many features it takes."""
        return {"head": self.head_name, "features": self.num_features}

    def metadata(self) -> dict[str, str]:
        """The head's name, features and fingerprint."""
        special = {"shift_labels": "1"} if self.shift_labels else {}
        if self.scale != 1:
            special["logit_scale"] = repr(self.scale)
        if isinstance(self.output, str):
            special["output"] = self.output
        return {
            **special,
            "num_features": str(self.num_features),
            "head": self.head_name,
            "fingerprint": fingerprint(self.weight(), self.bias()),
        }

    def join(self, parts: Sequence[Tensor]) -> Float[Tensor, "N D"]:
        """Features of several batches as one.

        Args:
            parts: Features.
        """
        return torch.cat(list(parts))

    def run(self, batch: Batch) -> Passed:
        """Features and logits of a batch, in evaluation mode.

        Args:
            batch: Inputs of the network.

        Raises:
            HeadNotFoundError: If the network did not run its head.
            ShapeError: If they are one example, without a batch dimension.
        """
        head = self.head
        seen, output = last_run(self.model, {self.head_name: head}, batch, self.output)
        if seen is None:
            raise HeadNotFoundError(
                f"{type(self.model).__name__} ran without going through its layer"
                f" '{self.head_name}'; {layers_of(self.model)}."
            )
        passed = as_rows(head, seen, output, scale=self.scale)
        if self.scale != 1 and is_readable(output):
            alike = passed.output.reshape(passed.logits.shape)
            if not nearly_equal(alike, passed.logits):
                raise HeadNotFoundError(
                    f"{type(self.model).__name__} multiplied the logits of '{self.head_name}' by"
                    f" {self.scale:.4g} when it was fitted, and by something else now. A scale that"
                    " depends on the input is no part of a linear map: train with it inside the"
                    " features, or leave it out."
                )
        return passed

    def row_shape(self, batch: Batch, rows: int) -> tuple[int, int] | None:
        """(B, T) if rows are T tokens of B texts; None if each is an example by itself,
        or a pixel.

        Args:
            batch: Inputs of the network.
            rows: How many predictions they give.
        """
        for value in (*batch.arguments, *batch.keywords.values()):
            if isinstance(value, Tensor) and value.dim() > 1:
                examples, tokens = value.shape[:2]
                if tokens > 1 and examples * tokens == rows > 0:
                    is_convolution = hasattr(self.head, "kernel_size")
                    return None if is_convolution else (examples, tokens)
        return None

    @contextmanager
    def capturing(self, note: Callable[[Tensor, Tensor], None]) -> Iterator[None]:
        """Notes what the head takes and gives while something else runs the network,
        such as `generate`; passes of other threads are not seen.

        Args:
            note: Takes features, as they come, and the network's logits of them, after
                each run of the head.
        """

        def noted(_: str, features: Tensor, logits: Tensor) -> None:
            note(features, self._scaled(logits))

        with watched(self.model, {self.head_name: self.head}, noted):
            yield

    def for_posterior(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Features, and the logits unless the posterior must compute them itself.

        Args:
            batch: Inputs of the network.
        """
        passed = self.run(batch)
        return passed.features, self._usable_logits(passed)

    def _usable_logits(self, passed: Passed) -> Float[Tensor, "B K"] | None:
        """The head's logits, unless one stands for two classes, or they are as coarse
        as half precision is.

        Nor if a gradient could flow through them: a prediction should depend on inputs,
        not on weights of the head.
        """
        logits = passed.logits
        unusable = logits.shape[-1] == 1 or logits.dtype in HALF_PRECISION or logits.requires_grad
        return None if unusable else logits

    def exact_logits(self, passed: Passed) -> Float[Tensor, "B K"]:
        """Logits of all classes in float64.

        Args:
            passed: What a batch gave.
        """
        usable = self._usable_logits(passed)
        if usable is not None:
            return usable.double()
        return self.logits_at(passed.features)

    def logits_at(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        """Logits of all classes in float64, from features.

        Args:
            features: Inputs of the head.
        """
        bias = self.bias()
        return nn.functional.linear(
            features.double(),
            self.weight().double(),
            None if bias is None else bias.double(),
        )

    def verify(self, batch: Any) -> None:  # noqa: ANN401
        """Makes sure that the network's output is what the head makes of the features.

        Args:
            batch: A batch as its loader yields it.

        Raises:
            HeadNotFoundError: If it is not; the message says what it seems to be.
        """
        with torch.no_grad():
            self.verify_pass(self.run(unpack_batch(batch)))

    def verify_pass(self, passed: Passed) -> None:
        """The same of what a batch gave.

        Args:
            passed: Its features, and the logits of head and network.

        Raises:
            HeadNotFoundError: As `verify`.
        """
        head = self._map()
        with torch.no_grad():
            bias = None if head.bias is None else self._scaled(head.bias)
            expected = nn.functional.linear(passed.features, self._scaled(head.weight), bias)
        found = passed.output
        if found.numel() == expected.numel():
            alike = found.reshape(expected.shape)
            if nearly_equal(alike, expected):
                return
            scale = common_scale(alike, expected)
            # where the layer itself gives other logits than its weights, no scale follows it
            within = nearly_equal(alike, passed.logits)
            if scale is not None and self.scale == 1 and not within:
                self.scale = scale
                return
        name = self.head_name or type(self.model).__name__
        if found.shape == expected.shape:
            if self.may_end_in_sigmoid and nearly_equal(found, expected.sigmoid()):
                return
            ending = known_endings(found, expected, name, is_binary=self.is_binary)
            if ending is not None:
                raise HeadNotFoundError(ending)
        raise HeadNotFoundError(not_its_head(found, expected, name, self.model))
