"""What to use: the simplest method that nothing clearly beats, that is nowhere clearly
worse than the network; and the score that tells unusual inputs apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from laplacebridge.report._findings.comparison import (
    CLEAR,
    MEASURES,
    NEAR_CHANCE,
    SURE,
    Comparisons,
    resampled_auroc,
)
from laplacebridge.report._findings.unusual import SCORES_OF_A_PAGE, ScoreRow
from laplacebridge.report.table import NETWORK, TEMPERATURE, Row, method_named, percent

NEEDS_FIT = {"msp", "mutual_information", "ood_score"}

_FIT = "classifier = lb.fit(model, train_loader, val_loader=val_loader)"
_FIT_COMMAND = "laplacebridge fit TRAIN --validation HELD_OUT {model} -o classifier.safetensors"
_PREDICT_COMMAND = "laplacebridge predict classifier.safetensors NEW {model}"


@dataclass(frozen=True)
class Advice:
    """What to use, why, and how.

    Attributes:
        method: Name of the row that is recommended.
        score: The score for unusual inputs, key of `SCORES_OF_A_PAGE`; None if none
            tells them apart, or none were given.
        sentences: What to do, and why, in plain words.
        code: The lines of Python that do it.
        command: The command that does it; empty where nothing is to be run.
        beside: What the classifier is better, worse and no different at than
            temperature scaling, or than the network where there is none.
    """

    method: str
    score: str | None
    sentences: tuple[str, ...]
    code: str
    command: str
    beside: str


def advise(
    rows: Sequence[Row],
    scores: Sequence[ScoreRow] = (),
    *,
    own: str = "race",
    options: str = "--model MODULE:FACTORY --weights WEIGHTS",
    seed: int = 0,
) -> Advice:
    """Looks at NLL, calibration, rejection, detection and set size together.

    A method is a candidate if it beats the network: is clearly better by some measure,
    and clearly worse by none. Of these it is recommended if no other one beats it in
    turn; if several remain, the simplest is taken: temperature scaling, the classifier
    as it was fitted, others. Without any candidate the network is kept.

    The classifier is also recommended where its own score notices unusual inputs better
    than any of the network's, if its probabilities are clearly worse by no measure.

    Args:
        rows: The table, one row for each method.
        scores: Scores of unusual inputs.
        own: The row that is the classifier's own answer.
        options: How the model is named on the command line.
        seed: Of resamples.

    Example:
        >>> import torch
        >>> from laplacebridge.report.table import Evidence
        >>> same = torch.linspace(0.5, 1, 50).double()
        >>> evidence = Evidence(same, same, same > 0.6, same)
        >>> numbers = (0.9, 0.75, 0.05, 0.1, 0.01, None, 1.2, 0.95, 0.01, 5.0)
        >>> rows = [Row(name, *numbers, evidence) for name in ("MAP", "race")]
        >>> advise(rows).method
        'MAP'
    """
    score = _best_score(scores, seed)
    # where a score of its own notices unusual inputs, probabilities need not
    apart = score is not None and score.name == "ood_score"
    gains = [name for name in MEASURES if not (apart and name == "auroc")]
    compared = Comparisons(rows, seed, gains)
    ordered = sorted(compared.rows, key=lambda name: _simplicity(name, own))
    candidates = [name for name in ordered if compared.beats(name, NETWORK)]
    unbeaten = [
        name for name in candidates if not any(compared.beats(rival, name) for rival in candidates)
    ]
    method = next(iter([*unbeaten, *candidates]), NETWORK)
    simple, needs_fit = method, score is not None and score.name in NEEDS_FIT
    if needs_fit and method in {NETWORK, TEMPERATURE} and not _loses(own, method, compared):
        method = own  # it is needed for the score, so that anything beside it is not simpler
    sentences = [
        _reason(method, compared, own)
        if method == simple
        else f"Use {title_of(own, own)}: its probabilities are as good as those of"
        f" {'the network' if simple == NETWORK else method_named(simple).title}, and it notices"
        " unusual inputs better."
    ]
    if method in {NETWORK, TEMPERATURE} and needs_fit:
        sentences.append("Fit the classifier beside it, for what it says about unusual inputs.")
    sentences += _trade_offs(method, unbeaten, compared)
    if scores:
        sentences.append(_about_unusual(score, scores))
    if method in {NETWORK, TEMPERATURE} and not _loses(own, method, compared):
        sentences.append(
            "If you need an interval for each probability, use the classifier: it is not"
            f" clearly worse than {method_named(method).title} at anything."
        )
    return Advice(
        method=method,
        score=None if score is None else score.name,
        sentences=tuple(sentences),
        code=_code(method, score, own),
        command=_command(method, score, own, options),
        beside=_beside(compared, own, scores, seed),
    )


def _loses(own: str, method: str, compared: Comparisons) -> bool:
    """Whether the classifier is clearly worse than a method, or than the network."""
    return bool(compared.better_at(method, own) or compared.better_at(NETWORK, own))


def _simplicity(name: str, own: str) -> int:
    order = (NETWORK, TEMPERATURE, own)
    return order.index(name) if name in order else len(order)


def _titles(measures: Sequence[str]) -> str:
    return listed([MEASURES[name].title for name in measures])


def listed(parts: Sequence[str]) -> str:
    """Some things in a sentence."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def title_of(method: str, own: str) -> str:
    """What a method is called in a sentence."""
    return "the classifier as it was fitted" if method == own else method_named(method).title


