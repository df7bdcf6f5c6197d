"""Turns the results of `bench_accuracy.py` into the tables of the documentation, and
judges them.

    python benchmarks/render_accuracy.py    # rewrites what is between the markers
"""

import argparse
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results" / "accuracy.json"
DOCUMENT = BENCHMARKS.parent / "docs" / "bridges.md"
BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"
COVERAGE_BOUNDS = (0.93, 0.97)
LARGEST_MEAN_ERROR, LARGEST_ERROR = 1e-3, 3e-2
INDEPENDENT_BOUNDS = f"mean error ≤ {LARGEST_MEAN_ERROR:g}, worst ≤ {LARGEST_ERROR:g}"
HARD_METHODS = ("MAP", "LB", "LB-norm", "MC-100", "MC-1000", "one-vs-rest", "race")
CORRELATED_RESULTS = RESULTS.with_name("correlated.json")
CORRELATED_BEGIN, CORRELATED_END = "<!-- correlated:begin -->", "<!-- correlated:end -->"
CORRELATED_METHODS = ("MC-100", "MC-1000", "one-vs-rest", "race without factors", "race")
CORRELATED_COVERAGE = (0.92, 0.98)

Row = dict[str, Any]
Report = dict[str, Any]


def verdicts(report: Report) -> list[Row]:
    """Whether the acceptance criteria hold, each with the figures that decide it."""
    bridges = ("race", "one-vs-rest")
    return [
        *(_coverage_verdict(report, bridge) for bridge in bridges),
        *(_sampling_verdict(report, bridge) for bridge in bridges),
        _independent_verdict(report),
        _every_independent_verdict(report),
    ]


def _coverage_verdict(report: Report, bridge: str) -> Row:
    cells = sorted(select(report["by_regime"], method=bridge), key=lambda row: row["coverage"])
    low, high = COVERAGE_BOUNDS
    ends = [
        f"{row['coverage']:.4f} (K = {row['num_classes']}, {row['regime']})"
        for row in (cells[0], cells[-1])
    ]
    return {
        "criterion": (
            f"{bridge}: coverage of the 95 % interval within {low}–{high} for every K and regime"
        ),
        "holds": all(low <= row["coverage"] <= high for row in cells),
        "figures": f"from {ends[0]} to {ends[1]}",
    }


def _sampling_verdict(report: Report, bridge: str) -> Row:
    pairs = {
        row["num_classes"]: (row["tv_mean"], sampled["tv_mean"])
        for row in select(report["overall"], method=bridge)
        for sampled in select(report["overall"], method="MC-1000", num_classes=row["num_classes"])
    }
    return {
        "criterion": f"{bridge}: mean error at or below that of 1000 samples for every K",
        "holds": all(own <= sampled for own, sampled in pairs.values()),
        "figures": "; ".join(
            f"K = {k}: {own:.5f} against {sampled:.5f}" for k, (own, sampled) in pairs.items()
        ),
    }


def _independent_verdict(report: Report) -> Row:
    rows = select(report["rows"], method="race", independent=True)
    count = sum(row["num_gaussians"] for row in rows)
    average = sum(row["tv_mean"] * row["num_gaussians"] for row in rows) / count
    worst = max(row["tv_worst"] for row in rows)
    return {
        "criterion": f"race, all independent logits together: {INDEPENDENT_BOUNDS}",
        "holds": average <= LARGEST_MEAN_ERROR and worst <= LARGEST_ERROR,
        "figures": f"mean {average:.2e} and worst {worst:.2e} of {count} Gaussians",
    }


def _every_independent_verdict(report: Report) -> Row:
    rows = select(report["rows"], method="race", independent=True)
    above = [
        row
        for row in rows
        if row["tv_mean"] > LARGEST_MEAN_ERROR or row["tv_worst"] > LARGEST_ERROR
    ]
    named = [
        f"{row['population']} ({row['regime']}, K = {row['num_classes']}) mean"
        f" {row['tv_mean']:.1e}, worst {row['tv_worst']:.1e}"
        for row in above
    ]
    return {
        "criterion": (
            f"race, every population of independent logits by itself: {INDEPENDENT_BOUNDS}"
        ),
        "holds": not above,
        "figures": "; ".join([f"beyond them in {len(above)} of {len(rows)} populations", *named]),
    }


