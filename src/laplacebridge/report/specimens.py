"""Inputs worth looking at: one that is sure, one between two classes, one unknown (Figure 6)."""

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.report.evaluation import Specimen
from laplacebridge.report.examples import Examples


def specimens(
    prediction: Dirichlet, test: Examples, strange: Dirichlet | None, outside: Examples | None
) -> tuple[Specimen, ...]:
    """Chooses one input that is sure, one between two classes, and one unknown.

    Args:
        prediction: Dirichlets of the test examples.
        test: The examples.
        strange: Dirichlets of strange inputs, among which the unknown one is; otherwise it is a test example.
        outside: Those inputs.
    """
    top = prediction.mean.topk(2).values
    sure = int(prediction.log_total.add(top[:, 0].log()).argmax())
    between = int(top[:, 1].argmax())
    chosen = [_specimen("sure", prediction, test, sure), _specimen("between two classes", prediction, test, between)]
    source, examples = (prediction, test) if strange is None or outside is None else (strange, outside)
    unknown = int(source.mutual_information().argmax())
    return (*chosen, _specimen("unknown", source, examples, unknown, labelled=source is prediction))


def _specimen(title: str, prediction: Dirichlet, examples: Examples, row: int, *, labelled: bool = True) -> Specimen:
    label = int(examples.labels[row]) if labelled and examples.labels is not None else None
    return Specimen(title, prediction[row], label, None if examples.images is None else examples.images[row])
