"""What a report found, in plain words, also when something simpler does as well; and
what it recommends.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from laplacebridge.report.evaluation import DEFAULT, NETWORK, SAMPLE_SIZES, TEMPERATURE, Row

# Standard errors beyond which a mean difference in loss is not put down to chance.
_CLEAR = 1.96
# A method whose interval of the AUROC reaches down to this is of no use for OOD
# detection; chance alone has 0.5.
_NEAR_CHANCE = 0.55
# Simplest first: the first two need no fit, and of what needs one the default bridge
# tells most about a prediction.
_SIMPLEST = (NETWORK, TEMPERATURE, DEFAULT)
_WORDS = {
    NETWORK: "the network's own probabilities",
    TEMPERATURE: "temperature scaling",
    DEFAULT: f"the {DEFAULT} bridge's Dirichlet",
}

Comparison = Callable[[Row, Row], int]


def verdict(rows: Sequence[Row]) -> str:
    """A few sentences: what the bridge gains over the network alone, what else does as
    well, and what to use.

    Differences that may be chance do not count. So a method is recommended if nothing
    clearly beats it, and among those the simplest; if there is none for both
    probabilities and OOD detection, one for each. A method that can hardly tell OOD
    inputs from others is not recommended for them, even if it is the best of the table.

    Args:
        rows: The table, one row for each method.

    Example:
        >>> import torch
        >>> losses = torch.tensor([0.2, 0.3])
        >>> rows = [Row(name, 0.9, 0.25, 0.05, 0.1, None, 1.2, 0.95, 0.01, 5.0, losses) for name in ("MAP", "race")]
        >>> verdict(rows).splitlines()[-1]
        "Recommendation: keep the network's own probabilities; here they are as good as any."
    """
    by_name = {row.method: row for row in rows}
    bridge, network = by_name[DEFAULT], by_name[NETWORK]
    sentences = [
        _likelihood(bridge, network),
        _rivals(bridge, by_name),
        _detection(bridge, network, rows),
    ]
    found = " ".join(sentence for sentence in sentences if sentence)
    return f"{found}\n{_recommendation(rows)}"


def _likelihood(bridge: Row, network: Row) -> str:
    word = {1: "better than", 0: "as well as", -1: "worse than"}[_compare_losses(bridge, network)]
    chance = ", within chance" if word == "as well as" else ""
    return (
        f"The {DEFAULT} bridge predicts labels {word} the network alone{chance}: a negative"
        f" log-likelihood of {bridge.nll:.3f} against {network.nll:.3f}, a calibration error of"
        f" {bridge.ece:.3f} against {network.ece:.3f}."
    )


def _rivals(bridge: Row, by_name: Mapping[str, Row]) -> str:
    told = []
    for name in (TEMPERATURE, f"MC-{SAMPLE_SIZES[-1]}"):
        if name in by_name:
            rival = by_name[name]
            outcome = {1: "worse", 0: "as well", -1: "better"}[_compare_losses(bridge, rival)]
            told.append(
                f"{_words(name)} {'does' if name == TEMPERATURE else 'do'} {outcome} here"
                f" ({rival.nll:.3f})"
            )
    joined = " and ".join(told)
    return f"{joined[0].upper()}{joined[1:]}." if joined else ""


def _detection(bridge: Row, network: Row, rows: Sequence[Row]) -> str:
    if bridge.auroc is None or network.auroc is None:
        return ""
    ours, theirs = (
        f"{one.estimate:.3f} ({one.low:.3f} to {one.high:.3f})"
        for one in (bridge.auroc, network.auroc)
    )
    sentence = (
        "The bridge separates out-of-distribution (OOD) from in-distribution inputs with an AUROC"
        f" of {ours}, the network alone with {theirs}"
    )
    best = max(
        (row for row in rows if row.auroc is not None), key=lambda row: row.value("auroc") or 0.0
    )
    if best not in {bridge, network}:
        sentence += f"; best is {best.method} with {best.value('auroc'):.3f}"
    return f"{sentence}."


def _recommendation(rows: Sequence[Row]) -> str:
    ordered = sorted(
        rows,
        key=lambda row: _SIMPLEST.index(row.method) if row.method in _SIMPLEST else len(_SIMPLEST),
    )
    for_labels = [row for row in ordered if not _is_beaten(row, rows, _compare_losses)]
    if any(row.auroc is None for row in rows):
        return _one(for_labels[0].method)
    for_ood = [
        row for row in ordered if _finds_ood(row) and not _is_beaten(row, rows, _compare_detection)
    ]
    if not for_ood:
        return (
            f"{_one(for_labels[0].method)} No method here tells these OOD inputs apart: no AUROC is"
            " clearly above 0.5, which is chance."
        )
    for_both = [row for row in for_labels if row in for_ood]
    if for_both:
        return _one(for_both[0].method, also=", also for OOD detection")
    return (
        f"Recommendation: use {_words(for_labels[0].method)} for probabilities and"
        f" {_words(for_ood[0].method)} for OOD detection; no single method is best at both."
    )


def _one(method: str, also: str = "") -> str:
    if method == NETWORK:
        return f"Recommendation: keep {_words(method)}{also}; here they are as good as any."
    reason = (
        "nothing simpler is as good at both" if also else "everything simpler is clearly beaten"
    )
    return (
        f"Recommendation: use {_words(method)}{also}; nothing here is clearly better, and {reason}."
    )


def _words(method: str) -> str:
    sampled = method.removeprefix("MC-")
    return _WORDS.get(method) or (
        f"{sampled} Monte Carlo samples" if sampled != method else f"the method {method}"
    )


def _compare_losses(row: Row, other: Row) -> int:
    """1 if the losses of the first are clearly smaller, −1 if clearly larger, 0 if that
    may be chance.
    """
    gain = (other.losses - row.losses).double()
    mean = float(gain.mean())
    if math.isinf(mean):  # one of them gave a label no chance at all
        return 1 if mean > 0 else -1
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    if not abs(mean) > _CLEAR * error:
        return 0
    return 1 if mean > 0 else -1


def _compare_detection(row: Row, other: Row) -> int:
    """1 if the first detects OOD inputs clearly better, −1 if clearly worse, 0 if their
    intervals overlap.
    """
    if row.auroc is None or other.auroc is None:
        return 0
    return int(row.auroc.low > other.auroc.high) - int(row.auroc.high < other.auroc.low)


def _finds_ood(row: Row) -> bool:
    return row.auroc is not None and row.auroc.low > _NEAR_CHANCE


def _is_beaten(row: Row, rows: Sequence[Row], compare: Comparison) -> bool:
    return any(compare(other, row) > 0 for other in rows)
