"""Table 5: where the time of a whole prediction goes; bridges against a single sample;
and training against the fit.
"""

from laplacebridge_reproduction.artifact import Artifact, Result
from laplacebridge_reproduction.stopwatch import readable
from laplacebridge_reproduction.table import Table
from laplacebridge_reproduction.table5_measured import (
    AFTER,
    BATCH,
    BRIDGES,
    NUM_IMAGES,
    TRAINED,
    compute,
)

# Seconds for the test set on a GTX 1080 Ti, and share of the whole prediction.
PRINTED = {
    "forward": (0.300, None),
    "MC(1000)": (4.712, 0.94),
    "MC(100)": (0.488, 0.62),
    "MC(10)": (0.059, 0.17),
    "LB as in the table": (0.013, 0.04),
}
PRINTED_TRAINING, PRINTED_FIT = 4288.0, 29.07  # seconds: ResNet-18, 200 epochs; Hessian


def share(seconds: Result, name: str) -> float:
    """Which part of a whole prediction comes after the forward pass."""
    return float(seconds[name]["median"] / (seconds["forward"]["median"] + seconds[name]["median"]))


def percent(part: float) -> str:
    """A share with two digits, however small.

    Example:
        >>> percent(0.321), percent(0.000042)
        ('32%', '0.0042%')
    """
    return f"{100 * part:.2g}%"


def over_one_sample(seconds: Result, name: str) -> float:
    """The time of a bridge over that of a single sample."""
    return float(seconds[name]["median"] / seconds["one sample"]["median"])


def tables(result: Result) -> list[Table]:
    """The split for each number of classes beside the printed one; bridges against one
    sample; training against the fit.
    """
    return [
        *(_split_table(result, classes) for classes in result["classes"]),
        _sample_table(result),
        _training_table(result),
    ]


def _split_table(result: Result, classes: str) -> Table:
    titles = result["classes"][classes]["split"]
    printed = classes == "10"
    rows = []
    for name in ("forward", *AFTER):
        row = [name if name == "forward" else f"+ {name}"]
        for timed in titles.values():
            row.append(_scaled(timed["seconds"][name]))
            row.append("" if name == "forward" else percent(share(timed["seconds"], name)))
        if printed:
            seconds, part = PRINTED.get(name, (None, None))
            row += [
                "" if seconds is None else f"*{seconds:.3f} s*",
                "" if part is None else f"*{part:.0%}*",
            ]
        rows.append(row)
    headings = [
        f"{classes} classes",
        *(f"{title}: {what}" for title in titles for what in ("time", "share")),
        *(["*printed*", "*share*"] if printed else []),
    ]
    caption = (
        f"{result['network']}, {NUM_IMAGES:,} images in batches of {BATCH}, scaled from one batch:"
        " medians over repetitions in turn, with 95 % intervals. One thread: processor time; all"
        " threads: time on the wall. A share is of that prediction."
    )
    return Table(headings, rows, caption)


def _scaled(found: Result, times: float = NUM_IMAGES / BATCH) -> str:
    middle, low, high = (readable(times * found[key]) for key in ("median", "low", "high"))
    return f"{middle} ({low} to {high})"


def timings(result: Result) -> dict[str, Result]:
    """Seconds by number of classes and rows at once, with one thread."""
    return {
        f"K = {classes}, {rows:,} at once": seconds
        for classes, found in result["classes"].items()
        for rows, seconds in (
            (BATCH, found["split"]["one thread"]["seconds"]),
            (found["many"]["rows"], found["many"]["seconds"]),
        )
    }


def _sample_table(result: Result) -> Table:
    timed = timings(result)
    rows = [
        [name, *(f"{over_one_sample(seconds, name):.2g}" for seconds in timed.values())]
        for name in BRIDGES
    ]
    caption = (
        "Processor time of a bridge over that of one sample, drawn and softmax taken: below one, it"
        " is faster than a single sample, as the paper says of LB."
    )
    return Table(["over one sample", *timed], rows, caption)


def ratios(result: Result, name: str) -> tuple[float, float, float]:
    """Seconds of a whole training, of the fit, and their ratio.

    Args:
        name: One of `TRAINED`.
    """
    _, _, number, settings = TRAINED[name]
    seconds, batches = result["training"][name]["seconds"], number / BATCH
    training = settings.epochs * batches * seconds["step"]["median"]
    fitting = seconds["fit, once"]["median"] + batches * seconds["fit, batch"]["median"]
    return training, fitting, training / fitting


def _training_table(result: Result) -> Table:
    rows = []
    for name in result["training"]:
        training, fitting, ratio = ratios(result, name)
        seconds = result["training"][name]["seconds"]
        rows.append(
            [
                f"{name}, {TRAINED[name][3].epochs} epochs",
                readable(training),
                readable(fitting),
                f"{ratio:.0f}",
                f"{seconds['fit, batch']['median'] / seconds['forward']['median']:.2f}",
            ]
        )
    rows.append(
        [
            "*CIFAR-10, ResNet-18, on a GPU*",
            f"*{PRINTED_TRAINING:.0f} s*",
            f"*{PRINTED_FIT:.0f} s*",
            f"*{PRINTED_TRAINING / PRINTED_FIT:.0f}*",
            "",
        ]
    )
    caption = (
        "Training against the fit of a diagonal last-layer posterior: processor time of one thread,"
        f" scaled from steps of {BATCH} images."
    )
    headings = ["network", "training", "fit", "training over fit", "fit over a pass forward"]
    return Table(headings, rows, caption)


def finding(result: Result) -> str:
    """What the table shows."""
    seconds = result["classes"]["10"]["split"]["one thread"]["seconds"]
    bridge, printed = "LB as in the table", PRINTED["LB as in the table"][0]
    times = {name: found["median"] for name, found in seconds.items()}
    told = ", ".join(
        f"{name} {times[name] / times[bridge]:.0f} (*{PRINTED[name][0] / printed:.0f}*)"
        for name in ("MC(1000)", "MC(100)", "MC(10)")
    )
    shares = ", ".join(f"{name} {percent(share(seconds, name))}" for name in AFTER)
    trained = "; ".join(
        f"{name} {readable(training)} and {readable(fitting)}, {ratio:.0f} times"
        for name in result["training"]
        for training, fitting, ratio in [ratios(result, name)]
    )
    return (
        "The order is the paper's: with 10 classes and one thread the time of sampling over that of"
        f" its bridge is {told}. The shares are not: on this processor the forward pass takes"
        f" {readable(times['forward'] * NUM_IMAGES / BATCH)} (*0.300 s* on a GPU), and after it"
        f" come, of a whole prediction, {shares}. {_single_sample(result)} Training and fit:"
        f" {trained} (*{PRINTED_TRAINING:.0f} s and {PRINTED_FIT:.0f} s,"
        f" {PRINTED_TRAINING / PRINTED_FIT:.0f} times*); the fit needs no backward pass. The"
        " authors' times leave out the decomposition of the covariance before sampling, and their"
        " clock did not wait for the GPU."
    )


def _single_sample(result: Result) -> str:
    """Where a bridge is faster than a single sample."""
    told = []
    for name in BRIDGES:
        won = [
            where
            for where, seconds in timings(result).items()
            if over_one_sample(seconds, name) < 1
        ]
        told.append(f"{name} {'at ' + '; '.join(won) if won else 'nowhere'}")
    return f"“Faster than a single sample” holds for {', for '.join(told)}."


TABLE_5 = Artifact("table5", "Time of a whole prediction", compute, tables, finding)
