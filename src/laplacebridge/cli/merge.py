"""`laplacebridge merge`: the classifier of all parts that `fit --shard` summed."""

from pathlib import Path
from typing import Annotated

import typer

import laplacebridge as lb
from laplacebridge._fit import FitSums, merged
from laplacebridge.bridges import BRIDGES
from laplacebridge.cli import console, options, project_file
from laplacebridge.cli.data import open_data, read_class_names
from laplacebridge.cli.fitted import print_fitted
from laplacebridge.cli.models import network_to_fit, seed_everything
from laplacebridge.cli.readers import Preparation

EXAMPLE = (
    "Example: laplacebridge merge part*.safetensors --model project.network:build --weights"
    " weights.pt --validation project.data:val_batches -o classifier.safetensors"
)


def merge(
    parts: Annotated[
        list[Path],
        typer.Argument(
            metavar="PART…",
            help="What `laplacebridge fit --shard` saved, all shards of the data.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ],
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    bridge: options.BridgeOption = options.BridgeName("race"),
    prior_precision: options.PriorPrecisionOption = None,
    validation: options.HeldOutOption = None,
    batch_size: options.BatchSizeOption = 256,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to save the classifier.",
            rich_help_panel="Output",
        ),
    ],
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Merge the parts of a fit into the classifier of all their data."""
    named = project_file.output_option("merge", output)
    console.require_writable(output, force=force, is_file=True, option=named)
    class_names = read_class_names(classes)
    seed_everything(seed)
    total = merged([FitSums.load(part) for part in parts])
    network = network_to_fit(model, weights, head_only, device)
    held_out = None
    if validation is not None:
        held_out = open_data(
            validation,
            batch_size=batch_size,
            class_names=class_names,
            preparation=Preparation.of_options(size, mean, std),
            option="--validation",
        )
        held_out.prepared_for(
            network, labels_for="to choose temperature and width of predictions by"
        )
    classifier = lb.from_sums(
        network,
        total,
        val_loader=held_out,
        prior_precision=prior_precision,
        bridge=BRIDGES[bridge.value] if bridge else lb.race_bridge,
        progress=console.shows_progress(quiet),
    )
    if held_out is not None:
        held_out.require_classes(classifier.num_classes, were_given=bool(class_names))
    lb.save(classifier, output)
    print_fitted(classifier, output, quiet=quiet, as_json=as_json)
