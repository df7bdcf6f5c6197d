"""Calls on strings: labels with probabilities, intervals and decisions."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.prediction import Prediction
from laplacebridge.selective import Decision
from laplacebridge.transformers.batches import longest, tokenised
from laplacebridge.transformers.saving import Saved
from laplacebridge.transformers.tasks import TEXTS, TOKENS

Text = str | dict[str, str]
Answer = dict[str, Any]


class _Calls(Saved):
    """What calls on strings share.

    Args:
        classifier: A fitted classifier of the model.
        tokenizer: Its tokenizer.
    """

    def __init__(self, classifier: Classifier, tokenizer: Any = None) -> None:  # noqa: ANN401
        super().__init__(classifier, tokenizer)
        self.names = classifier.class_names or tuple(map(str, range(classifier.num_classes)))

    def _batches(
        self,
        texts: Sequence[Text],
        batch_size: int,
        **options: Any,  # noqa: ANN401
    ) -> Iterator[tuple[Sequence[Text], Any]]:
        """Texts and their tokens, some at a time.

        Raises:
            InputError: If there is no tokenizer.
        """
        if self.tokenizer is None:
            raise InputError(
                "A call with strings needs the tokenizer: `fit(..., tokenizer=...)`. Batches of"
                " tokens are taken by `.classifier(batch)`."
            )
        limit = longest(self.tokenizer, self.model)
        for start in range(0, len(texts), batch_size):
            some = texts[start : start + batch_size]
            yield (
                some,
                tokenised(
                    self.tokenizer, some, limit, padding=True, return_tensors="pt", **options
                ),
            )

    def _answers(self, prediction: Prediction, level: float, top_k: int | None) -> list[Answer]:
        """What is said about each row of predictions."""
        lower, upper = prediction.interval(level)
        scores, order = prediction.mean.sort(-1, descending=True)
        order = order[:, :top_k]
        decisions = self._decisions(prediction)
        unusual = prediction.unusual is not None and len(prediction.unusual.reference) > 0
        quantiles = prediction.ood_quantile.tolist() if unusual else [None] * len(prediction)
        parts = zip(
            order.tolist(),
            scores.tolist(),
            lower.gather(-1, order).tolist(),
            upper.gather(-1, order).tolist(),
            prediction.epistemic.tolist(),
            prediction.aleatoric.tolist(),
            quantiles,
            decisions,
        )
        found = []
        for places, score, low, high, epistemic, aleatoric, quantile, decision in parts:
            labels = [
                {"label": self.names[place], "score": mean, "interval": (below, above)}
                for place, mean, below, above in zip(places, score, low, high)
            ]
            answer: Answer = {**labels[0], "labels": labels}
            answer |= {"epistemic": epistemic, "aleatoric": aleatoric}
            if quantile is not None:
                answer["ood_quantile"] = quantile
            if decision is not None:
                answer["decision"] = decision.action
                answer["classes"] = [self.names[place] for place in decision.classes]
                answer["reason"] = decision.reason
            found.append(answer)
        return found

    def _decisions(self, prediction: Prediction) -> list[Decision] | list[None]:
        policy = self.classifier.policy
        if policy is None or policy.rule is None:
            return [None] * len(prediction)
        return policy(prediction).to_lists()


class TextClassifier(_Calls):
    """A text classifier that says how sure it is; made by `fit` or `from_pretrained`.

    Args:
        classifier: A fitted classifier of the model.
        tokenizer: Its tokenizer.
    """

    task = TEXTS

    def __call__(
        self,
        texts: Text | Sequence[Text],
        *,
        level: float = 0.95,
        top_k: int | None = None,
        batch_size: int = 32,
    ) -> Answer | list[Answer]:
        """Labels with probability, interval and decision; for one text a mapping, for
        several a list of them.

        Each has ``label``, ``score`` (its probability) and ``interval``; ``labels``,
        the same for other labels; ``epistemic`` and ``aleatoric``, the parts of
        uncertainty in nats; where they are known, ``ood_quantile``, and ``decision``
        ("answer", "set" or "defer") with ``classes`` and ``reason``.

        Args:
            texts: A string, a mapping with ``text`` and ``text_pair``, or several.
            level: Of the intervals.
            top_k: How many labels are listed; by default all.
            batch_size: How many go through the model at once.
        """
        several = not isinstance(texts, (str, dict))
        given: Sequence[Text] = texts if several else [texts]  # type: ignore[assignment,list-item]
        found: list[Answer] = []
        with torch.no_grad():
            for _, tokens in self._batches(given, batch_size):
                found += self._answers(self.classifier(self._moved(tokens)), level, top_k)
        return found if several else found[0]


class TokenClassifier(_Calls):
    """A classifier of tokens that says how sure it is; made by `fit` or
    `from_pretrained`.

    Args:
        classifier: A fitted classifier of the model.
        tokenizer: Its tokenizer, a fast one.
    """

    task = TOKENS

    def __call__(
        self,
        texts: str | Sequence[str],
        *,
        level: float = 0.95,
        top_k: int | None = None,
        batch_size: int = 32,
    ) -> list[Answer] | list[list[Answer]]:
        """For each text a list with a mapping for each token, as `TextClassifier` has
        them for a text, with ``word``, ``start`` and ``end`` besides. Tokens that the
        tokenizer adds are left out.

        Args:
            texts: A string, or several.
            level: Of the intervals.
            top_k: How many labels are listed; by default all.
            batch_size: How many texts go through the model at once.
        """
        given = [texts] if isinstance(texts, str) else texts
        found: list[list[Answer]] = []
        with torch.no_grad():
            for some, tokens in self._batches(
                given, batch_size, return_offsets_mapping=True, return_special_tokens_mask=True
            ):
                offsets = tokens.pop("offset_mapping").tolist()
                added = tokens.pop("special_tokens_mask").bool()
                kept = ~added & tokens["attention_mask"].bool()
                prediction = self.classifier(self._moved(tokens)).as_rows()[
                    kept.flatten().to(self.model.device)
                ]
                answers = iter(self._answers(prediction, level, top_k))
                for text, places, inside in zip(some, offsets, kept.tolist()):
                    assert isinstance(text, str)  # noqa: S101
                    spans = [place for place, is_inside in zip(places, inside) if is_inside]
                    found.append(
                        [
                            {"word": text[start:end], "start": start, "end": end, **next(answers)}
                            for start, end in spans
                        ]
                    )
        return found[0] if isinstance(texts, str) else found
