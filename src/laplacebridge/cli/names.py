"""Names of bridges, curvatures and scores, with what they stand for. Only the command line has strings for methods."""

from collections.abc import Callable, Mapping

import typer

import laplacebridge as lb
from laplacebridge.classifier import Bridge
from laplacebridge.laplace.curvature import Curvature
from laplacebridge.scores import DIRICHLET_SCORES, Score
from laplacebridge.scores import SCORES as PROBABILITY_SCORES

BRIDGES: dict[str, Bridge] = {
    "race": lb.race_bridge,
    "one-vs-rest": lb.one_vs_rest_bridge,
    "kl": lb.kl_bridge,
    "delta": lb.delta_bridge,
    "laplace": lb.laplace_bridge,
    "laplace-norm": lb.laplace_bridge_norm,
    "laplace-raw": lb.bridges.laplace_bridge_raw,
}
CURVATURES: dict[str, type[Curvature]] = {
    "diag": lb.laplace.Diag,
    "kron": lb.laplace.Kron,
    "diag-kron": lb.laplace.DiagKron,
    "full": lb.laplace.Full,
}
SCORES: dict[str, Score] = PROBABILITY_SCORES | DIRICHLET_SCORES


def one_of(table: Mapping[str, object]) -> Callable[[str | None], str | None]:
    """A check for an option whose values are the names of a table.

    Args:
        table: What the names stand for.
    """

    def checked(name: str | None) -> str | None:
        if name is not None and name not in table:
            raise typer.BadParameter(f"'{name}' is not one of {', '.join(table)}.")
        return name

    return checked


def name_of(method: object, table: Mapping[str, object]) -> str:
    """The name of a method, or what it calls itself if the table does not have it.

    Args:
        method: A bridge or curvature.
        table: The names.
    """
    own = getattr(method, "__name__", repr(method))
    return next((name for name, value in table.items() if value is method), own)
