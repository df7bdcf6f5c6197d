"""What a report advises: the simplest method that no other one clearly beats."""

import math
from collections.abc import Callable, Sequence

from laplacebridge.report.evaluation import Row
from laplacebridge.report.methods import DEFAULT, NETWORK, TEMPERATURE

# Standard errors beyond which a mean difference in loss is not put down to chance.
_CLEAR = 1.96
# Simplest first: the first two need no fit, and of what needs one the default bridge tells most about a prediction.
_SIMPLEST = (NETWORK, TEMPERATURE, DEFAULT)
_WORDS = {
    NETWORK: "the network's own probabilities",
    TEMPERATURE: "temperature scaling",
    DEFAULT: "the race bridge's Dirichlet",
}

Comparison = Callable[[Row, Row], int]


def recommendation(rows: Sequence[Row]) -> str:
    """One sentence that follows from the table: what to use, and why.

    Differences that may be chance do not count. So a method is advised if nothing clearly beats it, and among those the
    simplest; if there is none for both probabilities and strange inputs, one for each.

    Args:
        rows: The table.
    """
    ordered = sorted(rows, key=lambda row: _SIMPLEST.index(row.method) if row.method in _SIMPLEST else len(_SIMPLEST))
    tells_strange = all(row.auroc is not None for row in rows)
    comparisons = [compare_losses, compare_detection] if tells_strange else [compare_losses]
    for_all = [row for row in ordered if not any(_is_beaten(row, rows, compare) for compare in comparisons)]
    if for_all:
        return _one_for_all(for_all[0].method, ", also for strange inputs" if tells_strange else "")
    for_labels, for_strange = (  # by one comparison alone, the best of the table is never beaten
        next(row.method for row in ordered if not _is_beaten(row, rows, compare)) for compare in comparisons
    )
    return (
        f"Recommendation: use {_words(for_labels)} for probabilities and {_words(for_strange)} for strange inputs; no "
        "single method is best at both."
    )


def compare_losses(row: Row, other: Row) -> int:
    """1 if the losses of the first are clearly smaller, −1 if clearly larger, 0 if that may be chance.

    Args:
        row: A method.
        other: Another one, on the same examples.
    """
    gain = (other.losses - row.losses).double()
    mean = float(gain.mean())
    if math.isinf(mean):  # one of them gave a label no chance at all
        return 1 if mean > 0 else -1
    error = float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    if not abs(mean) > _CLEAR * error:
        return 0
    return 1 if mean > 0 else -1


def compare_detection(row: Row, other: Row) -> int:
    """1 if the first tells strange inputs clearly better, −1 if clearly worse, 0 if their intervals overlap.

    Args:
        row: A method.
        other: Another one, on the same examples.
    """
    if row.auroc is None or other.auroc is None:
        return 0
    return int(row.auroc.low > other.auroc.high) - int(row.auroc.high < other.auroc.low)


def _is_beaten(row: Row, rows: Sequence[Row], compare: Comparison) -> bool:
    return any(compare(other, row) > 0 for other in rows)


def _one_for_all(method: str, also: str) -> str:
    if method == NETWORK:
        return f"Recommendation: keep {_words(method)}{also}; here they are as good as any."
    return (
        f"Recommendation: use {_words(method)}{also}; nothing here is clearly better, and everything simpler is "
        "clearly beaten."
    )


def _words(method: str) -> str:
    sampled = method.removeprefix("MC-")
    return _WORDS.get(method) or (f"{sampled} Monte Carlo samples" if sampled != method else f"the method {method}")
