"""`laplacebridge report`: one page that judges the user's own classifier."""

import csv
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from laplacebridge._extras import needs_extra
from laplacebridge.cli import console, labels, options, project_file
from laplacebridge.cli.data import Batches, open_data, read_class_names
from laplacebridge.cli.evaluations import require_outputs, write_evaluation
from laplacebridge.cli.models import load_classifier, seed_everything
from laplacebridge.cli.readers import Preparation
from laplacebridge.cli.tables import column_names
from laplacebridge.errors import InputError
from laplacebridge.multi_label import MultiLabelClassifier
from laplacebridge.report import Evaluation, LabelEvaluation, evaluate, gates
from laplacebridge.report._findings.identity import of_files, read_card

EXAMPLE = (
    "Example: laplacebridge report classifier.safetensors project.data:test_batches --model"
    " project.network:build --weights weights.pt --ood project.data:ood_batches --require"
    ' "ece<0.03" -o report.html'
)
# As a command that worked, but whose answer is no; 1 is a failure, 2 a wrong command line.
NOT_MET = 3


def report(
    classifier: options.ClassifierArgument,
    data: options.DataArgument,
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    bridge: options.BridgeOption = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA",
            help=(
                "Unusual (out-of-distribution, OOD) inputs, which belong to no class, to see"
                " whether they are noticed; may be given several times."
            ),
            rich_help_panel="Data",
        ),
    ] = None,
    outside: Annotated[str | None, options.renamed("--ood")] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Labelled data for temperature scaling and the curve of the prior precision.",
            rich_help_panel="Data",
        ),
    ] = None,
    groups: Annotated[
        Path | None,
        options.existing_file(
            "A group for each test example, one on each line: judged apart.", rich_help_panel="Data"
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        options.existing_file(
            "Each test example in words, one on each line: shown on the page.",
            rich_help_panel="Data",
        ),
    ] = None,
    batch_size: options.BatchSizeOption = 256,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    risk: Annotated[
        float,
        options.share("Share of wrong answers to allow.", rich_help_panel="Decisions"),
    ] = 0.05,
    coverage: Annotated[
        float | None,
        options.share(
            "How often sets are to hold the label; by default 0.9, or 0.95 or 0.99 where single"
            " answers are right more often.",
            rich_help_panel="Decisions",
        ),
    ] = None,
    alarm_rate: Annotated[
        float,
        options.share(
            "Share of ordinary inputs that may be taken for unusual.", rich_help_panel="Decisions"
        ),
    ] = 0.05,
    cost_wrong: Annotated[
        float | None,
        typer.Option(min=0, help="Cost of a wrong answer.", rich_help_panel="Decisions"),
    ] = None,
    cost_defer: Annotated[
        float | None,
        typer.Option(
            min=0, help="Cost of deferring, in the same unit.", rich_help_panel="Decisions"
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME<NUMBER",
            help=(
                "What must hold, such as ece<0.03 or coverage>=0.9; may be given several times."
                f" Exit code {NOT_MET} if one does not. Names: {', '.join(gates.MEASURED)}."
            ),
            rich_help_panel="Decisions",
        ),
    ] = None,
    title: Annotated[
        str, typer.Option(help="Title of the page.", rich_help_panel="Output")
    ] = "A classifier and its uncertainty",
    author: Annotated[
        str | None, typer.Option(help="Who made the report.", rich_help_panel="Output")
    ] = None,
    card: Annotated[
        Path | None,
        options.existing_file(
            "What the owner states (intended use, limits): a JSON object of texts, or Markdown"
            " with headings.",
            rich_help_panel="Output",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The page.", rich_help_panel="Output"),
    ] = Path("report.html"),
    pdf: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The page as PDF too; needs Chromium.", rich_help_panel="Output"
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The table too, as .csv; or the record of all numbers, as .json.",
            rich_help_panel="Output",
        ),
    ] = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Judge a classifier on labelled test data: one HTML page that says what it can do
    by itself, whether its uncertainty holds, and what to use.
    """
    with needs_extra(
        "report", "A report"
    ):  # plots take a second to import, which other commands need not wait for
        from laplacebridge.report import page
    require_outputs(output, pdf, table, force=force)
    gates.require_readable(require or [])
    class_names = read_class_names(classes)
    stated = {} if card is None else read_card(card)
    seed_everything(seed)
    preparation = Preparation.of_options(size, mean, std)
    read = partial(
        open_data, batch_size=batch_size, class_names=class_names, preparation=preparation
    )
    given = read(data)
    loaded = load_classifier(
        classifier,
        given,
        model=model,
        weights=weights,
        head_only=head_only,
        device=device,
        bridge=bridge,
        multi_label=True,
    )
    given.require_classes(loaded.num_classes, were_given=bool(class_names))

    def other(source: str, option: str, labels_for: str) -> Batches:
        return read(source, option=option).prepared_for(loaded.network.model, labels_for=labels_for)

    silent = quiet or as_json
    if isinstance(loaded, MultiLabelClassifier):
        if table is not None and table.suffix != ".json":
            raise typer.BadParameter(
                "of several labels at once ends in .json.", param_hint="--table"
            )
        labels.require_none_of_one_class(
            validation=(
                None if project_file.says("report", "validation", validation) else validation
            ),
            groups=groups,
            texts=texts,
            require=require,
            cost_wrong=cost_wrong,
            cost_defer=cost_defer,
        )
        of_labels = evaluate(
            loaded,
            given.prepared_for(loaded.network.model, labels_for="to judge predictions by"),
            ood={source: other(source, "--ood", "") for source in ood or []} or None,
            coverage=coverage,
            alarm_rate=alarm_rate,
            class_names=given.class_names or None,
            title=title,
            card=stated,
            identity=of_files(classifier, data, weights, head_only, author),
            seed=seed,
            progress=console.shows_progress(silent),
        )
        assert isinstance(of_labels, LabelEvaluation)  # noqa: S101
        write_evaluation(
            of_labels, of_labels.to_html(), output, pdf, table, silent=silent, as_json=as_json
        )
        return
    held_out = None
    if validation is not None:
        held_out = other(validation, "--validation", "for temperature scaling")
        held_out.require_same_classes(given)
    evaluation = evaluate(
        loaded,
        given.prepared_for(loaded.network.model, labels_for="to judge predictions by"),
        ood={source: other(source, "--ood", "") for source in ood or []} or None,
        validation=held_out,
        risk=risk,
        coverage=coverage,
        alarm_rate=alarm_rate,
        cost_wrong=cost_wrong,
        cost_defer=cost_defer,
        class_names=given.class_names or None,
        groups=_lines(groups),
        texts=_lines(texts),
        feature_names=column_names(Path(data)),
        example_names=given.example_names or None,
        title=title,
        card=stated,
        identity=of_files(classifier, data, weights, head_only, author),
        options=_model_options(model, weights, head_only),
        seed=seed,
        progress=console.shows_progress(silent),
    )
    assert isinstance(evaluation, Evaluation)  # noqa: S101
    text = page.html(evaluation)
    if validation is None:
        console.log("No temperature scaling to compare with: give --validation.", quiet=silent)
    write_evaluation(evaluation, text, output, pdf, table, silent=silent, as_json=as_json)
    unmet = evaluation.unmet(require or [])
    for each in unmet:
        typer.echo(f"Not met: {each}.", err=True)
    if unmet:
        raise typer.Exit(NOT_MET)


def _model_options(model: str | None, weights: Path | None, head_only: Path | None) -> str:
    """How the model was named, for commands that are recommended."""
    named: dict[str, Any] = {"--model": model, "--weights": weights, "--head-only": head_only}
    given = [f"{option} {value}" for option, value in named.items() if value is not None]
    return " ".join(given) or "--head-only HEAD"


def _lines(path: Path | None) -> list[str] | None:
    """The lines of a file, or the last column of a .csv file under its heading."""
    if path is None:
        return None
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() != ".csv":
        return text.splitlines()
    rows = [row for row in csv.reader(text.splitlines()) if row]
    if len(rows) < 2:
        raise InputError(f"{path} needs a line of names and a line for each example.")
    return [row[-1] for row in rows[1:]]
