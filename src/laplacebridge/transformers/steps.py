"""The steps of `generate`: what the head took and gave at each, and which tokens came."""

from typing import Any

import torch
from torch import Tensor
from transformers import StoppingCriteria

from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.transformers.leading import OfTokens, of_tokens

# So many steps of `generate` are looked at together: small steps cost more than their
# arithmetic, and all logits of a long text would take much memory.
STEPS_AT_ONCE = 32


class Steps(StoppingCriteria):  # type: ignore[misc]
    """Sees every step of `generate`, and stops nothing.

    Args:
        classifier: Of the tokens.
        leading: How many of them are looked at by themselves.
    """

    def __init__(self, classifier: Classifier, leading: int) -> None:
        self.classifier, self.leading = classifier, leading
        self.features: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.found: list[OfTokens] = []
        self.number = 0  # of steps

    def note(self, features: Tensor, logits: Tensor) -> None:
        """Keeps the last position, which the next token is drawn from.

        Args:
            features: What the head took.
            logits: What it gave.
        """
        self.features.append(features[:, -1])
        self.logits.append(logits[:, -1])
        self.number += 1

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:  # noqa: ANN401
        """Looks at the steps that wait, if they are enough; no text is stopped."""
        if len(self.features) >= STEPS_AT_ONCE:
            self.finish(input_ids)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def finish(self, sequences: Tensor) -> None:
        """Looks at the steps that wait.

        Args:
            sequences: All tokens so far.

        Raises:
            InputError: If there are more or fewer than one token for each text and
                step.
        """
        waiting = len(self.features)
        if not waiting:
            return
        ids = sequences[:, -waiting:]
        if any(len(step) != len(ids) for step in self.features):
            raise InputError(
                "`generate` ran its model on other texts than it returns, as with beams or"
                " assistants. Use greedy search or sampling."
            )
        batch = len(ids)
        features, logits = torch.cat(self.features), torch.cat(self.logits)
        found = of_tokens(self.classifier, features, logits, ids.T.flatten(), self.leading)
        self.found.append(OfTokens(*(part.view(waiting, batch).T for part in found)))
        self.features, self.logits = [], []

    def answers(self) -> OfTokens:
        """What was found, shape (B, T) each."""
        return OfTokens(*(torch.cat(part, 1) for part in zip(*self.found)))
