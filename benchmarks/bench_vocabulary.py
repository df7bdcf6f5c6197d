"""Memory that a head as large as a vocabulary takes to fit and to predict, in a process
of its own for each size, beside the head itself.

    python benchmarks/bench_vocabulary.py            50 000 and 150 000 tokens
    python benchmarks/bench_vocabulary.py --quick    5 000 tokens
    python benchmarks/bench_vocabulary.py 150000 1024    that size alone, into the same file
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

SIZES = ((50_000, 768), (50_000, 1024), (150_000, 768), (150_000, 1024))
QUICK = ((5_000, 256),)
RESULTS = Path(__file__).parent / "results" / "vocabulary.json"
TOKENS = 256


def measured(vocabulary: int, width: int) -> dict[str, float]:
    """Peak memory in bytes before and after, and seconds, of this process."""
    import torch
    from torch import nn

    import laplacebridge as lb

    torch.manual_seed(0)
    head = nn.Linear(width, vocabulary, bias=False)
    batches = []
    for _ in range(4):
        features = torch.randn(TOKENS // 4, width)
        batches.append((features, head(features).argmax(-1)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    start = time.perf_counter()
    classifier = lb.fit(head, batches, val_loader=batches[:2], progress=False)
    fitted = time.perf_counter()
    with torch.no_grad():
        prediction = classifier(batches[0][0])
        assert prediction.epistemic.isfinite().all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "vocabulary": vocabulary,
        "width": width,
        "head_bytes": head.weight.nbytes,
        "before_bytes": before,
        "peak_bytes": peak,
        "fit_seconds": fitted - start,
        "predict_seconds_per_token": (time.perf_counter() - fitted) / (TOKENS // 4),
    }


def main() -> None:
    """Measures every size, and writes the figures unless it was the quick form."""
    if "--one" in sys.argv:
        print(json.dumps(measured(*map(int, sys.argv[-2:]))))
        return
    quick = "--quick" in sys.argv
    sizes = QUICK if quick else SIZES
    found = []
    if len(sys.argv) == 3:
        sizes = ((int(sys.argv[1]), int(sys.argv[2])),)
        found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
        found = [row for row in found if (row["vocabulary"], row["width"]) not in sizes]
    for vocabulary, width in sizes:
        command = [sys.executable, "-W", "ignore", __file__, "--one", str(vocabulary), str(width)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        found.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"{vocabulary:>7} x {width:<5} peak {found[-1]['peak_bytes'] / 1e9:.2f} GB")
    if not quick:
        found.sort(key=lambda row: (row["vocabulary"], row["width"]))
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