def tables(report: Report) -> str:
    """All tables as Markdown, which reads well on a terminal too."""
    regimes = _distinct(report["by_regime"], "regime")
    with_dirichlet = [row for row in report["overall"] if row["excess_kl_median"] is not None]
    return "\n\n".join(
        [
            _conditions(report),
            "### Mean error over all structures and regimes",
            "Total variation between a method's mean and the reference's.",
            _by_classes(report["overall"], "tv_mean", noise=True),
            *(part for regime in regimes for part in _regime_parts(report, regime)),
            "### Coverage of the 95 % interval of the most probable class",
            f"In each cell the regimes {', '.join(regimes)}; in the last column the extremes.",
            _coverage_table(report["by_regime"]),
            "### Excess over the divergence of the best Dirichlet",
            (
                "Median of KL(p‖Dir) minus its minimum, in nats; log-concentrations cut at"
                " ±log(1e12) or the best one's."
            ),
            _by_classes(with_dirichlet, "excess_kl_median"),
            "### Hard regimes, independent logits",
            (
                "Mean error against the exact mean, worst Gaussian in brackets; coverage of"
                " one-vs-rest → race."
            ),
            _hard_table(select(report["rows"], regime="independent"), HARD_METHODS, "race"),
            "### Verdicts",
            "\n".join(_verdict_line(verdict) for verdict in report["verdicts"]),
        ]
    )


def correlated_verdicts(report: Report) -> list[Row]:
    """Whether the criteria for correlated logits hold."""
    raced = select(report["rows"], method="race")
    return [
        *(
            _against_sampling(report, regime)
            for regime in (None, *_distinct(report["rows"], "regime"))
        ),
        _correlated_coverage(raced, "coverage", "Dirichlet's"),
        _correlated_coverage(raced, "interval_coverage", "predicted"),
        _honest_estimate(raced),
    ]


def _against_sampling(report: Report, regime: str | None) -> Row:
    rows = [row for row in report["rows"] if regime in (None, row["regime"])]
    sampled = {
        (row["population"], row["num_classes"]): row["tv_mean"]
        for row in select(rows, method="MC-1000")
    }
    raced = select(rows, method="race")
    above = [
        row for row in raced if row["tv_mean"] > sampled[row["population"], row["num_classes"]]
    ]
    named = [
        f"{row['population']}, K = {row['num_classes']}: {_number(row['tv_mean'])} against"
        f" {_number(sampled[row['population'], row['num_classes']])}"
        for row in above
    ]
    return {
        "criterion": (
            f"race, {regime or 'all laws'}: mean error at or below that of 1000 samples in 95 % of"
            " the cells"
        ),
        "holds": len(above) <= 0.05 * len(raced),
        "figures": "; ".join([f"above it in {len(above)} of {len(raced)} cells", *named]),
    }


def _correlated_coverage(raced: list[Row], figure: str, whose: str) -> Row:
    low, high = CORRELATED_COVERAGE
    outside = [row for row in raced if not low <= row.get(figure, math.nan) <= high]
    named = [
        f"{row['population']}, K = {row['num_classes']}: {_share(row.get(figure, math.nan))}"
        for row in outside
    ]
    return {
        "criterion": (
            f"race: coverage of the {whose} 95 % interval of the top class within {low}–{high} in"
            " every cell"
        ),
        "holds": not outside,
        "figures": "; ".join([f"outside in {len(outside)} of {len(raced)} cells", *named]),
    }


def _honest_estimate(raced: list[Row]) -> Row:
    sure, close = (sum(row[key] for row in raced) for key in ("sure", "sure_and_close"))
    total = sum(row["num_gaussians"] for row in raced)
    return {
        "criterion": (
            "race: where its estimated error is below .01, the error is below .02 in 95 % of rows"
        ),
        "holds": close >= 0.95 * sure,
        "figures": f"{close:.0f} of {sure:.0f} rows, of {total}",
    }


def correlated_tables(report: Report) -> str:
    """The tables of correlated logits as Markdown."""
    titles = {
        "correlated": "Laws that the method was made on",
        "correlated, seen": "Laws that were looked at once, half-way",
        "held out": "Laws that were written down afterwards",
    }
    parts = [
        part
        for regime in _distinct(report["rows"], "regime")
        for part in (
            f"#### {titles[regime]}",
            _hard_table(select(report["rows"], regime=regime), CORRELATED_METHODS, "race"),
        )
    ]
    return "\n\n".join(
        [
            _conditions(report, "six Gaussians of each law (fewer samples for more classes)"),
            (
                "Mean error against the sampled mean, worst Gaussian in brackets, beside the error of"
                " that mean itself; coverage of one-vs-rest → race. *race without factors* is what"
                " it was before, and is for the Gaussians of a fit."
            ),
            *parts,
            "#### Verdicts on correlated logits",
            "\n".join(_verdict_line(verdict) for verdict in report["verdicts"]),
        ]
    )


def one_row_a_line(report: Report) -> str:
    """JSON in which a changed figure changes one line."""

    def value(part: object) -> str:
        return (
            "[\n" + ",\n".join(map(json.dumps, part)) + "\n]"
            if isinstance(part, list)
            else json.dumps(part)
        )

    return (
        "{\n"
        + ",\n".join(f"{json.dumps(name)}: {value(part)}" for name, part in report.items())
        + "\n}\n"
    )


