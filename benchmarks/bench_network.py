"""Cost of a posterior over all layers against a forward pass, and its memory: `python
benchmarks/bench_network.py`.

Single thread, float32, random images and random weights, which cost what real ones do.
Two networks: the paper's for MNIST, fitted and asked to predict; and ResNet-18 for
images of 32 x 32 pixels, fitted on a few images and saved, then loaded in fresh
processes that predict batches of different sizes and say how much memory they took at
most. If curvlinops is installed (requirements/crosscheck.txt), its Kronecker factors of
the small network are timed too. Times are processor times; of the small network the
least of some repetitions.
"""

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import in_fresh_process, store, whole_peak
from torch import Tensor, nn

import laplacebridge as lb
from laplacebridge import _blocks
from laplacebridge._stopwatch import once
from laplacebridge.laplace import Curvature, Linearisation, LinearisedNetwork, NetworkCurvature
from laplacebridge.laplace.layers.posterior import network_posterior
from laplacebridge.laplace.layers.selection import matching_layers
from laplacebridge_reproduction.models import initialised, mnist_cnn, resnet18

RESULTS = Path(__file__).parent / "results" / "network.json"
STRUCTURES: dict[str, type[Curvature]] = {"Diag": lb.laplace.Diag, "Kron": lb.laplace.Kron}
CLASSES, BATCH = 10, 128
MNIST_IMAGES, REPETITIONS = 1024, 3
RESNET_IMAGES = 2  # to fit; what a posterior costs does not depend on their number
RESNET_BATCHES = (2, 16, 64)


def examples(num: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Random images and labels."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(num, *shape, generator=generator), torch.randint(
        CLASSES, (num,), generator=generator
    )


def seconds(function: Callable[[], Any]) -> float:
    """Processor time of one call."""
    return once(function)[0]


def forward(model: nn.Module, images: Tensor) -> None:
    """A forward pass in batches, as it is done without any uncertainty."""
    with torch.no_grad():
        for batch in torch.split(images, BATCH):
            model(batch)


def summed(kind: type[Curvature], batches: Sequence[Linearisation]) -> NetworkCurvature:
    """The curvature of some batches, as a fit adds it up."""
    total: Any = None
    for batch in batches:
        part, _ = NetworkCurvature.of_batch(kind, batch)
        total = part if total is None else total + part
    return total


def small_network(structure: str) -> dict[str, float | str]:
    """The network for MNIST: its sums, their decomposition, which is done once, and
    predictions.
    """
    model = initialised(mnist_cnn, seed=0).eval()
    linearised = LinearisedNetwork(model, matching_layers(model, "*"))
    images, _ = examples(MNIST_IMAGES, 1, 28, 28)
    batches = [linearised(batch) for batch in torch.split(images, BATCH)]
    curvature = summed(STRUCTURES[structure], batches)
    posterior = network_posterior(linearised, curvature, 1.0, CLASSES)
    timed: dict[str, Callable[[], Any]] = {
        "forward": lambda: forward(model, images),
        "fit": lambda: summed(STRUCTURES[structure], batches),
        "decompose": lambda: network_posterior(linearised, curvature, 1.0, CLASSES),
        "predict": lambda: [posterior(batch) for batch in batches],
    }
    least = {
        name: min(seconds(function) for _ in range(REPETITIONS)) for name, function in timed.items()
    }
    return {
        "network": "mnist_cnn",
        "structure": structure,
        "weights": linearised.num_parameters,
        **{
            f"{name}, ms per image": 1e3 * least[name] / MNIST_IMAGES
            for name in ("forward", "fit", "predict")
        },
        "decompose once, s": least["decompose"],
        "fit / forward": least["fit"] / least["forward"],
        "predict / forward": least["predict"] / least["forward"],
    }


