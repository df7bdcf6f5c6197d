"""`laplacebridge score --engine dask://…` on a real cluster of processes, parts of
which are killed: it ends complete, without duplicates, and equal to a run that nobody
disturbed.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from small_network import examples, trained
from torch import nn

import laplacebridge as lb

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.dask, pytest.mark.crosscheck]
FILES, ROWS, SECONDS = 24, 400, 120
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Files to score, a classifier whose network takes a while, and undisturbed scores."""
    folder = tmp_path_factory.mktemp("dask")
    (folder / "slow_network.py").write_text(
        "import time\n"
        "from torch import nn\n"
        "class Slow(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layers = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))\n"
        "    def forward(self, x):\n"
        "        time.sleep(0.02)\n"  # so that there is a middle to kill it in
        "        return self.layers(x)\n"
    )
    layers = trained(
        lambda: nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)), *examples(400)
    )
    sys.path.insert(0, str(folder))
    try:
        from slow_network import Slow
    finally:
        sys.path.remove(str(folder))
    network = Slow()
    network.layers.load_state_dict(layers.state_dict())
    torch.save(network.state_dict(), folder / "weights.pt")
    classifier = lb.fit(network, [examples(400)], prior_precision=1.0, progress=False)
    lb.save(classifier, folder / "classifier.safetensors")
    (folder / "days").mkdir()
    for index in range(FILES):
        inputs = examples(ROWS, seed=index)[0].numpy()
        np.savez(folder / "days" / f"day{index:02}.npz", inputs=inputs)
    assert start(folder, "calm").wait(SECONDS) == 0
    return folder


def start(folder, output, engine="local", **options):
    command = [sys.executable, "-m", "laplacebridge", "score", "classifier.safetensors", "days"]
    network = ["--model", "slow_network:Slow", "--weights", "weights.pt", "--batch-size", "50"]
    command += [*network, "-o", output, "--engine", engine, "-q"]
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, **options)  # noqa: S603


class Cluster:
    """A scheduler and its workers, each a process of its own, on the loopback."""

    def __init__(self, folder, workers=2):
        self.folder, self.processes = folder, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        local = ["--host", "127.0.0.1", "--no-dashboard"]
        self.scheduler = self.begin("scheduler", *local, "--port", str(port))
        self.workers = [self.add_worker() for _ in range(workers)]

    def begin(self, kind, *options):
        command = [sys.executable, "-m", "distributed.cli.dask_" + kind, *options]
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=self.folder / "calm",  # another folder than the one the command is called in
            env=ENVIRONMENT,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def add_worker(self):
        options = ["--no-nanny", "--nthreads", "1", "--host", "127.0.0.1", "--no-dashboard"]
        scratch = ["--local-directory", str(self.folder / "scratch"), "--death-timeout", "60"]
        return self.begin("worker", f"tcp://{self.address}", *options, *scratch)

    def end(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(project):
    started = []

    def make(workers=2):
        started.append(Cluster(project, workers))
        return started[-1]

    yield make
    for each in started:
        each.end()


def scored(folder, output):
    return len(list((folder / output).glob("*.parquet")))


def wait_for(folder, output, count, process):
    end = time.monotonic() + SECONDS
    while scored(folder, output) < count:
        assert process.poll() is None, "it ended too early to be disturbed"
        assert time.monotonic() < end
        time.sleep(0.01)


def require_equal(folder, output):
    names = sorted(path.name for path in (folder / "calm").iterdir())
    assert len(names) == FILES + 1
    assert sorted(path.name for path in (folder / output).iterdir()) == names
    for name in names:
        calm, other = ((folder / run / name).read_bytes() for run in ("calm", output))
        if name == "manifest.json":
            assert json.loads(other)["rows"] == FILES * ROWS
            sources = [entry["source"] for entry in json.loads(other)["files"]]
            assert sources == [entry["source"] for entry in json.loads(calm)["files"]]
        else:
            assert calm == other


def test_a_worker_that_is_killed_is_replaced_by_the_others(project, cluster):
    made = cluster()
    process = start(project, "worker", f"dask://{made.address}")
    wait_for(project, "worker", 3, process)
    made.workers[0].kill()
    made.add_worker()
    wait_for(project, "worker", 10, process)
    made.workers[1].kill()
    assert process.wait(SECONDS) == 0
    require_equal(project, "worker")


def test_a_command_whose_scheduler_is_killed_says_so_and_is_started_again(project, cluster):
    made = cluster()
    process = start(
        project, "scheduler", f"dask://{made.address}", stderr=subprocess.PIPE, text=True
    )
    with process:
        wait_for(project, "scheduler", 3, process)
        made.scheduler.kill()
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "went away" in said
    assert "Traceback" not in said
    assert 3 <= scored(project, "scheduler") < FILES
    made.end()
    again = cluster()
    assert start(project, "scheduler", f"dask://{again.address}").wait(SECONDS) == 0
    require_equal(project, "scheduler")


def test_a_command_that_is_killed_itself_is_started_again(project, cluster):
    made = cluster()
    process = start(project, "command", f"dask://{made.address}")
    wait_for(project, "command", 3, process)
    process.kill()
    process.wait()
    assert start(project, "command", f"dask://{made.address}").wait(SECONDS) == 0
    require_equal(project, "command")


def test_without_a_scheduler_it_says_how_to_start_one(project):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        process = start(
            project, "none", f"dask://127.0.0.1:{port}", stderr=subprocess.PIPE, text=True
        )
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "dask scheduler" in " ".join(said.split())
