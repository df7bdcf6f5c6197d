"""Files scored by Spark, one task a file: `python examples/score_with_spark.py`.

Needs `pip install pyspark` and Java.
"""

import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from pyspark.sql import SparkSession
from sklearn.datasets import load_digits
from torch import nn

import laplacebridge as lb


def score(folder: str, tables: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Scores the files of a partition. Spark runs a task again whose executor died, and
    sometimes twice: a file of scores appears at once, and is passed over when it is there.
    """
    classifier = lb.load(f"{folder}/classifier.safetensors")
    for table in tables:
        done = [lb.score_file(classifier, source, f"{source}.scores") for source in table["source"]]
        yield pd.DataFrame(
            {
                "source": [Path(each.source).name for each in done],
                "rows": [each.rows for each in done],
            }
        )


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

        os.environ["PYSPARK_PYTHON"] = sys.executable  # workers are to find the same packages
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .getOrCreate()
        )
        files = session.createDataFrame(pd.DataFrame({"source": sources})).repartition(len(sources))
        scored = files.mapInPandas(
            functools.partial(score, folder), "source string, rows long"
        ).toPandas()
        session.stop()

        print(f"Spark scored {len(scored)} files with {scored['rows'].sum()} rows:")
        print(scored.sort_values("source").head(3).to_string(index=False))
        found = pd.concat([pd.read_parquet(f"{source}.scores") for source in sources])
        with torch.no_grad():
            expected = classifier(inputs[900:])
        same = (found["label"].to_numpy() == expected.label.numpy()).mean()
        print(f"labels as in one process: {same:.0%}")
        correct = (found["label"].to_numpy() == labels[900:].numpy()).mean()
        print(f"labels that are right: {correct:.1%}")


if __name__ == "__main__":
    main()
