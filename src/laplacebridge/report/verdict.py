"""What a report found, in plain words; also when something simpler does as well. It ends in a recommendation."""

from collections.abc import Mapping, Sequence

from laplacebridge.report.evaluation import Row
from laplacebridge.report.methods import DEFAULT, NETWORK, SAMPLE_SIZES, TEMPERATURE
from laplacebridge.report.recommendation import compare_losses, recommendation

_RIVALS = {TEMPERATURE: "temperature scaling", f"MC-{SAMPLE_SIZES[-1]}": f"{SAMPLE_SIZES[-1]} Monte Carlo samples"}


def verdict(rows: Sequence[Row]) -> str:
    """A few sentences: what the bridge gains over the network alone, what else does as well, and what to use.

    Args:
        rows: The table.
    """
    by_name = {row.method: row for row in rows}
    bridge, network = by_name[DEFAULT], by_name[NETWORK]
    sentences = [_likelihood(bridge, network), _rivals(bridge, by_name)]
    if bridge.auroc is not None and network.auroc is not None:
        sentences.append(_detection(bridge, network, by_name))
    found = " ".join(sentence for sentence in sentences if sentence)
    return f"{found}\n{recommendation(rows)}"


def _likelihood(bridge: Row, network: Row) -> str:
    word = {1: "better than", 0: "as well as", -1: "worse than"}[compare_losses(bridge, network)]
    chance = ", within chance" if word == "as well as" else ""
    return (
        f"The race bridge predicts labels {word} the network alone{chance}: a negative log-likelihood of "
        f"{bridge.nll:.3f} against {network.nll:.3f}, a calibration error of {bridge.ece:.3f} "
        f"against {network.ece:.3f}."
    )


def _rivals(bridge: Row, by_name: Mapping[str, Row]) -> str:
    told = []
    for name, words in _RIVALS.items():
        if name in by_name:
            rival = by_name[name]
            outcome = {1: "worse", 0: "as well", -1: "better"}[compare_losses(bridge, rival)]
            told.append(f"{words} {'do' if name != TEMPERATURE else 'does'} {outcome} here ({rival.nll:.3f})")
    if not told:
        return ""
    joined = " and ".join(told)
    return f"{joined[0].upper()}{joined[1:]}."


def _detection(bridge: Row, network: Row, by_name: Mapping[str, Row]) -> str:
    inside, outside = bridge.auroc, network.auroc
    if inside is None or outside is None:
        return ""
    best = max((row for row in by_name.values() if row.auroc is not None), key=lambda row: row.value("auroc") or 0.0)
    sentence = (
        f"The bridge tells strange inputs from known ones with an AUROC of {inside.estimate:.3f} ({inside.low:.3f} to "
        f"{inside.high:.3f}), the network alone with {outside.estimate:.3f} ({outside.low:.3f} to {outside.high:.3f})"
    )
    if best.method not in {bridge.method, network.method} and best.auroc is not None:
        sentence += f"; best is {best.method} with {best.auroc.estimate:.3f}"
    return f"{sentence}."