def against_curvlinops(dtype: torch.dtype) -> dict[str, float | str]:
    """Kronecker factors of the network for MNIST, which both libraries sum up; ours are
    in float64 either way.
    """
    from curvlinops import KFACLinearOperator

    model = initialised(mnist_cnn, seed=0).eval().to(dtype)
    linearised = LinearisedNetwork(model, matching_layers(model, "*"))
    images, labels = examples(MNIST_IMAGES, 1, 28, 28)
    inputs = torch.split(images.to(dtype), BATCH)
    batches, data = (
        [linearised(batch) for batch in inputs],
        list(zip(inputs, torch.split(labels, BATCH))),
    )

    def theirs() -> None:
        loss, parameters = nn.CrossEntropyLoss(reduction="sum"), list(model.parameters())
        options: dict[str, Any] = {"separate_weight_and_bias": False, "check_deterministic": False}
        KFACLinearOperator(
            model, loss, parameters, data, fisher_type="type-2", kfac_approx="expand", **options
        ).compute_kronecker_factors()

    ours_least = min(seconds(lambda: summed(lb.laplace.Kron, batches)) for _ in range(REPETITIONS))
    theirs_least = min(seconds(theirs) for _ in range(REPETITIONS))
    return {
        "network": "mnist_cnn",
        "structure": "Kron",
        "type": str(dtype),
        "factors, ms per image": 1e3 * ours_least / MNIST_IMAGES,
        "factors by curvlinops, ms per image": 1e3 * theirs_least / MNIST_IMAGES,
        "curvlinops / ours": theirs_least / ours_least,
    }


def large_network(structure: str) -> list[dict[str, float | str]]:
    """ResNet-18: fitted here, asked for predictions in processes of their own."""
    model = initialised(resnet18, seed=0).eval()
    images, labels = examples(RESNET_IMAGES, 3, 32, 32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "classifier.safetensors"
        classifier = lb.fit(
            model,
            [(images, labels)],
            layers="*",
            curvature=STRUCTURES[structure],
            prior_precision=1.0,
            progress=False,
        )
        lb.save(classifier, path)
        rows = []
        for batch in RESNET_BATCHES:
            found = in_fresh_process(__file__, "--predict", path, batch)
            rows.append({"network": "resnet18", "structure": structure, **found})
    return rows


def predicted(path: Path, batch: int) -> dict[str, float]:
    """One batch through a saved ResNet-18, in this process."""
    model = initialised(resnet18, seed=0).eval()
    classifier = lb.load(path, model)
    images, _ = examples(batch, 3, 32, 32)
    loaded = whole_peak() / 1e9
    running = min(seconds(lambda: forward(model, images)) for _ in range(2))
    predicting = seconds(lambda: classifier.logits(images))
    return {
        "weights": classifier.network.num_parameters,
        "batch": batch,
        "predict, s per image": predicting / batch,
        "predict / forward": predicting / running,
        "peak memory, GB": whole_peak() / 1e9,
        "peak memory before predicting, GB": loaded,
        "memory of a chunk by its bound, GB": _blocks.BYTES_AT_ONCE / 1e9,
    }


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument(
        "--predict",
        nargs=2,
        metavar=("FILE", "BATCH"),
        help="one batch of ResNet-18, in this process",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.predict:
        print(json.dumps(predicted(Path(arguments.predict[0]), int(arguments.predict[1]))))
        return
    rows: list[dict[str, float | str]] = [small_network(structure) for structure in STRUCTURES]
    if importlib.util.find_spec("curvlinops"):
        rows.extend(against_curvlinops(dtype) for dtype in (torch.float32, torch.float64))
    for structure in STRUCTURES:
        rows.extend(large_network(structure))
    for row in rows:
        print(
            ", ".join(
                f"{name} {value if isinstance(value, str) else f'{value:.3g}'}"
                for name, value in row.items()
            )
        )
    store(arguments.output, "python benchmarks/bench_network.py", {"rows": rows})


if __name__ == "__main__":
    main()
