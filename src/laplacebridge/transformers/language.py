"""Language models: how sure each token is, in texts that are given and in texts that
are generated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.transformers.batches import known_longest, longest, tokenised
from laplacebridge.transformers.leading import OfTokens, of_tokens
from laplacebridge.transformers.saving import Saved
from laplacebridge.transformers.steps import Steps
from laplacebridge.transformers.tasks import GENERATION

LEADING = 256


@dataclass(frozen=True, eq=False)
class TokenAnswers:
    """Tokens of one text, and how sure the model is of each, given those before it.

    Attributes:
        text: The tokens as text.
        ids: The tokens.
        tokens: The tokens one by one, as the tokenizer writes them; their numbers
            without one.
        probability: Of each token, by the mean of the prediction.
        epistemic: What the model does not know about the next token for lack of data:
            mutual information, in nats.
        total: Uncertainty about the next token altogether: the entropy of the mean, in
            nats. In large vocabularies all but the leading tokens count as one, here
            and in the epistemic part.
    """

    text: str
    ids: Int[Tensor, " T"]
    tokens: list[str]
    probability: Float[Tensor, " T"]
    epistemic: Float[Tensor, " T"]
    total: Float[Tensor, " T"]

    @property
    def epistemic_sum(self) -> float:
        """Of all tokens: information about the network in the whole text, if each token
        were the first that tells of it.
        """
        return float(self.epistemic.sum())

    @property
    def epistemic_max(self) -> float:
        """Of the token that the model knows least about; 0 for an empty text."""
        return float(self.epistemic.max()) if len(self.epistemic) else 0.0

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return (
            f"TokenAnswers of {len(self)} tokens, epistemic part {self.epistemic_sum:.3g} nats in"
            f" all, {self.epistemic_max:.3g} at most: {self.text[:60]!r}"
        )


class LanguageModel(Saved):
    """A causal language model that says how sure each token is; made by `fit` or
    `from_pretrained`.

    Args:
        classifier: A fitted classifier of the model.
        tokenizer: Its tokenizer.
        leading: How many tokens are taken by themselves in large vocabularies, the
            others as one.

    Raises:
        InputError: If the classifier covers more than the head.
    """

    task = GENERATION

    def __init__(
        self,
        classifier: Classifier,
        tokenizer: Any = None,  # noqa: ANN401
        *,
        leading: int = LEADING,
    ) -> None:
        super().__init__(classifier, tokenizer)
        if not isinstance(classifier.network, HeadNetwork):
            raise InputError(
                "Language models need a posterior of the head alone: leave out `layers`."
            )
        self.network = classifier.network
        self.leading = leading

    def __call__(
        self, texts: str | Sequence[str], *, batch_size: int = 16
    ) -> TokenAnswers | list[TokenAnswers]:
        """How sure the model is of each token of texts that are given, from the second
        on.

        Args:
            texts: A string, or several.
            batch_size: How many go through the model at once.
        """
        given = [texts] if isinstance(texts, str) else texts
        found: list[TokenAnswers] = []
        limit = longest(self._tokenizer(), self.model)
        for start in range(0, len(given), batch_size):
            tokens = tokenised(
                self._tokenizer(),
                given[start : start + batch_size],
                limit,
                padding=True,
                padding_side="right",
                return_tensors="pt",
            )
            found += self.of_tokens(**self._moved(tokens))
        return found[0] if isinstance(texts, str) else found

    def of_tokens(
        self,
        input_ids: Int[Tensor, "B T"],
        attention_mask: Tensor | None = None,
        **inputs: Any,  # noqa: ANN401
    ) -> list[TokenAnswers]:
        """The same for tokens, padded on the right.

        Args:
            input_ids: The tokens.
            attention_mask: Which are no padding; by default all.
            inputs: Other inputs of the model.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        with torch.no_grad():
            features = self.classifier.features(input_ids=input_ids, attention_mask=mask, **inputs)
            assert isinstance(features, Tensor)  # noqa: S101  (of the head alone)
            features = features.view(*input_ids.shape, -1)[:, :-1].flatten(0, 1)
            kept = (mask[:, 1:] * mask[:, :-1]).bool()
            ids = input_ids[:, 1:]
            of_kept = of_tokens(
                self.classifier, features[kept.flatten()], None, ids[kept], self.leading
            )
        parts = [torch.zeros_like(ids, dtype=part.dtype) for part in of_kept]
        for whole, part in zip(parts, of_kept):
            whole[kept] = part
        return [
            self._answers(ids[row][inside], OfTokens(*(part[row][inside] for part in parts)))
            for row, inside in enumerate(kept)
        ]

    def generate(
        self,
        texts: str | Sequence[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> TokenAnswers | list[TokenAnswers]:
        """Continues texts, and collects how sure the model was of each token on the
        way, from the features of its own steps: nothing is run twice.

        Args:
            texts: A string, or several; or give ``input_ids`` and ``attention_mask``,
                padded on the left.
            options: For the model's own `generate`: ``max_new_tokens``, ``do_sample``,
                … Each step must choose one token for each text: no beams, no
                assistants.

        Raises:
            InputError: If a step did not choose one token for each text, or a text with
                its continuation is longer than the model can take.
        """
        if texts is not None:
            given = [texts] if isinstance(texts, str) else list(texts)
            tokens = tokenised(
                self._tokenizer(),
                given,
                None,  # a text that was cut would be continued at another place
                padding=True,
                padding_side="left",
                return_tensors="pt",
            )
            tokens.pop("token_type_ids", None)
            self._require_room(tokens["input_ids"].shape[1], options)
            options |= self._moved(tokens)
        self._require_single_steps(options)
        steps = Steps(self.classifier, self.leading)
        criteria = [*options.pop("stopping_criteria", []), steps]
        with torch.no_grad(), self.network.capturing(steps.note):
            made = self.model.generate(**options, stopping_criteria=criteria)
        made = getattr(made, "sequences", made)
        steps.finish(made)
        new = made[:, made.shape[1] - steps.number :]
        found = steps.answers()
        ended = self._lengths(new, options)
        answers = [
            self._answers(row[:length], OfTokens(*(part[at, :length] for part in found)))
            for at, (row, length) in enumerate(zip(new, ended))
        ]
        return answers[0] if isinstance(texts, str) and len(answers) == 1 else answers

    def _answers(self, ids: Tensor, found: OfTokens) -> TokenAnswers:
        words, text = [str(number) for number in ids.tolist()], ""
        if self.tokenizer is not None:
            words = self.tokenizer.convert_ids_to_tokens(ids.tolist())
            text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return TokenAnswers(text, ids, words, *found)

    def _lengths(self, new: Tensor, options: dict[str, Any]) -> list[int]:
        """How many tokens each text has, with the one that ends it."""
        ends = self._setting("eos_token_id", options)
        if ends is None:
            return [new.shape[1]] * len(new)
        last = torch.isin(new, torch.as_tensor(ends, device=new.device))
        first = torch.where(last.any(1), last.int().argmax(1) + 1, new.shape[1])
        return first.tolist()

    def _setting(self, name: str, options: dict[str, Any]) -> Any:  # noqa: ANN401
        """A setting as the model's own `generate` finds it: among the options, in a
        configuration that is given, or in that of the model.
        """
        if name in options:
            return options[name]
        given = getattr(options.get("generation_config"), name, None)
        return getattr(self.model.generation_config, name, None) if given is None else given

    def _require_room(self, length: int, options: dict[str, Any]) -> None:
        """Refuses texts that the model could not continue to the end.

        Raises:
            InputError: If they are too long.
        """
        limit = known_longest(self._tokenizer(), self.model)
        new = self._setting("max_new_tokens", options)
        # without a number, the model's own `generate` stops where it must
        if limit is not None and length + (new or 1) > limit:
            raise InputError(
                f"`generate` got a text of {length} tokens to continue by"
                f" {'at least 1' if new is None else new}; the model and its tokenizer take"
                f" {limit} in all. Give the end of the text alone"
                f"{', or fewer `max_new_tokens`' if new and length < limit else ''}; if the model"
                " takes more than its tokenizer says, set `tokenizer.model_max_length`."
            )

    def _require_single_steps(self, options: dict[str, Any]) -> None:
        beams = self._setting("num_beams", options) or 1
        if beams > 1 or options.get("assistant_model") is not None:
            raise InputError(
                "`generate` collects one token for each text and step; got"
                f" {'an assistant' if beams == 1 else f'num_beams={beams}'}. Leave it out, or give"
                " the text that it makes to the model: `model(text)`."
            )

    def _tokenizer(self) -> Any:  # noqa: ANN401
        """The tokenizer.

        Raises:
            InputError: If there is none.
        """
        if self.tokenizer is None:
            raise InputError(
                "Strings need the tokenizer: `fit(..., tokenizer=...)`. Tokens are taken by"
                " `.of_tokens(input_ids=...)` and `.generate(input_ids=...)`."
            )
        return self.tokenizer
