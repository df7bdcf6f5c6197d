r"""A server under load: `python benchmarks/bench_serve.py`, about 14 minutes, and 3
more with KServe; in parts with `--model` and `--section`, which replace their rows of
the stored results.

`hey` (a Debian package) sends one example a request to servers on the loopback, each in
a process of its own with one thread for its network: requests a second, p50 and p99, in
rounds that meet all ways of serving in turn. Ratios are of one round; medians over the
rounds are reported. Then malformed requests join at a tenth of the load.

The ways: "answers" is `laplacebridge serve` as it is, "one by one" the same without
batches, "bare network" a softmax behind the same server, "onnx" the exported file (for
64 clients alone), and "kserve" the same classifier behind KServe's server. That one has
an environment of its own, whose Python is named, and listens on all interfaces, so that
it is started in a network namespace alone, which root can make:

    python -m venv kserve-environment
    kserve-environment/bin/pip install '.[kserve]'
    unshare -n bash -c 'ip link set lo up; exec "$@"' -- \
        python benchmarks/bench_serve.py --kserve-python kserve-environment/bin/python
"""

import argparse
import csv
import io
import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from serve_models import SHAPES
from timing import Row, digits, store, target

HEADER = "Inference-Header-Content-Length"
CLIENTS = (1, 16, 64)
ONLY_BUSIEST = {"onnx"}  # ways that are measured with the most clients alone
KSERVE_PORT = 18080  # it has no free one of its own
START_SECONDS = 300
GOOD_CLIENTS, BAD_CLIENTS = 58, 6
BAD_SHARE = 0.1
SECTIONS = ("load", "bad clients")
RESULTS = Path(__file__).with_name("results") / "serve.json"


@dataclass(frozen=True)
class Request:
    """What one request sends.

    Attributes:
        file: Its body.
        header_length: Of the JSON before the tensors; None if all is JSON.
    """

    file: Path
    header_length: int | None


@dataclass(frozen=True)
class Load:
    """What came back.

    Attributes:
        seconds: How long each request took that was answered with 200.
        failed: How many were not.
        duration: Of the whole.
    """

    seconds: tuple[float, ...]
    failed: int
    duration: float

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return len(self.seconds) / self.duration

    def percentile(self, share: float) -> float:
        """In milliseconds."""
        return 1000 * float(np.percentile(self.seconds, share)) if self.seconds else float("nan")


def bodies(model: str, folder: Path) -> dict[str, Request]:
    """One example as JSON and as bytes, and one that is wrong."""
    values = np.random.default_rng(0).standard_normal((1, *SHAPES[model])).astype("<f4")
    entry: dict[str, Any] = {"name": "input", "datatype": "FP32", "shape": list(values.shape)}
    content = values.tobytes()
    found = {}
    for name, data in (("binary", content), ("bad", np.full_like(values, np.nan).tobytes())):
        size = {"parameters": {"binary_data_size": len(content)}}
        head = json.dumps({"inputs": [{**entry, **size}]}).encode()
        file = folder / f"{model} {name}"
        file.write_bytes(head + data)
        found[name] = Request(file, len(head))
    file = folder / f"{model} json"
    numbers = [digits(value, 6) for value in values.ravel().tolist()]
    file.write_text(json.dumps({"inputs": [{**entry, "data": numbers}]}))
    return {**found, "json": Request(file, None)}