def _reason(method: str, compared: Comparisons, own: str) -> str:
    if method == NETWORK:
        return (
            "Keep the network's own probabilities: nothing here is clearly better without being"
            " worse at something else."
        )
    gains = compared.better_at(method, NETWORK, SURE)
    told = f"Use {title_of(method, own)}: clearly better than the network at {_titles(gains)}"
    if method != TEMPERATURE and TEMPERATURE in compared.rows:
        more = compared.better_at(method, TEMPERATURE)
        told += f", and than temperature scaling at {_titles(more)}" if more else ""
    return f"{told}, and nowhere clearly worse."


def _trade_offs(method: str, unbeaten: Sequence[str], compared: Comparisons) -> list[str]:
    """Others that are better at something, and worse at something else."""
    told = []
    for rival in unbeaten:
        gains, losses = compared.better_at(rival, method), compared.better_at(method, rival)
        if gains and losses:
            told.append(
                f"{_capital(method_named(rival).title)} would be better at {_titles(gains)}, and"
                f" worse at {_titles(losses)}."
            )
    return told[:1]


def _best_score(scores: Sequence[ScoreRow], seed: int) -> ScoreRow | None:
    """The simplest score that nothing clearly beats; None if none is better than
    chance.
    """
    useful = [row for row in scores if row.auroc.low > NEAR_CHANCE]
    drawn = {row.name: resampled_auroc(row.scores, row.ood_scores, seed) for row in useful}

    def beaten(row: ScoreRow) -> bool:
        return any(
            _clear_gain(
                other.auroc.estimate - row.auroc.estimate, drawn[other.name] - drawn[row.name]
            )
            for other in useful
        )

    return next((row for row in useful if not beaten(row)), None)


def _clear_gain(gain: float, resampled: Tensor) -> bool:
    """Whether a gain of AUROC is no chance, and large enough to matter."""
    return gain > max(MEASURES["auroc"].worth, CLEAR * float(resampled.std()))


def _about_unusual(score: ScoreRow | None, scores: Sequence[ScoreRow]) -> str:
    if score is None:
        best = max(scores, key=lambda row: row.auroc.estimate)
        return (
            "No method here tells these unusual inputs apart: the best score has an AUROC of"
            f" {best.auroc.estimate:.2f} ({best.auroc.low:.2f} to {best.auroc.high:.2f}), and 0.5"
            " is chance. Do not rely on it to notice them."
        )
    described = SCORES_OF_A_PAGE[score.name][0]
    return (
        f"To notice unusual inputs use {described[0].lower()}{described[1:]}: of an unusual and an"
        f" ordinary input it is higher for the unusual one in {percent(score.auroc.estimate)} of"
        f" pairs ({percent(score.auroc.low)} to {percent(score.auroc.high)})."
    )


