"""`laplacebridge decide`: answer, name a set of classes, or defer, from predictions that were saved or piped in."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from torch import Tensor

from laplacebridge import selective
from laplacebridge.cli import names, options, outputs, sources
from laplacebridge.cli.prediction_files import format_of, write_as
from laplacebridge.cli.predictions import Predictions, known, rounded
from laplacebridge.cli.saved_predictions import calibration_for, predictions_named
from laplacebridge.scores import Score
from laplacebridge.selective import Action, Decisions, SelectiveRule
from laplacebridge.sets import overlap_sets

EXAMPLE = "Example: laplacebridge decide prediction.npz --calibrate labelled.npz --risk 0.05 -o decisions.csv"
USUAL_RISK = 0.05


def _refuse_coverage(given: float | None) -> None:
    if given is not None:
        raise typer.BadParameter(
            "is called --answer-share here; in `sets` it is the chance that a set holds the label."
        )


def decide(
    prediction: options.PredictionArgument,
    *,
    calibrate_on: Annotated[
        Path,
        typer.Option(
            "--calibrate",
            metavar="FILE",
            help="Predictions (.npz) of examples that were used for nothing else, to choose the rule by; with labels.",
            show_default=False,
        ),
    ],
    risk: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="What share of the answers may be wrong.", show_default=str(USUAL_RISK)),
    ] = None,
    confidence: Annotated[
        float, typer.Option(min=0, max=1, help="How certain it must be that no more are wrong.")
    ] = 0.95,
    answer_share: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Instead of a risk: the share to answer. Needs no labels, and promises nothing about errors.",
        ),
    ] = None,
    coverage: Annotated[float | None, typer.Option(hidden=True, callback=_refuse_coverage)] = None,
    score: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"By which to answer, where it is low: {', '.join(names.SCORES)}.",
            callback=names.one_of(names.SCORES),
            autocompletion=lambda: list(names.SCORES),
        ),
    ] = "msp",
    max_set_size: Annotated[
        int,
        typer.Option(min=0, help="The largest set worth naming where there is no answer; below 2 for no sets."),
    ] = 2,
    threshold: Annotated[
        float,
        typer.Option(min=0, max=1, help="How much marginals must overlap for a set; `laplacebridge sets` finds one."),
    ] = 0.05,
    classes: options.ClassesOption = None,
    output: options.RowsOption = outputs.STANDARD_STREAM,
    file_format: options.FormatOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Answer where errors are rare enough; otherwise name a small set of classes, or defer to a person."""
    chosen_format = format_of(output, file_format)
    outputs.require_rows_writable(output, force=force, binary=chosen_format == "npz")
    _require_one_aim(risk, answer_share)
    predictions = predictions_named(prediction, sources.class_names_from(classes))
    measure = names.SCORES[score]
    calibration = calibration_for(predictions, calibrate_on, needs_labels=answer_share is None)
    rule = _rule(calibration, measure, risk, confidence, answer_share)
    scores = measure(predictions.dirichlet)
    largest = min(max_set_size, predictions.dirichlet.num_classes - 1)  # a set of all classes says nothing
    sets = overlap_sets(predictions.dirichlet, threshold) if largest > 1 else None
    decisions = rule(predictions.dirichlet, sets=sets, max_set_size=largest if largest > 1 else None)
    with outputs.opened_whole(output) as stream:
        rows = _rows(decisions, scores, predictions)
        write_as(chosen_format, stream, rows, lambda: _arrays(decisions, scores, predictions))
    summary = {"output": output, "score": score, **_facts_of_rule(rule), **_facts(decisions, predictions)}
    outputs.say(
        summary, _sentence(summary), quiet=quiet, as_json=as_json, rows_on_stdout=output == outputs.STANDARD_STREAM
    )


def _require_one_aim(risk: float | None, answer_share: float | None) -> None:
    if risk is not None and answer_share is not None:
        raise typer.BadParameter("give the risk or the share to answer.", param_hint="--risk or --answer-share")


def _rule(
    calibration: Predictions, measure: Score, risk: float | None, confidence: float, answer_share: float | None
) -> SelectiveRule:
    if answer_share is not None:
        return selective.calibrate(measure, calibration.dirichlet, answer_share=answer_share)
    allowed = USUAL_RISK if risk is None else risk
    return selective.calibrate(measure, calibration.dirichlet, calibration.labels, risk=allowed, confidence=confidence)


def _facts_of_rule(rule: SelectiveRule) -> dict[str, Any]:
    return {
        # none where everything is answered: JSON has no infinity
        "score_threshold": rule.threshold if math.isfinite(rule.threshold) else None,
        "calibration_examples": rule.num_examples,
        "calibration_answered": rule.num_answered,
        "risk_bound": rule.risk_bound,
        "confidence": rule.confidence,
    }


def _facts(decisions: Decisions, predictions: Predictions) -> dict[str, Any]:
    judged: dict[str, list[bool]] = {action.name.lower(): [] for action in Action}
    for decision, covered in zip(decisions, _covered(decisions, predictions)):
        if covered is not None:
            judged[decision.action].append(covered)
    return {
        "decisions": len(decisions),
        **{action.name.lower(): int((decisions.action == action).sum()) for action in Action},
        "wrong_answers": 1 - float(np.mean(judged["answer"])) if judged["answer"] else None,
        "sets_with_label": float(np.mean(judged["set"])) if judged["set"] else None,
    }


def _covered(decisions: Decisions, predictions: Predictions) -> list[bool | None]:
    """Whether what is named holds the label; None where nothing is named, or there is no label."""
    labels = [None] * len(decisions) if predictions.labels is None else map(known, predictions.labels.tolist())
    return [
        label in decision.classes if label is not None and decision.classes else None
        for decision, label in zip(decisions, labels)
    ]


def _rows(decisions: Decisions, scores: Tensor, predictions: Predictions) -> Iterator[dict[str, Any]]:
    covered = _covered(decisions, predictions)
    for row, decision in enumerate(decisions):
        record = predictions.beginning(row)
        record |= {
            "action": decision.action,
            "classes": [predictions.named(member) for member in decision.classes],
            "score": rounded(float(scores[row])),
        }
        if predictions.labels is not None:
            record |= {"label": known(int(predictions.labels[row])), "covered": covered[row]}
        yield record


def _arrays(decisions: Decisions, scores: Tensor, predictions: Predictions) -> dict[str, np.ndarray]:
    found = {"action": decisions.action, "answer": decisions.answer, "score": scores}
    if decisions.sets is not None:
        found |= {"set_classes": decisions.sets.classes, "set_sizes": decisions.sets.size}
    if predictions.labels is not None:
        found["labels"] = predictions.labels
    return {name: tensor.numpy() for name, tensor in found.items()}


def _sentence(summary: dict[str, Any]) -> str:
    shares = ", ".join(
        f"{summary[action] / summary['decisions']:.1%} {word}"
        for action, word in (("answer", "answered"), ("set", "answered with a set"), ("defer", "deferred"))
    )
    text = f"{outputs.shown(summary['output'])}: {summary['decisions']} decisions, {shares}"
    if summary["wrong_answers"] is not None:
        text += f"; {summary['wrong_answers']:.1%} of the answers are wrong"
    if summary["sets_with_label"] is not None:
        text += f"; {summary['sets_with_label']:.1%} of the sets hold the label"
    if summary["risk_bound"] is not None:
        text += (
            f"; the calibration promises at most {summary['risk_bound']:.1%} wrong answers "
            f"({summary['confidence']:.0%} confidence)"
        )
    return text