@contextmanager
def server(model: str, way: str, python: str = sys.executable) -> Iterator[int]:
    """A server in a process of its own; its port."""
    port = KSERVE_PORT if way == "kserve" else 0
    script = Path(__file__).with_name("serve_models.py")
    process = subprocess.Popen(  # noqa: S603
        [python, str(script), model, way, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    found: list[int] = []
    listening = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            # KServe writes its own lines between
            if address := re.search(r'"listening".*"http://[^"]*:(\d+)"', line):
                found.append(int(address[1]))
                listening.set()
        listening.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        if not listening.wait(START_SECONDS) or not found:
            raise RuntimeError(f"The server '{model}, {way}' did not start.")
        yield found[0]
    finally:
        process.terminate()
        process.wait(60)


def load(port: int, request: Request, clients: int, seconds: float, rate: float = 0.0) -> Load:
    """What `hey` measures; a rate limits the requests a second of all clients together."""
    command = ["hey", "-z", f"{seconds}s", "-c", str(clients), "-m", "POST", "-o", "csv"]
    command += ["-D", str(request.file), "-T", "application/octet-stream", "-cpus", "1"]
    if request.header_length is not None:
        command += ["-H", f"{HEADER}: {request.header_length}"]
    if rate:
        command += ["-q", f"{rate / clients:.4f}"]
    command.append(f"http://127.0.0.1:{port}/v2/models/model/infer")
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    good = tuple(float(row["response-time"]) for row in rows if row["status-code"] == "200")
    ends = [float(row["offset"]) + float(row["response-time"]) for row in rows]
    return Load(good, len(rows) - len(good), max([seconds, *ends]))


def load_rows(
    model: str, ways: Mapping[str, str], rounds: int, seconds: float, folder: Path
) -> list[Row]:
    """All ways of serving one model, each by a Python, in turn."""
    asked = bodies(model, folder)
    taken: dict[tuple[str, int], list[Load]] = {}
    with ExitStack() as stack:
        ports = {
            way: stack.enter_context(server(model, way, python)) for way, python in ways.items()
        }
        for port in ports.values():
            load(port, asked["binary"], 4, min(seconds, 2.0))  # to warm up
        for _ in range(rounds):
            for clients in CLIENTS:
                for way, port in ports.items():
                    if way in ONLY_BUSIEST and clients != CLIENTS[-1]:
                        continue
                    measured = load(port, asked["binary"], clients, seconds)
                    taken.setdefault((way, clients), []).append(measured)
            measured = load(ports["answers"], asked["json"], CLIENTS[-1], seconds)
            taken.setdefault(("answers, JSON", CLIENTS[-1]), []).append(measured)
    rows = []
    for (way, clients), loads in taken.items():
        reference = taken["answers", clients]
        rows.append({
            "model": model,
            "way": way,
            "clients": clients,
            "requests/s": _median(each.rate for each in loads),
            "p50, ms": _median(each.percentile(50) for each in loads),
            "p99, ms": _median(each.percentile(99) for each in loads),
            "p99 / p50": _median(each.percentile(99) / each.percentile(50) for each in loads),
            "answers / this": _median(a.rate / b.rate for a, b in zip(reference, loads)),
            "failed": sum(each.failed for each in loads),
        })  # fmt: skip
    return rows


def bad_client_rows(model: str, rounds: int, seconds: float, folder: Path) -> list[Row]:
    """Good clients without and with bad ones beside them."""
    asked = bodies(model, folder)
    alone, beside, bad = [], [], []
    with server(model, "answers") as port:
        load(port, asked["binary"], 4, min(seconds, 2.0))
        for _ in range(rounds):
            alone.append(load(port, asked["binary"], GOOD_CLIENTS, seconds))
            rate = BAD_SHARE * alone[-1].rate
            worker = threading.Thread(
                target=lambda rate=rate: bad.append(
                    load(port, asked["bad"], BAD_CLIENTS, seconds, rate)
                )
            )
            worker.start()
            beside.append(load(port, asked["binary"], GOOD_CLIENTS, seconds))
            worker.join()
    return [{
        "model": model,
        "bad requests": sum(each.failed for each in bad),
        "bad requests answered": sum(len(each.seconds) for each in bad),
        "good requests failed": sum(each.failed for each in (*alone, *beside)),
        "p99 with / without": _median(
            b.percentile(99) / a.percentile(99) for a, b in zip(alone, beside)
        ),
        "requests/s with / without": _median(b.rate / a.rate for a, b in zip(alone, beside)),
    }]  # fmt: skip


def targets(loads: Sequence[Row], bad: Sequence[Row]) -> list[dict[str, object]]:
    """What was wanted beside what was measured, of those parts that were measured."""
    busiest = {(row["model"], row["way"]): row for row in loads if row["clients"] == CLIENTS[-1]}
    found = []
    if row := busiest.get(("mlp", "one by one")):
        what = "MLP, K = 1000, 64 clients: batches over one by one"
        found.append(target(what, row["answers / this"], least=3))
    if row := busiest.get(("cnn", "bare network")):
        what = "CNN, K = 10, 64 clients: all answers over the bare network"
        found.append(target(what, row["answers / this"], least=0.75))
    for model in SHAPES:
        if row := busiest.get((model, "answers")):
            what = f"{model.upper()}, 64 clients: p99 over p50"
            found.append(target(what, row["p99 / p50"], most=4))
    for row in bad:
        model = row["model"].upper()
        what = f"{model}, a tenth of malformed requests beside: p99 of good ones"
        found.append(target(what, row["p99 with / without"], most=1.5))
        what = f"{model}, a tenth of malformed requests beside: good ones that failed"
        found.append(target(what, row["good requests failed"], most=0))
    return found


def merged(held: Mapping[str, Any], new: Mapping[str, list[Row]]) -> dict[str, Any]:
    """Stored rows, with those of the models that were measured in their places.

    Args:
        held: What is stored.
        new: Rows by section.
    """
    found: dict[str, Any] = {}
    for section in SECTIONS:
        rows = new.get(section, [])
        measured_now = {(row["model"], row.get("way")) for row in rows}
        kept = [
            row
            for row in held.get(section, [])
            if (row["model"], row.get("way")) not in measured_now
        ]
        found[section] = sorted([*kept, *rows], key=lambda row: list(SHAPES).index(row["model"]))
    return {**found, "targets": targets(found["load"], found["bad clients"])}


def measured(
    models: Sequence[str], sections: Sequence[str], quick: bool, kserve: str | None
) -> dict[str, list[Row]]:
    """Some models, all ways."""
    rounds, seconds = (1, 2.0) if quick else (3, 10.0)
    ways = dict.fromkeys(("answers", "one by one", "bare network", "onnx"), sys.executable)
    if kserve is not None:
        ways["kserve"] = kserve
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in models:
            if "load" in sections:
                rows = load_rows(model, ways, rounds, seconds, folder)
                found.setdefault("load", []).extend(rows)
            if "bad clients" in sections:
                rows = bad_client_rows(model, rounds, seconds, folder)
                found.setdefault("bad clients", []).extend(rows)
    return found


def main() -> None:
    """Measures, prints, and stores unless it was quick."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="2 seconds, one round, not stored")
    parser.add_argument("--output", type=Path, help="where to store the results instead")
    parser.add_argument("--model", choices=SHAPES, help="one of the models alone")
    parser.add_argument("--section", choices=SECTIONS, help="one of the sections alone")
    parser.add_argument("--kserve-python", help="of an environment with the extra `kserve`")
    arguments = parser.parse_args()
    if arguments.kserve_python and {name for _, name in socket.if_nameindex()} != {"lo"}:
        parser.error("--kserve-python needs a network namespace with nothing but `lo`: see above.")
    new = measured(
        [arguments.model] if arguments.model else list(SHAPES),
        [arguments.section] if arguments.section else SECTIONS,
        arguments.quick,
        arguments.kserve_python,
    )
    output = arguments.output or (None if arguments.quick else RESULTS)
    held = json.loads(output.read_text(encoding="utf-8")) if output and output.exists() else {}
    results = merged(held, new)
    for rows in results.values():
        for row in rows:
            print(", ".join(f"{name} {value}" for name, value in row.items()))
    if output:
        store(output, "python benchmarks/bench_serve.py", results)


def _median(values: Iterator[float]) -> float:
    return digits(statistics.median(values), 3)


if __name__ == "__main__":
    main()
