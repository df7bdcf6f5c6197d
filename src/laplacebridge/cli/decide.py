"""`laplacebridge decide`: answer, name a set of classes, or defer, from predictions
that were saved or piped in.
"""

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from torch import Tensor

from laplacebridge import selective
from laplacebridge.cli import console, options
from laplacebridge.cli.calibration import calibrating, read_calibration
from laplacebridge.cli.classifier_files import read_classifier
from laplacebridge.cli.data import read_class_names
from laplacebridge.cli.predictions import (
    Predictions,
    read_predictions,
    rounded,
)
from laplacebridge.errors import InputError
from laplacebridge.selective import Action, Decisions, SelectiveRule
from laplacebridge.selective.policy import Policy, score_name
from laplacebridge.sets import overlap_sets

EXAMPLE = (
    "Example: laplacebridge decide prediction.npz --calibrate labelled.npz --risk 0.05 -o"
    " decisions.csv"
)
USUAL_RISK, USUAL_CONFIDENCE, USUAL_SCORE = 0.05, 0.95, "msp"
USUAL_SET_SIZE, USUAL_THRESHOLD = 2, 0.05


def decide(
    prediction: options.PredictionArgument,
    *,
    calibrate_on: Annotated[
        Path | None,
        options.existing_file(
            "Predictions (.npz) of examples that were used for nothing else, to choose the rule"
            " by; with labels.",
            "--calibrate",
            show_default=False,
        ),
    ] = None,
    classifier: Annotated[
        Path | None,
        options.existing_file(
            "Instead of a calibration: what `lb.save` wrote of a classifier that carries its"
            " rule (`classifier.with_rule`), with its sets and names.",
            "--classifier",
            show_default=False,
        ),
    ] = None,
    risk: Annotated[
        float | None,
        options.share("What share of the answers may be wrong.", show_default=str(USUAL_RISK)),
    ] = None,
    confidence: Annotated[
        float | None,
        options.share(
            "How certain it must be that no more are wrong.", show_default=str(USUAL_CONFIDENCE)
        ),
    ] = None,
    answer_share: Annotated[
        float | None,
        options.share(
            "Instead of a risk: the share to answer. Needs no labels, and promises nothing"
            " about errors."
        ),
    ] = None,
    coverage: Annotated[
        str | None,
        options.renamed(
            "--answer-share", "In `sets` it is the probability that a set holds the label."
        ),
    ] = None,
    score: Annotated[
        options.ScoreName | None,
        typer.Option(
            metavar="NAME",
            help=f"Score by which to answer, where it is low: {', '.join(options.SCORES)}.",
            show_default=USUAL_SCORE,
        ),
    ] = None,
    max_set_size: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The largest set worth naming where there is no answer; below 2 for no sets.",
            show_default=str(USUAL_SET_SIZE),
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        options.share(
            "How much marginals must overlap for a set; `laplacebridge sets` finds one.",
            show_default=str(USUAL_THRESHOLD),
        ),
    ] = None,
    unusual: Annotated[
        float | None,
        options.share(
            "Defer inputs that are more unusual than this share of held-out data, such as"
            " 0.99, whatever their label seems to be. Needs a classifier that was fitted with"
            " held-out data."
        ),
    ] = None,
    classes: options.ClassesOption = None,
    output: options.RowsOption = options.STANDARD_STREAM,
    file_format: options.FormatOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Answer where errors are rare enough; otherwise name a small set of classes, or
    defer to a person.
    """
    chosen_format = console.require_rows_output(output, file_format, force=force)
    if risk is not None and answer_share is not None:
        raise typer.BadParameter(
            "give the risk or the share to answer.", param_hint="--risk or --answer-share"
        )
    carried = None if classifier is None else _carried(classifier)
    names = read_class_names(classes) or (carried and carried.class_names) or ()
    predictions = read_predictions(prediction, names)
    if carried is not None:
        _refuse_choices(
            {
                "--calibrate": calibrate_on,
                "--risk": risk,
                "--answer-share": answer_share,
                "--unusual": unusual,
                "--confidence": confidence,
                "--score": score,
                "--max-set-size": max_set_size,
                "--threshold": threshold,
            }
        )
        rule, decisions = _carried_decisions(carried, predictions, prediction)
        shown = score_name(rule)
    else:
        if calibrate_on is None:
            raise typer.BadParameter(
                "give predictions to choose a rule by, or a classifier that carries its rule.",
                param_hint="--calibrate or --classifier",
            )
        shown = score.value if score else USUAL_SCORE
        calibration = read_calibration(calibrate_on, predictions, needs_labels=answer_share is None)
        with calibrating(prediction):
            rule = selective.calibrate(
                options.SCORES[shown],
                calibration.dirichlet,
                calibration.labels if answer_share is None else None,
                risk=(USUAL_RISK if risk is None else risk) if answer_share is None else None,
                answer_share=answer_share,
                confidence=USUAL_CONFIDENCE if confidence is None else confidence,
                unusual=_unusual(calibration, unusual, str(calibrate_on)),
            )
        # a set of all classes says nothing
        wanted = USUAL_SET_SIZE if max_set_size is None else max_set_size
        largest = min(wanted, predictions.dirichlet.num_classes - 1)
        overlap = USUAL_THRESHOLD if threshold is None else threshold
        decisions = rule(
            predictions.dirichlet,
            sets=overlap_sets(predictions.dirichlet, overlap) if largest > 1 else None,
            max_set_size=largest if largest > 1 else None,
            unusual=_unusual(predictions, unusual, prediction),
        )
    records = _records(decisions, rule, predictions, shown)
    with console.open_output(output) as stream:
        rows = console.Rows(records, lambda: _arrays(decisions, rule, predictions, shown))
        console.write_rows(stream, chosen_format, [rows])
    summary = {"output": output, "score": shown, **_facts(rule, records)}
    console.print_summary(
        summary,
        _sentence(summary),
        quiet=quiet,
        as_json=as_json,
        rows_on_stdout=output == options.STANDARD_STREAM,
    )


def _carried(path: Path) -> Policy:
    """What a saved classifier does with its predictions."""
    policy = read_classifier(path).policy
    if policy is None or policy.rule is None:
        raise InputError(
            f"{path} carries no rule. Put one in, `lb.save(classifier.with_rule(rule), path)`, or"
            " give --calibrate."
        )
    return policy


def _refuse_choices(given: dict[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(
                "the classifier carries its rule; leave this out.", param_hint=name
            )


def _carried_decisions(
    policy: Policy, predictions: Predictions, source: str
) -> tuple[SelectiveRule, Decisions]:
    assert policy.rule is not None  # noqa: S101  (checked when it was read)
    policy.require_classes(predictions.dirichlet.num_classes)
    sets = None if policy.sets is None else policy.sets(predictions.dirichlet)
    unusual = _unusual(predictions, policy.unusual_above, source)
    decisions = policy.rule(
        predictions.dirichlet, sets=sets, max_set_size=policy.max_set_size, unusual=unusual
    )
    return policy.rule, decisions


def _unusual(predictions: Predictions, largest: float | None, source: str) -> Tensor | None:
    if largest is None:
        return None
    quantiles = predictions.scores.get("ood_quantile")
    if quantiles is None:
        raise InputError(
            f"Deferring unusual inputs needs `score_ood_quantile` in {source}, which"
            " `laplacebridge predict -o predictions.npz` writes for a classifier that was fitted"
            " with held-out data (`fit --validation`)."
        )
    return quantiles > largest


def _records(
    decisions: Decisions, rule: SelectiveRule, predictions: Predictions, score_name: str
) -> list[dict[str, Any]]:
    scores = rule.score(predictions.dirichlet).tolist()
    return [
        {
            **predictions.identity(row),
            "action": decision.action,
            "reason": decision.reason,
            "classes": [predictions.named(member) for member in decision.classes],
            "score_name": score_name,
            "score": rounded(scores[row]),
            "score_threshold": rounded(
                rule.threshold
            ),  # none where everything is answered: JSON has no infinity
            **predictions.outcome(row, decision.classes or None),
        }
        for row, decision in enumerate(decisions)
    ]


def _arrays(
    decisions: Decisions, rule: SelectiveRule, predictions: Predictions, score_name: str
) -> dict[str, np.ndarray]:
    tensors = {
        "action": decisions.action,
        "answer": decisions.answer,
        "score": rule.score(predictions.dirichlet),
    }
    if decisions.sets is not None:
        tensors |= {"set_classes": decisions.sets.classes, "set_sizes": decisions.sets.size}
    if predictions.labels is not None:
        tensors["labels"] = predictions.labels
    about_score = {
        "score_name": np.array([score_name]),
        "score_threshold": np.array([rule.threshold]),
    }
    return {name: tensor.numpy() for name, tensor in tensors.items()} | about_score


def _facts(rule: SelectiveRule, records: list[dict[str, Any]]) -> dict[str, Any]:
    actions = [action.name.lower() for action in Action]
    covered: dict[str, list[bool]] = {action: [] for action in actions}
    for record in records:
        if record.get("covered") is not None:
            covered[record["action"]].append(record["covered"])
    return {
        "score_threshold": rule.threshold if math.isfinite(rule.threshold) else None,
        "calibration_examples": rule.num_examples,
        "calibration_answered": rule.num_answered,
        "risk_bound": rule.risk_bound,
        "confidence": rule.confidence,
        "decisions": len(records),
        "unusual": sum(record["reason"] in {"unusual", "both"} for record in records),
        **{action: sum(record["action"] == action for record in records) for action in actions},
        "wrong_answers": 1 - float(np.mean(covered["answer"])) if covered["answer"] else None,
        "sets_with_label": float(np.mean(covered["set"])) if covered["set"] else None,
    }


def _sentence(summary: dict[str, Any]) -> str:
    shares = ", ".join(
        f"{summary[action] / summary['decisions']:.1%} {word}"
        for action, word in (
            ("answer", "answered"),
            ("set", "answered with a set"),
            ("defer", "deferred"),
        )
    )
    text = f"{console.output_name(summary['output'])}: {summary['decisions']} decisions, {shares}"
    if summary["score_threshold"] is not None:
        text += f"; answered where {summary['score']} is at most {summary['score_threshold']:.4g}"
    if summary["unusual"]:
        text += f"; {summary['unusual']} deferred as unusual"
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
