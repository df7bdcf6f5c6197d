"""Turns the stored results into docs/benchmarks.md, what stands between its markers,
and the plots beside it.

python benchmarks/render_benchmarks.py
"""

import json
from collections.abc import Callable
from pathlib import Path

import benchmark_tables
import serve_tables
from benchmark_tables import Results

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results"
DOCUMENT = BENCHMARKS.parent / "docs" / "benchmarks.md"
NAMES = (
    "bridge",
    "prediction",
    "fit",
    "laplace_torch",
    "scaling",
    "sets",
    "export",
    "vocabulary",
    "generate",
    "serve",
    "sizes",
)  # in the order of the page


def results() -> Results:
    """All stored results by name."""
    paths = {name: RESULTS / f"{name}.json" for name in NAMES}
    found = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }
    return {
        name: {"rows": each} if isinstance(each, list) else each for name, each in found.items()
    }


BLOCKS: dict[str, Callable[[Results], str]] = {
    "machine": benchmark_tables.machine,
    "targets": benchmark_tables.targets,
    "bridges": benchmark_tables.bridges,
    "sampling": benchmark_tables.sampling,
    "correlated": benchmark_tables.correlated,
    "prediction": benchmark_tables.prediction,
    "one-example": benchmark_tables.one_example,
    "resnet": benchmark_tables.resnet,
    "fitting": benchmark_tables.fitting,
    "choosing": benchmark_tables.choosing,
    "laplace-torch": benchmark_tables.laplace_torch,
    "refused": benchmark_tables.refused,
    "agreement": benchmark_tables.agreement,
    "exponents": benchmark_tables.exponents,
    "memory": benchmark_tables.memory,
    "sets": benchmark_tables.sets,
    "export": benchmark_tables.export,
    "vocabulary": benchmark_tables.vocabulary,
    "generating": benchmark_tables.generating,
    "serving": serve_tables.serving,
    "sizes": serve_tables.sizes,
}


def rendered() -> str:
    """The page with the stored results between its markers."""
    found, page = results(), DOCUMENT.read_text(encoding="utf-8")
    for name, block in BLOCKS.items():
        before, begin, rest = page.partition(f"<!-- {name}:begin -->")
        _, end, after = rest.partition(f"<!-- {name}:end -->")
        page = f"{before}{begin}\n\n{block(found)}\n\n{end}{after}"
    return page


def main() -> None:
    """Rewrites the page and its plots."""
    from plot_benchmarks import draw

    draw(results(), DOCUMENT.parent / "benchmarks")
    DOCUMENT.write_text(rendered(), encoding="utf-8")


if __name__ == "__main__":
    main()
