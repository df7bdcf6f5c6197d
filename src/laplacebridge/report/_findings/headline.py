"""The first screen: a headline in plain words, and a few figures with a light for each."""

from dataclasses import dataclass

from laplacebridge.metrics import Interval
from laplacebridge.report._findings.decisions import Decided, Decisions
from laplacebridge.report._findings.halves import FoundSets, share
from laplacebridge.report._findings.intervals import IntervalCheck
from laplacebridge.report._findings.unusual import Alarm
from laplacebridge.report.table import percent

GOOD, FAIR, BAD, UNKNOWN = "good", "fair", "bad", "not tested"
# Share answered by itself, and share of unusual inputs noticed, that are good and fair.
ANSWERED_GOOD, ANSWERED_FAIR = 0.8, 0.5
NOTICED_GOOD, NOTICED_FAIR = 0.9, 0.5
# Chance of the disagreements between intervals and labels below which they are bad.
LIKELY = 0.05


@dataclass(frozen=True)
class Figure:
    """A figure of the first screen.

    Attributes:
        name: Short and without spaces, for programs.
        title: Above the figure.
        text: The figure itself, for people.
        value: As a number, with its interval; None where it could not be had.
        light: "good", "fair", "bad" or "not tested".
        criterion: When the light is good, and when it is bad.
        detail: What else to know, in a sentence.
    """

    name: str
    title: str
    text: str
    value: Interval | None
    light: str
    criterion: str
    detail: str = ""


def ends(interval: Interval) -> str:
    """The ends of an interval of a share."""
    low, high = (f"{100 * end:.1f}".removesuffix(".0") for end in (interval.low, interval.high))
    return f"{low} to {high}\u202f%"


def figures(
    decisions: Decisions,
    found_sets: FoundSets,
    intervals: IntervalCheck | None,
    alarm: Alarm | None,
    noticed: Interval | None,
) -> tuple[Figure, ...]:
    """Five figures: answered, wrong, intervals, sets, unusual inputs; three of
    probabilities alone, which have no intervals.
    """
    chosen = decisions.chosen
    first = (_answered(chosen, decisions.stated), _wrong(chosen, decisions.stated))
    if intervals is None:
        return *first, _sets(found_sets)
    return *first, _intervals(intervals), _sets(found_sets), _noticed(alarm, noticed)


def headline(
    decisions: Decisions,
    alarm: Alarm | None,
    noticed: Interval | None,
    *,
    has_ood: bool,
    has_features: bool = True,
) -> str:
    """What the model can do by itself, in a few plain sentences."""
    chosen = decisions.chosen
    if chosen is None:
        first = (
            f"No error rate up to {percent(max(decisions.impossible, default=1.0), 0)} can be"
            " promised on these data: every case should go to a person."
        )
    else:
        asked = (
            ""
            if chosen.risk == decisions.stated
            else f" ({percent(decisions.stated, 0)} was asked for and cannot be promised)"
        )
        first = (
            f"By itself the classifier can answer {percent(chosen.answered.estimate, 0)} of cases"
            f" with at most {percent(chosen.risk, _digits(chosen.risk))} errors{asked}."
        )
        rest = [
            f"{percent(part, 0)} {what}"
            for part, what in (
                (chosen.named.estimate, "get a set of two or three possible classes"),
                (chosen.deferred.estimate, "go to a person"),
            )
            if part
        ]
        first += f" {' and '.join(rest)}." if rest else ""
    if not has_features:
        return f"{first} Unusual inputs cannot be noticed by probabilities alone."
    return f"{first} {_unusual_sentence(alarm, noticed, has_ood=has_ood)}"


def _digits(share_: float) -> int:
    return 0 if abs(100 * share_ - round(100 * share_)) < 1e-9 else 1


def _unusual_sentence(alarm: Alarm | None, noticed: Interval | None, *, has_ood: bool) -> str:
    if alarm is None:
        why = "" if not has_ood else ", for want of held-out data when it was fitted"
        return f"It was not tested whether it notices unusual inputs{why}."
    false = f"{percent(alarm.false.estimate)} of ordinary ones raise a false alarm"
    if noticed is None:
        return f"It was not tested whether it notices unusual inputs; {false}."
    kinds = sorted(alarm.noticed.items(), key=lambda it: it[1].estimate)
    told = ""
    if len(kinds) > 1:
        (hardest, least), (easiest, most) = kinds[0], kinds[-1]
        told = (
            f", from {percent(least.estimate, 0)} of “{hardest}” to {percent(most.estimate, 0)} of"
            f" “{easiest}”"
        )
    return f"Of the unusual inputs it notices {percent(noticed.estimate, 0)}{told}; {false}."


