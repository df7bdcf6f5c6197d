"""Two processes, each with a shard, end with the classifier of the whole; what is wrong
in one ends both.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

SECONDS = 60  # for both to end: most of it is importing torch on a busy machine

# Fits a shard, and writes what came of it; the case changes what a process has.
WORKER = """
import json, sys, time, torch, laplacebridge as lb
from torch import distributed, nn
case, folder, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if case == "torchrun":
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
elif case == "alone":
    rank = 0
else:
    rank = int(sys.argv[4])
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
inputs, labels = torch.randn(50, 4), torch.arange(50) % 3
if "output" in options:
    class Scaled(nn.Sequential):
        def forward(self, x):
            return {"scores": 3 * super().forward(x)}
    model = Scaled(*model)
if "shift_labels" in options:
    inputs, labels = inputs.view(10, 5, 4), labels.view(10, 5)
shard = slice(0, 50) if case == "alone" else slice(0, 17) if rank == 0 else slice(17, 50)
part = inputs[shard].clone(), labels[shard].clone()
batches, held_out = [(part[0][:9], part[1][:9]), (part[0][9:], part[1][9:])], (inputs, labels)
given = []
if case == "early" and rank == 0:
    def slow(batches=batches):
        for _ in range(40):
            time.sleep(0.5)
            given.append(1)
            yield batches[0]
    batches = slow()
if case == "all empty":
    batches = []
if rank == 1:
    if case == "empty":
        batches = []
    elif case == "not finite":
        batches[1][0][3] = torch.nan
    elif case == "loader fails":
        batches = (1 / 0 for _ in range(1))
    elif case == "early":
        batches[0][0][3] = torch.nan
    elif case == "unknown class":
        batches[1][1][0] = 7
    elif case == "without labels":
        batches = [part[0]]
    elif case == "other network":
        model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
    elif case == "other held-out labels":
        held_out = (3 * inputs, (labels + 1) % 3)
    elif case == "bad held-out labels":
        held_out = (inputs * torch.nan, labels)
if case == "empty":
    batches = [(inputs, labels)] if rank == 0 else []
if "held-out" in case:
    options["val_loader"] = [held_out]
result = {}
try:
    classifier = lb.fit(model, batches, progress=False, **options)
except lb.LaplaceBridgeError as error:
    result["error"] = str(error)
else:
    gaussian = classifier.logits(inputs)
    result["network"] = getattr(classifier.network, "scale", 1), classifier.network.shift_labels
    result["variance"] = gaussian.variance.tolist()
    result["scores"] = classifier(inputs).ood_score.tolist()
    result["prior"] = float(classifier.posterior.prior_precision)
    result["labels"] = classifier.labels is not None and classifier.labels.num_labels
    result["evidence"] = classifier.evidence() if result["labels"] else None
if case == "early":
    result["given"] = len(given)
json.dump(result, open(f"{folder}/{rank}.json", "w"))
time.sleep(3 if "error" in result and rank == 1 else 0)  # nobody is saved by a peer that leaves
"""


def run(case, folder, **options):
    """What both processes, or the one alone, wrote."""
    script = Path(folder) / "worker.py"
    script.write_text(WORKER)
    arguments = [str(script), case, str(folder), json.dumps(options)]
    if case == "torchrun":
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        commands = [[sys.executable, *start, *arguments]]
    else:
        ranks = [0] if case == "alone" else [0, 1]
        commands = [[sys.executable, *arguments, str(rank)] for rank in ranks]
    started = time.monotonic()
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE) for command in commands]  # noqa: S603
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=SECONDS + started - time.monotonic())
            assert worker.returncode == 0, errors.decode()
    finally:
        for worker in workers:
            worker.kill()
    return [
        json.loads((Path(folder) / f"{rank}.json").read_text())
        for rank in range(1 if case == "alone" else 2)
    ]


def assert_equal_to_alone(found, folder, **options):
    assert found[0] == found[1]
    (alone,) = run("alone", folder, **options)
    torch.testing.assert_close(torch.tensor(found[0]["variance"]), torch.tensor(alone["variance"]))
    torch.testing.assert_close(torch.tensor(found[0]["scores"]), torch.tensor(alone["scores"]))
    assert found[0]["labels"] == alone["labels"]
    assert found[0]["prior"] == pytest.approx(alone["prior"], rel=1e-9)
    assert found[0]["evidence"] == pytest.approx(alone["evidence"], abs=1e-9)


@pytest.mark.parametrize("case", ["unequal shards", "empty", "torchrun"])
def test_shards_on_two_processes_give_the_fit_of_the_whole(tmp_path, case):
    assert_equal_to_alone(run(case, tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("options", "network"),
    [({"output": "scores"}, [3, False]), ({"shift_labels": True}, [1, True])],
)
def test_a_process_without_examples_has_the_network_of_the_others(tmp_path, options, network):
    found = run("empty", tmp_path, **options)
    assert found[0]["network"] == pytest.approx(network)
    assert_equal_to_alone(found, tmp_path, **options)


@pytest.mark.parametrize("case", ["unequal shards", "empty"])
def test_shards_of_several_layers_give_the_fit_of_the_whole(tmp_path, case):
    assert_equal_to_alone(run(case, tmp_path, layers="*"), tmp_path, layers="*")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("not finite", "Process 1 of 2 .* not finite"),
        ("loader fails", "Process 1 of 2 .* ZeroDivisionError: division by zero"),
        ("unknown class", "Process 1 of 2 .* 7"),
        ("all empty", "needs at least one batch"),
        ("without labels", "way to choose the prior precision"),
        ("other network", "need the same network"),
        ("other held-out labels", "different values .* same `val_loader`"),
        ("bad held-out labels", "Process 1 of 2 .* not finite"),
    ],
)
def test_what_is_wrong_in_one_process_ends_both_with_the_same_error(tmp_path, case, words):
    first, second = run(case, tmp_path)
    assert first == second
    assert re.search(words, first["error"]), first["error"]


def test_labels_in_one_process_only_count_in_none(tmp_path):
    first, second = run("without labels", tmp_path, prior_precision=1.0)
    assert first == second
    assert first["labels"] is False


def test_a_failure_in_one_process_is_heard_by_the_other_before_the_end_of_its_part(tmp_path):
    first, second = run("early", tmp_path)
    assert re.search("Process 1 of 2 .* not finite", first["error"])
    assert first["error"] == second["error"]
    assert 0 < first["given"] < 20  # of 40, half a second each
