"""`laplacebridge export`: the network and its uncertainty as one file, for ONNX or
torch.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from laplacebridge._export import export
from laplacebridge._extras import needs_extra
from laplacebridge.cli import console, options
from laplacebridge.cli.data import open_data, read_class_names
from laplacebridge.cli.models import load_classifier, seed_everything
from laplacebridge.cli.onnx_models import SUFFIX
from laplacebridge.cli.readers import Preparation
from laplacebridge.laplace.batch import unpack_batch

EXAMPLE = (
    "Example: laplacebridge export classifier.safetensors images/ --model project.network:build"
    " --weights weights.pt -o model.onnx"
)
_ROWS = 2  # of the example: their values do not matter


def export_command(
    classifier: options.ClassifierArgument,
    data: options.DataArgument,
    *,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write: model.onnx, or model.pt2, compiled for torch.",
        ),
    ],
    outputs: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help=(
                "Which answers: probabilities, interval, top_interval, label, total, epistemic,"
                " aleatoric, ood_score, ood_quantile, set, decision."
            ),
            show_default="probabilities, interval, parts of uncertainty, and what rules allow",
        ),
    ] = None,
    level: Annotated[
        float, typer.Option(min=0, max=0.9999, help="How much the intervals hold.")
    ] = 0.95,
    float16: Annotated[
        bool,
        typer.Option(
            "--float16",
            help="Store the posterior of an .onnx file in half precision; answers agree to 1e-3.",
        ),
    ] = False,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    seed: options.SeedOption = 0,
    bridge: options.BridgeOption = None,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Write the network and its uncertainty as one file: model.onnx, which any ONNX
    runtime can run, or model.pt2, which torch runs from Python and C++ (needs a C++
    compiler). The data give the shape of inputs; rule, sets and names that the
    classifier carries are written too.
    """
    console.require_new(output, force=force)
    class_names = read_class_names(classes)
    seed_everything(seed)
    batches = open_data(
        data,
        batch_size=_ROWS,
        class_names=class_names,
        preparation=Preparation.of_options(size, mean, std),
    )
    loaded = load_classifier(
        classifier,
        batches,
        model=model,
        weights=weights,
        head_only=head_only,
        device="cpu",
        bridge=bridge,
        multi_label=True,
    )
    batches.prepared_for(loaded.network.model)
    if class_names:
        loaded = loaded.with_rule(class_names=class_names)
    example = unpack_batch(next(iter(batches))).arguments
    extra = needs_extra("onnx", "Exporting") if output.suffix == SUFFIX else nullcontext()
    with extra:
        names = export(
            loaded,
            output,
            example,
            outputs=None if outputs is None else [name.strip() for name in outputs.split(",")],
            level=level,
            float16=float16,
        )
    num_bytes = output.stat().st_size
    summary = {"output": str(output), "outputs": names, "bytes": num_bytes}
    sentence = f"{output}: {num_bytes / 1e6:.2f} MB, outputs {', '.join(names)}"
    console.print_summary(summary, sentence, quiet=quiet, as_json=as_json)
