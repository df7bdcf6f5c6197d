"""The laws of scores for detection and deferring."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import ShapeError
from laplacebridge.testing._laws import laws_of, require, seeded

_EXTREMES = (-300.0, -45.0, -1.0, 0.0, 3.0, 60.0, 300.0)


def check_score(
    score: Callable[..., Tensor],
    *,
    usual: list[float],
    unusual: list[float],
    of_logits: bool = False,
    bounded_below: bool = True,
) -> None:
    """Tries every law of scores on one of your own.

    Args:
        score: From Dirichlets, or logits, to a number for each row.
        usual: Concentrations, or logits, of an example that is usual.
        unusual: Those of one that is more unusual to this score.
        of_logits: Whether it takes logits in place of Dirichlets.
        bounded_below: Whether it must be finite for every finite input; −∞ is allowed
            otherwise.

    Raises:
        AssertionError: If a law does not hold; it says which, and with what input.

    Example:
        >>> from laplacebridge.scores import mutual_information
        >>> check_score(mutual_information, usual=[40.0, 20.0, 20.0], unusual=[4.0, 2.0, 2.0])
    """
    law = laws_of("check_score", score)

    def of(rows: Tensor) -> Tensor:
        return score(rows) if of_logits else score(Dirichlet(rows))

    def ordinary(seed: int, batch: int = 20) -> Tensor:
        return 2 * torch.randn(batch, 6, generator=seeded(seed), dtype=torch.float64)

    with law("higher is more unusual", f"{usual} and {unusual}"):
        pair = torch.tensor([usual, unusual], dtype=torch.float64)
        first, second = of(pair if of_logits else pair.log()).tolist()
        require(second > first, f"the usual one scores {first:.4g}, the unusual one {second:.4g}")
    for dtype, classes in itertools.product((torch.float64, torch.float32), (2, 3)):
        rows = torch.tensor(list(itertools.product(_EXTREMES, repeat=classes)), dtype=dtype)
        with law("every finite input has one number", f"extreme rows, K = {classes}, {dtype}"):
            scores = of(rows)
            require(scores.shape == (len(rows),), f"its shape is {tuple(scores.shape)}")
            require(scores.dtype == dtype, f"its type is {scores.dtype}")
            good = scores.isfinite() | (scores == -torch.inf if not bounded_below else False)
            bad = (~good).nonzero().flatten()
            require(not len(bad), f"{rows[bad[:1]].tolist()} has {scores[bad[:1]].tolist()}")
    rows, order = ordinary(1), torch.arange(5, -1, -1)
    with law("the order of classes does not matter", f"the order {order.tolist()}"):
        torch.testing.assert_close(of(rows[:, order]), of(rows), rtol=1e-10, atol=1e-12)
    rows = ordinary(3, batch=7)
    with law("rows do not see each other", "seven rows at once and one by one"):
        alone = torch.cat([of(rows[row : row + 1]) for row in range(7)])
        torch.testing.assert_close(of(rows), alone)
    rows = ordinary(4)
    with law("float32 agrees with float64", "ordinary rows"):
        torch.testing.assert_close(of(rows.float()).double(), of(rows), rtol=1e-4, atol=1e-4)
    for half in (torch.bfloat16, torch.float16):
        rows = ordinary(5).to(half)
        with law("half precision is scored in float32", str(half)):
            scores = of(rows)
            require(scores.dtype == torch.float32, f"its type is {scores.dtype}")
            torch.testing.assert_close(scores, of(rows.float()))
    with law("no examples are refused with a `ShapeError`", "zero rows"):
        try:
            of(torch.zeros(0, 3))
        except ShapeError:
            return
        raise AssertionError("it answered")
