"""Files scored by Spark, one task a file: `python examples/score_with_spark.py`.

Needs `pip install pyspark` and Java. Classifier and files are those of
`score_files.py`.
"""

import functools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import score_files
from pyspark.sql import SparkSession

import laplacebridge as lb


def score(folder: str, tables: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Scores the files of a partition. Spark runs a task again whose executor died, and
    sometimes twice: a file of scores appears at once, and is passed over when it is
    there.
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
    with tempfile.TemporaryDirectory() as folder:
        sources = score_files.prepare(folder)

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
        score_files.show(folder, sources)


if __name__ == "__main__":
    main()