def select(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """The rows in which the named columns have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _conditions(report: Report, measured_on: str | None = None) -> str:
    machine = report["machine"]
    samples = ", ".join(
        f"{count} for K = {classes}" for classes, count in report["samples"].items()
    )
    gaussians = sum(row["num_gaussians"] for row in select(report["overall"], method="MAP"))
    measured_on = measured_on or (
        f"{gaussians} Gaussians in five structures and four regimes, and on the hard ones"
    )
    return (
        f"Measured by `{report['command']}` in {report['seconds']:.0f} s ({report['processes']}"
        f" processes, torch {machine['torch']}, seed {report['seed']}) on {measured_on}."
        " Reference: the exact mean for"
        f" independent logits, otherwise the average of antithetic samples ({samples}), whose own"
        " expected error is the noise."
    )


def _regime_parts(report: Report, regime: str) -> tuple[str, str]:
    rows = select(report["by_regime"], regime=regime)
    return f"### Mean error, {regime}", _by_classes(rows, "tv_mean", noise=True)


def _verdict_line(verdict: Row) -> str:
    answer = "holds" if verdict["holds"] else "does not hold"
    return f"- **{answer}**: {verdict['criterion']}. Measured: {verdict['figures']}."


def _by_classes(rows: list[Row], column: str, *, noise: bool = False) -> str:
    """A table of methods against numbers of classes."""
    classes = _distinct(rows, "num_classes")
    lines = [
        [
            method,
            *(
                _number(row[column])
                for k in classes
                for row in select(rows, method=method, num_classes=k)
            ),
        ]
        for method in _distinct(rows, "method")
    ]
    if noise:
        known = {row["num_classes"]: row["reference_noise"] for row in rows}
        lines.append(["*noise of the reference*", *(_number(known[k]) for k in classes)])
    return _markdown(["method", *(f"K = {k}" for k in classes)], lines)


def _coverage_table(rows: list[Row]) -> str:
    covered = [row for row in rows if row["coverage"] is not None]
    classes = _distinct(covered, "num_classes")
    lines = []
    for method in _distinct(covered, "method"):
        own = select(covered, method=method)
        cells = [
            " ".join(_share(row["coverage"]) for row in select(own, num_classes=k)) for k in classes
        ]
        values = [row["coverage"] for row in own]
        lines.append([method, *cells, f"{_share(min(values))}–{_share(max(values))}"])
    return _markdown(["method", *(f"K = {k}" for k in classes), "from–to"], lines)


def _hard_table(rows: list[Row], methods: tuple[str, ...], bridge: str) -> str:
    lines = []
    for name in _distinct(rows, "population"):
        for k in _distinct(select(rows, population=name), "num_classes"):
            by_method = {row["method"]: row for row in select(rows, population=name, num_classes=k)}
            errors = [
                f"{_number(by_method[m]['tv_mean'])} ({_number(by_method[m]['tv_worst'])})"
                for m in methods
            ]
            covered = " → ".join(_share(by_method[m]["coverage"]) for m in ("one-vs-rest", bridge))
            lines.append(
                [name, str(k), _number(by_method["race"]["reference_noise"]), *errors, covered]
            )
    return _markdown(["population", "K", "noise", *methods, "coverage"], lines)


def _distinct(rows: list[Row], column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def _number(value: float) -> str:
    """Two significant digits, in plain figures where those are short."""
    if value == 0:
        return "0"
    if not math.isfinite(value) or not 1e-4 <= abs(value) < 1e4:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return f"{value:.{max(0, 1 - math.floor(math.log10(abs(value))))}f}".removeprefix("0")


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _markdown(header: list[str], lines: list[list[str]]) -> str:
    """A Markdown table with its columns aligned."""
    cells = [header, *lines]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths)] for line in cells]
    rule = ["-" * width for width in widths]
    return "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])


def _between(document: Path, text: str, markers: tuple[str, str], part: str) -> str:
    begin, end = markers
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise SystemExit(
            f"{document} needs one line {begin} and below it one line {end}; nothing was written."
        )
    return f"{text.split(begin)[0]}{begin}\n{part}\n{end}{text.split(end)[1]}"


def main() -> None:
    """Rewrites the part of the document between the markers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="JSON that bench_accuracy.py wrote"
    )
    parser.add_argument(
        "--document", type=Path, default=DOCUMENT, help="Markdown file with the markers"
    )
    options = parser.parse_args()
    if not options.document.exists():
        raise SystemExit(
            f"There is no {options.document}; nothing was written. Give another with --document."
        )
    text = options.document.read_text(encoding="utf-8")
    report = json.loads(options.results.read_text(encoding="utf-8"))
    text = _between(options.document, text, (BEGIN, END), tables(report))
    if CORRELATED_BEGIN in text and CORRELATED_RESULTS.exists():
        correlated = json.loads(CORRELATED_RESULTS.read_text(encoding="utf-8"))
        markers = (CORRELATED_BEGIN, CORRELATED_END)
        text = _between(options.document, text, markers, correlated_tables(correlated))
    options.document.write_text(text, encoding="utf-8")
    print(f"Wrote the tables of {options.results} into {options.document}.")


if __name__ == "__main__":
    main()
