"""Files scored one after the other: `python examples/score_files.py`.

Needs `pip install '.[score]'`. `score_with_spark.py` and `score_with_ray.py` do the
same on many machines, with the classifier and the files of this one.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import nn

import laplacebridge as lb

NUM_TRAIN, NUM_HELD_OUT, NUM_FILES = 600, 300, 12
FIRST_SCORED = NUM_TRAIN + NUM_HELD_OUT


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of pixels, and their labels."""
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)


def prepare(folder: str) -> list[str]:
    """Saves a classifier, and the files that it is to score."""
    inputs, labels = digits()
    train, held_out = slice(NUM_TRAIN), slice(NUM_TRAIN, FIRST_SCORED)
    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    optimiser = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(inputs[train]), labels[train]).backward()
        optimiser.step()
    classifier = lb.fit(
        model,
        [(inputs[train], labels[train])],
        val_loader=[(inputs[held_out], labels[held_out])],
        progress=False,
    )
    lb.save(classifier, f"{folder}/classifier.safetensors")
    for day, rows in enumerate(np.array_split(inputs[FIRST_SCORED:].numpy(), NUM_FILES)):
        np.savez(f"{folder}/day{day:02}.npz", features=rows)
    return sorted(str(path) for path in Path(folder).glob("day*.npz"))


def show(folder: str, sources: list[str]) -> None:
    """Compares the scores of all files with those of one call, and with the labels."""
    inputs, labels = digits()
    found = pd.concat([pd.read_parquet(f"{source}.scores") for source in sources])
    classifier = lb.load(f"{folder}/classifier.safetensors")
    with torch.no_grad():
        expected = classifier(inputs[FIRST_SCORED:])
    same = (found["label"].to_numpy() == expected.label.numpy()).mean()
    print(f"labels as in one call: {same:.0%}")
    correct = (found["label"].to_numpy() == labels[FIRST_SCORED:].numpy()).mean()
    print(f"labels that are right: {correct:.1%}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources = prepare(folder)
        classifier = lb.load(f"{folder}/classifier.safetensors")
        scored = [lb.score_file(classifier, source, f"{source}.scores") for source in sources]
        print(f"scored {len(scored)} files with {sum(each.rows for each in scored)} rows:")
        print(f"  {Path(sources[0]).name}: {scored[0].rows} rows")
        show(folder, sources)


if __name__ == "__main__":
    main()
