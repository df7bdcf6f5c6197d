"""Features: find the last linear layer of any network by running it, and split the
network there.

The head is the linear layer, or convolution with a 1 x 1 kernel, whose output is the
network's logits. It is found by watching one batch go through, so it does not matter
how the network is written. Nothing is changed: hooks are removed and every module is
left in the mode it was in.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge._checks import is_half
from laplacebridge.errors import HeadNotFoundError, ShapeError
from laplacebridge.laplace.batch import Batch, logits_of, unpack_batch
from laplacebridge.laplace.network import Network, fingerprint
from laplacebridge.laplace.running import eval_mode, watched


class Passed(NamedTuple):
    """What one batch gave: a row for every prediction, tokens and pixels included."""

    features: Float[Tensor, "B D"]
    logits: Float[Tensor, "B K"]  # of the head, whose layout is known
    output: Tensor  # of the network, which may have reshaped them


class _Seen(NamedTuple):
    """A linear layer as it ran last: what it took and gave."""

    name: str
    features: Tensor
    logits: Tensor


class HeadNetwork(Network):
    """A network split at its head: features on one side, weight and bias on the other.

    Args:
        model: The network; it is not changed.
        head_name: The name of its head in `named_modules`; the empty string if the
            network is the head itself.

    Raises:
        HeadNotFoundError: If there is no such linear layer.
    """

    def __init__(self, model: nn.Module, head_name: str) -> None:
        super().__init__(model)
        modules = dict(model.named_modules())
        if head_name not in modules or not _is_linear(modules[head_name]):
            raise HeadNotFoundError(
                f"No linear layer called '{head_name}' in {type(model).__name__};"
                f" {_candidates(model)}."
            )
        self.head_name = head_name
        self.may_end_in_sigmoid = False

    @classmethod
    def find(
        cls,
        model: nn.Module,
        batch: Any,  # noqa: ANN401
        *,
        may_end_in_sigmoid: bool = False,
    ) -> "HeadNetwork":
        """Runs one batch and splits the network at the last linear layer that it went
        through.

        Args:
            model: The network.
            batch: A batch as its loader yields it.
            may_end_in_sigmoid: Whether a sigmoid may follow, as where there are several
                labels at once: the logits before it are taken.

        Raises:
            HeadNotFoundError: If no linear layer gives the network's output.
        """
        linear = {name: module for name, module in model.named_modules() if _is_linear(module)}
        with torch.no_grad():
            seen, output = _run(model, linear, unpack_batch(batch))
        if seen is None:
            raise HeadNotFoundError(
                f"{type(model).__name__} ran without going through a linear layer;"
                f" {_candidates(model)}. The last layer must be an `nn.Linear` or a convolution"
                " with a 1 x 1 kernel."
            )
        split = cls(model, seen.name)
        split.may_end_in_sigmoid = may_end_in_sigmoid
        split._verify(split._passed(seen, output))
        return split

    @property
    def head(self) -> nn.Module:
        """The last linear layer."""
        return self.model.get_submodule(self.head_name)

    @property
    def is_binary(self) -> bool:
        """Whether the head has a single logit, which stands for two classes."""
        weight: Tensor = self.head.weight  # type: ignore[assignment]
        return weight.shape[0] == 1

    def _weight(self) -> Tensor:
        weight: Tensor = self.head.weight  # type: ignore[assignment]
        return weight.detach().flatten(1)

    def weight(self) -> Float[Tensor, "K D"]:
        """Weights of the head. One logit z is read as the two logits (−z/2, z/2)."""
        weight = self._weight()
        return torch.cat([-weight / 2, weight / 2]) if self.is_binary else weight

    def bias(self) -> Float[Tensor, " K"] | None:
        """Bias of the head, or None."""
        bias: Tensor | None = self.head.bias  # type: ignore[assignment]
        if bias is None:
            return None
        bias = bias.detach()
        return torch.cat([-bias / 2, bias / 2]) if self.is_binary else bias

    def forward(self, *arguments: Any, **keywords: Any) -> Float[Tensor, "B D"]:  # noqa: ANN401
        """Features, the input of the head, one row for every prediction."""
        return self.run(Batch(arguments, keywords, None)).features

    @property
    def num_features(self) -> int:
        """D, what the head takes."""
        return self._weight().shape[1]

    @property
    def device(self) -> torch.device:
        """Where the head is."""
        return self._weight().device

    def described(self) -> str:
        """What is covered by a posterior, in a few words."""
        return f"head '{self.head_name}' ({self.num_features} features)"

    def covered(self) -> dict[str, Any]:
        """The head's name and how many features it takes."""
        return {"head": self.head_name, "features": self.num_features}

    def metadata(self) -> dict[str, str]:
        """The head's name, features and fingerprint."""
        shift = {"shift_labels": "1"} if self.shift_labels else {}
        return {
            **shift,
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
        seen, output = _run(self.model, {self.head_name: self.head}, batch)
        if seen is None:
            raise HeadNotFoundError(
                f"{type(self.model).__name__} ran without going through its layer"
                f" '{self.head_name}'; {_candidates(self.model)}."
            )
        return self._passed(seen, output)

    def _passed(self, seen: _Seen, output: Tensor) -> Passed:
        head, features, logits = self.head, seen.features, seen.logits
        is_linear = isinstance(head, nn.Linear)
        if features.dim() < 2 + (0 if is_linear else len(head.kernel_size)):  # type: ignore[arg-type]
            raise ShapeError(
                f"The head took features of shape {tuple(features.shape)}, without a first"
                " dimension of examples. For one example give `inputs.unsqueeze(0)`; for a data"
                " set `DataLoader(dataset, batch_size=128)`."
            )
        if not is_linear:  # classes of a convolution are its second dimension
            features, logits = features.movedim(1, -1), logits.movedim(1, -1)
            output = _classes_last(output)
        elif output.dim() > 1:
            output = output.reshape(-1, output.shape[-1])
        return Passed(features.flatten(0, -2), logits.flatten(0, -2), output)

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
        unusable = self.is_binary or is_half(passed.logits.dtype) or passed.logits.requires_grad
        return None if unusable else passed.logits

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
            self._verify(self.run(unpack_batch(batch)))

    def _verify(self, passed: Passed) -> None:
        bias: Tensor | None = self.head.bias  # type: ignore[assignment]
        with torch.no_grad():
            expected = nn.functional.linear(passed.features, self._weight(), bias)
        found = passed.output
        if found.numel() == expected.numel() and nearly_equal(
            found.reshape(expected.shape), expected
        ):
            return
        name = self.head_name or type(self.model).__name__
        if found.shape == expected.shape:
            for transform, word in ((torch.softmax, "softmax"), (torch.log_softmax, "log-softmax")):
                if nearly_equal(found, transform(expected, -1)):
                    raise HeadNotFoundError(
                        f"The model ends in {word} after '{name}'; logits are needed. Remove the"
                        f" {word}, or wrap the model up to that layer (losses such as cross-entropy"
                        " take logits as they are)."
                    )
            if nearly_equal(found, expected.sigmoid()):
                if self.may_end_in_sigmoid:
                    return
                raise HeadNotFoundError(
                    f"The model ends in a sigmoid after '{name}'; logits are needed. "
                    + (
                        "Remove the sigmoid."
                        if self.is_binary
                        else "Are these several labels at once, of which any number may apply?"
                        " Then give `fit(..., multi_label=True)`, and the sigmoid may stay. If one"
                        " class is right, remove the sigmoid and train with cross-entropy."
                    )
                )
        raise HeadNotFoundError(
            f"The output of shape {tuple(found.shape)} is not what the last linear layer '{name}'"
            f" gives, of shape {tuple(expected.shape)}: something follows it. The model must end in"
            f" its linear layer; or name another one; {_candidates(self.model)}."
        )


def _run(
    model: nn.Module, layers: Mapping[str, nn.Module], batch: Batch
) -> tuple[_Seen | None, Tensor]:
    """Runs a batch in evaluation mode; which of some layers ran last, and the network's
    logits.
    """
    last: list[_Seen] = []

    def note(name: str, features: Tensor, logits: Tensor) -> None:
        last[:] = [_Seen(name, features, logits)]

    with watched(layers, note), eval_mode(model):
        output = model(*batch.arguments, **batch.keywords)
    return last[0] if last else None, logits_of(output) if last else output


def _is_linear(module: nn.Module) -> bool:
    if isinstance(module, nn.Linear):
        return True
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return (
        isinstance(module, kinds)
        and all(size == 1 for size in module.kernel_size)
        and module.groups == 1
    )


def _classes_last(logits: Tensor) -> Tensor:
    return logits.movedim(1, -1).flatten(0, -2) if logits.dim() > 1 else logits


def nearly_equal(first: Tensor, second: Tensor) -> bool:
    """Whether two results differ by no more than the rounding of a network, relative to
    the largest of the second.

    Args:
        first: One of them.
        second: The other, of the same shape.
    """
    scale = second.abs().max().clamp_min(1e-6)
    tolerance = 1e-3 if first.dtype in {torch.float32, torch.float64} else 5e-2
    return bool(((first - second).abs() <= tolerance * scale).all())


def _candidates(model: nn.Module) -> str:
    names = [f"'{name}'" for name, module in model.named_modules() if _is_linear(module)]
    return f"its linear layers are {', '.join(names[-8:])}" if names else "it has no linear layers"
