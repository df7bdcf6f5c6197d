"""The page of a report on several labels at once."""

from laplacebridge.report import plots
from laplacebridge.report.label_evaluation import LabelEvaluation
from laplacebridge.report.page import embedded, resource, template
from laplacebridge.report.plots._drawing import inline_svg
from laplacebridge.report.table import percent

# Labels whose reliability is drawn: those with the largest calibration error.
_DRAWN = 12


def html(evaluation: LabelEvaluation) -> str:
    """One page with every number, and a plot for each of the least calibrated labels.

    Args:
        evaluation: What was found.
    """
    worst = sorted(range(len(evaluation.rows)), key=lambda place: -evaluation.rows[place].ece)[
        :_DRAWN
    ]
    drawn = [
        (
            evaluation.rows[place].name,
            inline_svg(
                lambda ax, place=place: plots.reliability_diagram(  # type: ignore[misc]
                    evaluation.prediction.label(place), evaluation.labels[:, place], ax=ax
                ),
                name=f"plot-{place}",
                description=f"Share of right answers about {evaluation.rows[place].name} in bins of"
                " confidence, beside the diagonal of perfect calibration.",
                height=2.9,
            ),
        )
        for place in worst
    ]
    return str(
        template("labels.html").render(
            evaluation=evaluation,
            plots=drawn,
            style=resource("page.css"),
            percent=percent,
            embedded=embedded(evaluation.to_dict()),
        )
    )
