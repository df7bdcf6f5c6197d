"""Time of `import laplacebridge` against `import torch` alone, in fresh processes:
`python benchmarks/bench_import.py`.

The two alternate, so that both see the same machine; the shortest and the median count.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from machine import description

RESULTS = Path(__file__).parent / "results" / "import.json"
REPETITIONS = 10
CODE = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds(module: str) -> float:
    """How long a fresh process imports a module."""
    finished = subprocess.run(  # noqa: S603
        [sys.executable, "-c", CODE.format(module)], capture_output=True, text=True, check=True
    )
    return float(finished.stdout)


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    output = parser.parse_args().output
    times: dict[str, list[float]] = {"torch": [], "laplacebridge": []}
    for _ in range(REPETITIONS + 1):
        for module, found in times.items():
            found.append(seconds(module))
    kept = {
        module: found[1:] for module, found in times.items()
    }  # the first run reads files from the disk
    results = {
        "machine": description(),
        "seconds": kept,
        "ratio of minima": min(kept["laplacebridge"]) / min(kept["torch"]),
        "ratio of medians": (
            statistics.median(kept["laplacebridge"]) / statistics.median(kept["torch"])
        ),
    }
    print(
        f"laplacebridge / torch: minima {results['ratio of minima']:.3f}, medians"
        f" {results['ratio of medians']:.3f}"
    )
    output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
