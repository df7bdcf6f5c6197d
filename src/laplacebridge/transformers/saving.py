"""Beside the model's files: the classifier, what it is for, and a section of the
model's card. Safetensors and JSON; nothing is pickled.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import transformers

from laplacebridge import checkpoint
from laplacebridge.classifier import Classifier
from laplacebridge.errors import CheckpointError
from laplacebridge.transformers.card import card_section, with_section
from laplacebridge.transformers.tasks import AUTO_CLASSES

CLASSIFIER, DESCRIPTION, CARD = "laplacebridge.safetensors", "laplacebridge.json", "README.md"


class Saved:
    """A fitted model of Hugging Face: what saving and calling share.

    Args:
        classifier: A fitted classifier of the model.
        tokenizer: Its tokenizer, if strings are to be taken.
    """

    task: ClassVar[str]

    def __init__(self, classifier: Classifier, tokenizer: Any = None) -> None:  # noqa: ANN401
        self.classifier = classifier
        self.tokenizer = tokenizer

    @property
    def model(self) -> Any:  # noqa: ANN401
        """The model itself."""
        return self.classifier.network.model

    def model_card(self) -> str:
        """A section for the model's card, in Markdown: what was fitted, on what, what
        is promised, and how it is used.
        """
        return card_section(self.classifier, self.task)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model, its tokenizer and the classifier into a folder, and a
        section into the card there, which is otherwise left as it is.

        Args:
            folder: Where to; it is made if need be.
        """
        place = Path(folder)
        self.model.save_pretrained(place)
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(place)
        checkpoint.save(self.classifier, place / CLASSIFIER)
        description = {"task": self.task, "tokenizer": self.tokenizer is not None}
        (place / DESCRIPTION).write_text(json.dumps(description) + "\n", encoding="utf-8")
        card = place / CARD
        before = card.read_text(encoding="utf-8") if card.exists() else ""
        card.write_text(with_section(before, self.model_card()), encoding="utf-8")

    def _moved(self, tokens: Mapping[str, Any]) -> dict[str, Any]:
        """Tokens where the model is."""
        return {name: value.to(self.model.device) for name, value in tokens.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.classifier!r})"


def from_pretrained(
    folder: str | os.PathLike[str],
    *,
    model: Any = None,  # noqa: ANN401
    tokenizer: Any = None,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Reads what `save_pretrained` wrote: a `TextClassifier`, `TokenClassifier` or
    `LanguageModel`.

    Weights are read from safetensors only, and a model whose weights are not those that
    were fitted is refused.

    Args:
        folder: The folder.
        model: The model, if it is not in the folder, as with adapters.
        tokenizer: The tokenizer, if it is not in the folder.
        options: For the model's own `from_pretrained`.

    Raises:
        CheckpointError: If the folder holds no such files, or those of another model.
    """
    from laplacebridge.transformers.fitting import KINDS  # it imports this module

    place = Path(folder)
    try:
        held = json.loads((place / DESCRIPTION).read_text(encoding="utf-8"))
        task, has_tokenizer = held["task"], held["tokenizer"]
        kind = KINDS[task]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{place} holds no fitted model: `{DESCRIPTION}`, which `save_pretrained` writes,"
            f" cannot be read ({error}). Fit, and save again."
        ) from error
    if model is None:
        options = {"local_files_only": True, "use_safetensors": True, **options}
        model = getattr(transformers, AUTO_CLASSES[task]).from_pretrained(place, **options).eval()
    if tokenizer is None and has_tokenizer:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
    return kind(checkpoint.load(place / CLASSIFIER, model, strict=True), tokenizer)
