"""Files scored by Ray, one task a file: `python examples/score_with_ray.py`.

Needs `pip install ray`. Ray listens on all interfaces of a machine, whatever it is
told: run it where nobody else reaches it. Classifier and files are those of
`score_files.py`.
"""

import tempfile
from pathlib import Path

import ray
import score_files

import laplacebridge as lb


@ray.remote(num_cpus=1, max_retries=3)
def score(folder: str, source: str) -> int:
    """Scores a file. Ray runs a task again whose worker died; what is scored already is
    passed over.
    """
    classifier = lb.load(f"{folder}/classifier.safetensors")
    return lb.score_file(classifier, source, f"{source}.scores").rows


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources = score_files.prepare(folder)

        ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
        rows = ray.get([score.remote(folder, source) for source in sources])
        ray.shutdown()

        print(f"Ray scored {len(rows)} files with {sum(rows)} rows:")
        print(f"  {Path(sources[0]).name}: {rows[0]} rows")
        score_files.show(folder, sources)


if __name__ == "__main__":
    main()