def _answered(chosen: Decided | None, stated: float) -> Figure:
    criterion = (
        f"good from {percent(ANSWERED_GOOD, 0)} on, bad below {percent(ANSWERED_FAIR, 0)}, at the"
        " stated risk"
    )
    title = "Answered by itself"
    if chosen is None:
        return Figure("answered", title, "none", None, BAD, criterion)
    value = chosen.answered
    light = GOOD if value.estimate >= ANSWERED_GOOD else FAIR
    if value.estimate < ANSWERED_FAIR:
        light = BAD
    if chosen.risk != stated and light == GOOD:
        light = FAIR
    return Figure(
        "answered",
        title,
        percent(value.estimate, 0),
        value,
        light,
        criterion,
        f"{ends(value)}; at a risk of {percent(chosen.risk, _digits(chosen.risk))}",
    )


def _wrong(chosen: Decided | None, stated: float) -> Figure:
    title = "Wrong among these answers"
    risk = stated if chosen is None else chosen.risk
    criterion = f"good up to the {percent(risk, _digits(risk))} allowed, bad if clearly above"
    if chosen is None or chosen.wrong is None:
        return Figure("wrong", title, "no answers", None, UNKNOWN, criterion)
    value = chosen.wrong
    light = GOOD if value.estimate <= risk else FAIR
    light = BAD if value.low > risk else light
    detail = f"{ends(value)}; at most {percent(chosen.promised)} was promised"
    return Figure("wrong", title, percent(value.estimate), value, light, criterion, detail)


def _intervals(check: IntervalCheck) -> Figure:
    agreeing, number = check.num_agreeing, len(check.bins)
    criterion = "good if labels contradict no interval, bad if more often than chance allows"
    value = check.votes or share(agreeing, number)
    chance = _chance_of_missing(number - agreeing, number)
    light = GOOD if agreeing == number else FAIR
    light = BAD if chance < LIKELY else light
    text = f"{agreeing} of {number}"
    detail = (
        "groups of predictions whose labels lie where the 95\u202f% intervals say; mean width"
        f" {check.width:.2f}"
    )
    if check.votes is not None:
        text = percent(check.votes.estimate, 0)
        detail = f"of examples have votes where the 95\u202f% interval expects them; {detail}"
        light = GOOD if check.votes.high >= 0.95 else BAD
        criterion = "good if 95\u202f% may be true, bad if clearly below"
    return Figure(
        "intervals", "Intervals that labels bear out", text, value, light, criterion, detail
    )


def _chance_of_missing(missing: int, number: int) -> float:
    """The chance of so many disagreements, or more, if each has a chance of 5 %."""
    from math import comb

    return sum(
        comb(number, count) * 0.05**count * 0.95 ** (number - count)
        for count in range(missing, number + 1)
    )


def _sets(found: FoundSets) -> Figure:
    value = share(int(found.held.sum()), len(found.held))
    assert value is not None  # noqa: S101  (there are examples)
    asked = found.coverage
    light = GOOD if value.estimate >= asked else FAIR
    light = BAD if value.high < asked else light
    return Figure(
        "coverage",
        "Sets that hold the right class",
        percent(value.estimate),
        value,
        light,
        f"good from the {percent(asked, _digits(asked))} promised on, bad if clearly below",
        f"{ends(value)}; {float(found.sizes.double().mean()):.2f} classes on average",
    )


def _noticed(alarm: Alarm | None, noticed: Interval | None) -> Figure:
    title = "Unusual inputs noticed"
    criterion = (
        f"good from {percent(NOTICED_GOOD, 0)} on, bad below {percent(NOTICED_FAIR, 0)}, or if"
        " false alarms are clearly more than stated"
    )
    if alarm is None or noticed is None:
        return Figure("noticed", title, "not tested", None, UNKNOWN, criterion)
    light = GOOD if noticed.estimate >= NOTICED_GOOD else FAIR
    if noticed.estimate < NOTICED_FAIR or alarm.false.low > alarm.stated:
        light = BAD
    detail = (
        f"{ends(noticed)}; false alarms {percent(alarm.false.estimate)}, stated at most"
        f" {percent(alarm.stated, 0)}"
    )
    return Figure("noticed", title, percent(noticed.estimate, 0), noticed, light, criterion, detail)
