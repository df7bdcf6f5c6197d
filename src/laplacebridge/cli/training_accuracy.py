"""How many training labels a network gets right, counted while a fit runs it: untrained weights show there."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from laplacebridge.laplace.batch import Batch, eval_mode, logits_of, unpack_batch
from laplacebridge.laplace.batch_checks import are_soft
from laplacebridge.laplace.fitting import IGNORED_LABEL

# Share of the way from always answering the commonest class to always being right, below which nothing was learnt.
LEAST_LEARNT = 0.1


class CountedBatches:
    """Training batches that are counted as they go through a network: its answers are read where a fit runs it.

    Args:
        batches: The batches.
        network: The network that the fit runs on each of them.
    """

    def __init__(self, batches: Iterable[Any], network: nn.Module) -> None:
        self.batches, self.network = batches, network
        self.right = 0
        self.labels: Counter[int] = Counter()
        self.is_known = True  # whether every batch had labels that its answers could be compared with
        self._logits: Tensor | None = None  # what the network returned last

    def __iter__(self) -> Iterator[Any]:
        handle = self.network.register_forward_hook(self._keep)
        try:
            for batch in self.batches:
                self._logits = None
                yield batch
                self._count(unpack_batch(batch))
        finally:
            handle.remove()

    @property
    def accuracy(self) -> float | None:
        """Share of labels that are right; None if there are none."""
        total = self.labels.total()
        return self.right / total if self.is_known and total else None

    @property
    def commonest(self) -> float:
        """Share of the commonest label, which a network that knows nothing can reach."""
        return max(self.labels.values()) / self.labels.total()

    def is_near_chance(self) -> bool:
        """Whether the network has learnt hardly more than which class is the commonest."""
        accuracy = self.accuracy
        return accuracy is not None and accuracy < self.commonest + LEAST_LEARNT * (1 - self.commonest)

    def _keep(self, _module: nn.Module, _inputs: Any, output: Any) -> None:  # noqa: ANN401
        self._logits = logits_of(output).detach()

    def _count(self, parts: Batch) -> None:
        if parts.labels is None:
            self.is_known = False
            return
        labels = torch.as_tensor(parts.labels)
        if are_soft(labels):
            labels = labels.argmax(-1)
        answers = self._answers(labels)
        if answers is None:  # the fit ran parts of the batch, as it does for several layers
            with torch.no_grad(), eval_mode(self.network):
                self.network(*parts.arguments, **parts.keywords)
            answers = self._answers(labels)
        if answers is None:
            self.is_known = False
            return
        flat = labels.flatten().long()
        has_label = flat != IGNORED_LABEL
        self.right += int((answers == flat)[has_label].sum())
        classes, counts = torch.unique(flat[has_label], return_counts=True)
        self.labels.update(dict(zip(classes.tolist(), counts.tolist())))

    def _answers(self, labels: Tensor) -> Tensor | None:
        return None if self._logits is None else answers_for(self._logits, labels)


def answers_for(logits: Tensor, labels: Tensor) -> Tensor | None:
    """The most probable classes in the order of the labels; None if it cannot be told which dimension the classes are.

    Args:
        logits: What a network returned: of examples, tokens (classes last) or pixels (classes second).
        labels: One class for each prediction.

    Example:
        >>> answers_for(torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.4]]), torch.tensor([1, 0, 0]))
        tensor([1, 0, 1])
    """
    if logits.numel() == labels.numel() and (logits.dim() == 1 or 1 in {logits.shape[1], logits.shape[-1]}):
        # one logit stands for two classes
        return (logits.flatten() > 0).long()
    if logits.dim() == 2:
        return logits.argmax(-1) if len(logits) == labels.numel() else None
    places = [
        place
        for place in (1, logits.dim() - 1)
        if logits.dim() > 2 and logits.shape[:place] + logits.shape[place + 1 :] == labels.shape
    ]
    return logits.argmax(places[0]).flatten() if len(places) == 1 else None
