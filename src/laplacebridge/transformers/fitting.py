"""Fitting a Hugging Face model: from a `Trainer`, or a model and its data."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

import laplacebridge
from laplacebridge import selective, sets
from laplacebridge._warnings import warn
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.laplace.label_checks import IGNORED_LABEL
from laplacebridge.scores import msp
from laplacebridge.transformers.batches import FromTrainer, Source, halves
from laplacebridge.transformers.classifying import TextClassifier, TokenClassifier
from laplacebridge.transformers.language import LanguageModel
from laplacebridge.transformers.tasks import GENERATION, TEXTS, TOKENS, require_task, task_of

KINDS: dict[str, Any] = {
    TEXTS: TextClassifier,
    TOKENS: TokenClassifier,
    GENERATION: LanguageModel,
}
BATCH_SIZE, COVERAGE, RISK = 16, 0.9, 0.05


def fit(
    model: Any,  # noqa: ANN401
    train: Any = None,  # noqa: ANN401
    val: Any = None,  # noqa: ANN401
    *,
    tokenizer: Any = None,  # noqa: ANN401
    calibration: Any = None,  # noqa: ANN401
    collate: Any = None,  # noqa: ANN401
    batch_size: int | None = None,
    task: str | None = None,
    coverage: float | None = None,
    risk: float | None = None,
    **choices: Any,  # noqa: ANN401
) -> TextClassifier | TokenClassifier | LanguageModel:
    """Fits a Hugging Face model that was trained: its last layer, in one pass over its
    training data. The model is not changed.

    Labels stand where its own collator puts them: −100 leaves a token out, and those of
    a causal language model are shifted as its loss shifts them, which is compared with
    that loss on the first batch.

    Args:
        model: The trained model; or its `Trainer`, which knows its data, collator,
            tokenizer and label smoothing.
        train: What it was trained on: a data set of mappings, tokenised or with
            ``text`` and ``label``; for language models also of strings; or a
            `DataLoader`.
        val: Examples that it was not trained on. Temperature and width are chosen by
            them; without a ``calibration``, by half of them, drawn at random, and
            decisions are calibrated on the other half.
        tokenizer: The tokenizer, for texts; needed for calls with strings.
        calibration: Examples that nothing else has used, for decisions: sets of labels
            and a rule when to answer. Of a text with a label for each token, one token
            is drawn, because those of one text are not independent.
        collate: Another collator than the usual one of the task. A `Trainer` has its
            own, and its own size of batches.
        batch_size: How many examples go through the model at once; by default 16.
        task: ``"text-classification"``, ``"token-classification"`` or
            ``"text-generation"``, if the model's class does not say it.
        coverage: How often sets of labels are to hold the right one; by default 0.9.
        risk: Which share of answers may be wrong, by default 0.05; what cannot be
            promised from so few examples is said, and there are no decisions then.
        choices: For `laplacebridge.fit`: ``prior_precision=``, ``curvature=``, …

    Raises:
        InputError: If there is nothing to fit on, the model is for something else, or
            an option is given that has no meaning for it.
    """
    if hasattr(model, "get_eval_dataloader") and isinstance(
        getattr(model, "model", None), nn.Module
    ):
        trainer, model = model, model.model
        _require_none(
            "a `Trainer`, which makes batches itself: set its `data_collator` and"
            " `args.per_device_eval_batch_size`",
            collate=collate,
            batch_size=batch_size,
        )
        train = trainer.train_dataset if train is None else train
        val = trainer.eval_dataset if val is None else val
        tokenizer = tokenizer or getattr(trainer, "processing_class", None)
        choices.setdefault("label_smoothing", trainer.args.label_smoothing_factor)

        def source(examples: Any) -> Source:  # noqa: ANN401
            return FromTrainer(trainer, examples)
    else:
        size = BATCH_SIZE if batch_size is None else batch_size

        def source(examples: Any) -> Source:  # noqa: ANN401
            return Source(examples, model, chosen, tokenizer, collate, size)

    chosen = task_of(model) if task is None else task
    require_task(chosen)
    _require_one_label(model)
    if chosen == GENERATION:
        _require_none(
            "text generation, which makes no decisions",
            calibration=calibration,
            coverage=coverage,
            risk=risk,
        )
    if train is None:
        raise InputError("`fit` needs `train`, the examples that the model was trained on.")
    if isinstance(val, dict):
        raise InputError(
            f"`fit` got held-out examples under several names, {', '.join(map(repr, val))}. Give"
            " one of them as `val=`."
        )
    held_out = None if val is None else source(val)
    calibrating: Iterable[Any] | None = (
        None if calibration is None else source(calibration).loader()
    )
    rows = None
    if held_out is not None and calibrating is None and chosen != GENERATION:
        rows, others = halves(len(held_out.examples))
        calibrating = held_out.loader(others) if others else None
    classifier = laplacebridge.fit(
        model,
        source(train).loader(),
        val_loader=None if held_out is None else held_out.loader(rows),
        **choices,
    )
    if chosen != GENERATION:
        names = [str(model.config.id2label[number]) for number in range(classifier.num_classes)]
        classifier = classifier.with_rule(class_names=names)
        if calibrating is not None:
            classifier = _with_decisions(
                classifier,
                calibrating,
                COVERAGE if coverage is None else coverage,
                RISK if risk is None else risk,
            )
    return KINDS[chosen](classifier, tokenizer)


def _require_none(what: str, **options: Any) -> None:  # noqa: ANN401
    """Refuses options that would be ignored.

    Raises:
        InputError: If one is given.
    """
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"`fit({given[0]}=...)` has no meaning for {what}. Leave it out.")


def _require_one_label(model: Any) -> None:  # noqa: ANN401
    """Refuses models that do not choose one label.

    Raises:
        InputError: If several labels may apply, or labels are numbers.
    """
    problem = getattr(model.config, "problem_type", None)
    if problem == "multi_label_classification":
        raise InputError(
            "`laplacebridge.transformers` is for one label of several; this model was trained for"
            " any number of them. `laplacebridge.fit(model, loader, multi_label=True)` gives a"
            " probability and an interval for each."
        )
    if problem == "regression":
        raise InputError("This model predicts numbers (`problem_type='regression'`), not labels.")


def _with_decisions(
    classifier: Classifier, loader: Iterable[Any], coverage: float, risk: float
) -> Classifier:
    """The classifier with sets and a rule, as far as the examples can promise them."""
    prediction, labels = _one_of_each(classifier, loader)
    try:
        found = sets.calibrate(
            sets.LeastAmbiguous(), prediction, labels, coverage=coverage, never_empty=True
        )
        classifier = classifier.with_rule(sets=found)
    except InputError as error:
        warn(f"There are no sets of labels: {error}")
    try:
        return classifier.with_rule(selective.calibrate(msp, prediction, labels, risk=risk))
    except InputError as error:
        warn(f"There are no decisions: {error}")
        return classifier


def _one_of_each(classifier: Classifier, loader: Iterable[Any]) -> tuple[Any, Tensor]:
    """Predictions and labels of calibration examples: of each, one token that has a
    label.

    Raises:
        InputError: If there are none.
    """
    generator = torch.Generator().manual_seed(0)
    features, labels = [], []
    with torch.no_grad():
        for batch in loader:
            parts = unpack_batch(batch)
            if parts.labels is None:
                raise InputError("Calibration needs labels; a batch has none.")
            rows: Any = classifier.features(batch)
            truth = parts.labels.reshape(len(parts.labels), -1)
            for example, found in enumerate(truth.tolist()):
                kept = [place for place, label in enumerate(found) if label != IGNORED_LABEL]
                if kept:
                    place = kept[int(torch.randint(len(kept), (1,), generator=generator))]
                    features.append(rows[example * truth.shape[1] + place])
                    labels.append(found[place])
        if not features:
            raise InputError(
                "Calibration needs labels; all of them are −100, which leaves them out."
            )
        return classifier.predict_features(torch.stack(features)), torch.tensor(labels)
