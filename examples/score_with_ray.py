"""Files scored by Ray, one task a file: `python examples/score_with_ray.py`.

Needs `pip install ray`. Ray listens on all interfaces of a machine, whatever it is told:
run it where nobody else reaches it.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import ray
import torch
from sklearn.datasets import load_digits
from torch import nn

import laplacebridge as lb


@ray.remote(num_cpus=1, max_retries=3)
def score(folder: str, source: str) -> int:
    """Scores a file. Ray runs a task again whose worker died; what is scored already is
    passed over.
    """
    classifier = lb.load(f"{folder}/classifier.safetensors")
    return lb.score_file(classifier, source, f"{source}.scores").rows


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    inputs, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs[:600]), labels[:600]).backward()
        optimiser.step()
    classifier = lb.fit(
        model,
        [(inputs[:600], labels[:600])],
        val_loader=[(inputs[600:900], labels[600:900])],
        progress=False,
    )

    with tempfile.TemporaryDirectory() as folder:
        lb.save(classifier, f"{folder}/classifier.safetensors")
        for day, rows in enumerate(np.array_split(images[900:] / 16, 12)):
            np.savez(f"{folder}/day{day:02}.npz", features=rows)
        sources = sorted(str(path) for path in Path(folder).glob("day*.npz"))

        ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
        rows = ray.get([score.remote(folder, source) for source in sources])
        ray.shutdown()

        print(f"Ray scored {len(rows)} files with {sum(rows)} rows:")
        print(f"  {Path(sources[0]).name}: {rows[0]} rows")
        found = pd.concat([pd.read_parquet(f"{source}.scores") for source in sources])
        with torch.no_grad():
            expected = classifier(inputs[900:])
        same = (found["label"].to_numpy() == expected.label.numpy()).mean()
        print(f"labels as in one process: {same:.0%}")
        correct = (found["label"].to_numpy() == labels[900:].numpy()).mean()
        print(f"labels that are right: {correct:.1%}")


if __name__ == "__main__":
    main()
