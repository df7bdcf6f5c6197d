"""Data sets of Hugging Face as loaders: tokenised where they are texts, and collated as
the task wants it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, Subset
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    default_data_collator,
)

from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.transformers.tasks import GENERATION, TOKENS

# A tokenizer that knows no limit says a number of this size.
_NO_LIMIT = 10**6


class Source:
    """Examples, and how they become batches.

    Args:
        examples: A data set of mappings or, for language models, of strings; or a
            `DataLoader` of one.
        model: The model they are for.
        task: Its task.
        tokenizer: Its tokenizer, if texts are to be tokenised or batches padded.
        collate: Another collator than the usual one of the task.
        batch_size: How many examples a batch has.

    Raises:
        InputTypeError: If these are no examples.
    """

    def __init__(
        self,
        examples: Any,  # noqa: ANN401
        model: Any,  # noqa: ANN401
        task: str,
        tokenizer: Any,  # noqa: ANN401
        collate: Any,  # noqa: ANN401
        batch_size: int,
    ) -> None:
        if isinstance(examples, DataLoader):
            self.collate: Any = examples.collate_fn
            self.batch_size = examples.batch_size or batch_size
            self.examples: Any = examples.dataset
        else:
            if not hasattr(examples, "__len__") or not hasattr(examples, "__getitem__"):
                raise InputTypeError(
                    "`fit` needs a data set with a length whose items are mappings, or a"
                    f" `DataLoader` of one; got {type(examples).__name__}. Batches as they come"
                    " are taken by `laplacebridge.fit(model, loader)`."
                )
            if not len(examples):
                raise InputError("`fit` needs examples; the data set is empty.")
            first = examples[0]
            if isinstance(first, str) or (isinstance(first, Mapping) and "text" in first):
                examples = Tokenised(examples, tokenizer, model, task)
            self.examples = examples
            self.batch_size = batch_size
            self.collate = collate or _usual_collator(task, tokenizer, examples[0])
        if not hasattr(self.examples, "__len__"):
            raise InputTypeError(
                "`fit` needs a data set with a length, so that held-out examples can be divided;"
                f" got {type(self.examples).__name__}."
            )

    def loader(self, rows: Sequence[int] | None = None) -> DataLoader[Any]:
        """Batches of all examples, or of some, in their order.

        Args:
            rows: Which; None for all.
        """
        chosen = self.examples if rows is None else Subset(self.examples, rows)
        return DataLoader(chosen, batch_size=self.batch_size, collate_fn=self.collate)


class FromTrainer(Source):
    """Examples that a `Trainer` makes batches of itself.

    Args:
        trainer: The trainer.
        examples: Its data set.
    """

    def __init__(self, trainer: Any, examples: Any) -> None:  # noqa: ANN401
        self.trainer, self.examples = trainer, examples

    def loader(self, rows: Sequence[int] | None = None) -> DataLoader[Any]:
        """Batches as the trainer evaluates them: in their order, none twice.

        Args:
            rows: Which examples; None for all.
        """
        chosen = self.examples if rows is None else Subset(self.examples, rows)
        # With persistent workers a trainer keeps its loader under one name, whatever the
        # data set: it would give the first for all that follow.
        known = self.trainer.__dict__
        kept = known.pop("_eval_dataloaders", None)
        try:
            return self.trainer.get_eval_dataloader(chosen)
        finally:
            known.pop("_eval_dataloaders", None)
            if kept is not None:
                known["_eval_dataloaders"] = kept


class Tokenised(Dataset[Any]):
    """Texts with labels as a tokenizer makes them.

    Args:
        examples: Strings, or mappings with ``text`` and perhaps ``text_pair`` and
            ``label``.
        tokenizer: The tokenizer.
        model: The model, whose configuration knows labels by name and the longest text.
        task: Its task.

    Raises:
        InputError: If there is no tokenizer, or texts cannot have one label.
    """

    def __init__(self, examples: Any, tokenizer: Any, model: Any, task: str) -> None:  # noqa: ANN401
        if tokenizer is None:
            raise InputError(
                "`fit` got texts, and needs the `tokenizer=` that makes tokens of them."
            )
        if task == TOKENS:
            raise InputError(
                "`fit` for token classification needs tokenised examples, with `input_ids` and a"
                " label for each token (−100 for those without); got texts. The tokenizer with"
                " `is_split_into_words=True` and `word_ids()` makes them."
            )
        self.examples, self.tokenizer, self.task = examples, tokenizer, task
        self.limit = longest(tokenizer, model)
        self.numbers = getattr(model.config, "label2id", None) or {}

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        example = self.examples[index]
        given = {"text": example} if isinstance(example, str) else dict(example)
        made = dict(tokenised(self.tokenizer, [given], self.limit))
        found = {name: rows[0] for name, rows in made.items()}
        label = given.get("label", given.get("labels"))
        if label is not None and self.task != GENERATION:
            found["labels"] = self.numbers[label] if isinstance(label, str) else label
        return found


def tokenised(
    tokenizer: Any,  # noqa: ANN401
    texts: Sequence[Any],
    limit: int | None,
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """What a tokenizer makes of texts, cut where the model cannot take more.

    Args:
        tokenizer: The tokenizer.
        texts: Strings, or mappings with ``text`` and perhaps ``text_pair``.
        limit: How many tokens the model can take; None cuts nothing.
        options: For the tokenizer.
    """
    given = [{"text": text} if isinstance(text, str) else text for text in texts]
    first = [text["text"] for text in given]
    second = [text.get("text_pair") for text in given]
    pairs = {"text_pair": second} if any(text is not None for text in second) else {}
    cut = {} if limit is None else {"truncation": True, "max_length": limit}
    return tokenizer(first, **pairs, **cut, **options)


def longest(tokenizer: Any, model: Any) -> int:  # noqa: ANN401
    """How many tokens a model can take.

    Args:
        tokenizer: Its tokenizer.
        model: The model.
    """
    return known_longest(tokenizer, model) or 512


def known_longest(tokenizer: Any, model: Any) -> int | None:  # noqa: ANN401
    """The same, if model or tokenizer say it; None if they do not.

    Args:
        tokenizer: Its tokenizer.
        model: The model.
    """
    known = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    return min([length for length in known if length and length < _NO_LIMIT], default=None)


def halves(number: int) -> tuple[list[int], list[int]]:
    """Two halves of held-out examples, drawn once and for all: one chooses the width,
    the other calibrates rules, whose guarantees need labels that nothing else has used.

    Args:
        number: How many there are.
    """
    order = torch.randperm(number, generator=torch.Generator().manual_seed(0)).tolist()
    middle = (number + 1) // 2
    return order[:middle], order[middle:]


def _usual_collator(task: str, tokenizer: Any, first: Any) -> Any:  # noqa: ANN401
    if tokenizer is None:
        return default_data_collator
    if task == TOKENS:
        return DataCollatorForTokenClassification(tokenizer)
    if task == GENERATION:
        has_labels = isinstance(first, Mapping) and "labels" in first
        return (
            default_data_collator
            if has_labels
            else DataCollatorForLanguageModeling(tokenizer, mlm=False)
        )
    return DataCollatorWithPadding(tokenizer)
