"""Two processes, each with a shard, end with the classifier of the whole."""

import subprocess
import sys
from pathlib import Path

import torch

WORKER = """
import sys, torch, laplacebridge as lb
from torch import distributed, nn
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[3]}/store", rank=int(sys.argv[1]), world_size=2)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
inputs, labels = torch.randn(50, 4), torch.randint(0, 3, (50,))
cut = int(sys.argv[2])
shard = slice(0, cut) if sys.argv[1] == "0" else slice(cut, 50)
classifier = lb.fit(model, [(inputs[shard], labels[shard])], prior_precision=0.5, progress=False)
torch.save({"variance": classifier.logits(inputs).variance.detach(), "evidence": classifier.evidence()},
           f"{sys.argv[3]}/{sys.argv[1]}.pt")
distributed.destroy_process_group()
"""


def test_unequal_shards_on_two_processes_give_the_fit_of_the_whole(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    workers = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, script, str(rank), "17", str(tmp_path)], stderr=subprocess.PIPE
        )
        for rank in range(2)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors.decode()
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    torch.testing.assert_close(first["variance"], second["variance"], rtol=0, atol=0)
    whole = _alone(tmp_path)
    torch.testing.assert_close(first["variance"], whole["variance"])
    assert abs(first["evidence"] - whole["evidence"]) < 1e-9
    assert first["evidence"] == second["evidence"]


def _alone(folder: Path) -> dict:
    script = folder / "alone.py"
    lines = [line for line in WORKER.splitlines() if "process_group" not in line]
    script.write_text("\n".join(lines).replace("shard = ", "shard = slice(0, 50) if True else "))
    subprocess.run([sys.executable, script, "0", "17", str(folder)], check=True, timeout=120)  # noqa: S603
    return torch.load(folder / "0.pt", weights_only=True)