def _beside(compared: Comparisons, own: str, scores: Sequence[ScoreRow], seed: int) -> str:
    """What the classifier is better, worse and no different at than the usual remedy."""
    rival = TEMPERATURE if TEMPERATURE in compared.rows else NETWORK
    measures = [name for name in MEASURES if compared.rows[own].value(name) is not None]
    by_name = {row.name: row for row in scores}
    verdicts = {
        MEASURES[name].title: compared.clear(name, own, rival)
        for name in measures
        if name != "auroc" or "ood_score" not in by_name
    }
    if "ood_score" in by_name:
        title, verdict = _noticing(by_name["ood_score"], compared.rows[rival], seed)
        verdicts = {title: verdict} | verdicts
    words = {1: "clearly better at", -1: "clearly worse at", 0: "not clearly different in"}
    told = [
        f"{said} {listed([title for title, found in verdicts.items() if found == verdict])}"
        for verdict, said in words.items()
        if verdict in verdicts.values()
    ]
    return f"Beside {method_named(rival).title}, the classifier is {'; '.join(told)}."


def _noticing(own: ScoreRow, rival: Row, seed: int) -> tuple[str, int]:
    """Whether the classifier's own score notices unusual inputs better than another
    method's largest probability; and both AUROCs, for people.
    """
    theirs, evidence = rival.auroc, rival.evidence
    assert theirs is not None  # noqa: S101  (unusual inputs were given)
    title = f"noticing unusual inputs (AUROC {own.auroc.estimate:.2f}, not {theirs.estimate:.2f})"
    if evidence is None or evidence.ood_msp is None:
        return title, 0
    gain = own.auroc.estimate - theirs.estimate
    drawn = resampled_auroc(own.scores, own.ood_scores, seed) - resampled_auroc(
        evidence.msp, evidence.ood_msp, seed
    )
    if own.auroc.low > NEAR_CHANCE and _clear_gain(gain, drawn):
        return title, 1
    return title, -1 if theirs.low > NEAR_CHANCE and _clear_gain(-gain, -drawn) else 0


def _code(method: str, score: ScoreRow | None, own: str) -> str:
    lines = {
        NETWORK: ["probabilities = model(inputs).softmax(-1)"],
        TEMPERATURE: [
            "scaling = lb.temperature.temperature_scaling(model(held_out), held_out_labels)",
            "probabilities = scaling(model(inputs))",
        ],
    }.get(method)
    needs_fit = score is not None and score.name in NEEDS_FIT
    fitted = [_FIT, "prediction = classifier(inputs)"]
    if lines is None:
        asked = "" if method == own else f"  # {method_named(method).function}"
        lines = [fitted[0], f"prediction = classifier(inputs){asked}"]
    elif needs_fit:
        lines += fitted
    if score is not None:
        call = SCORES_OF_A_PAGE[score.name][1]
        lines.append(f"unusual = {call}".replace("logits", "model(inputs)"))
    return "\n".join(lines)


def _command(method: str, score: ScoreRow | None, own: str, options: str) -> str:
    needs_fit = score is not None and score.name in NEEDS_FIT
    if method == NETWORK and not needs_fit:
        return ""
    extra = " --tune-temperature" if method == TEMPERATURE and not needs_fit else ""
    bridge = method_named(method).option
    if method not in {NETWORK, TEMPERATURE, own} and bridge.startswith("--bridge"):
        extra = f" {bridge}"
    fit = _FIT_COMMAND.format(model=options + extra)
    return f"{fit}\n{_PREDICT_COMMAND.format(model=options)}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
