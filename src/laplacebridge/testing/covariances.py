"""The laws of covariances."""

import torch

from laplacebridge._values import check
from laplacebridge.covariance import Covariance, Dense
from laplacebridge.testing._laws import Law, laws_of, require, seeded

_SAMPLES = 20_000
_QUESTIONS = ("diagonal", "row_sums", "grand_sum", "trace", "given_zero_sum")


def check_covariance(covariance: Covariance) -> None:
    """Tries every law of covariances on one of your own: it must answer as the matrix
    that `to_dense` gives.

    Args:
        covariance: A valid one in float64, of at least two rows, and small: its
            matrices are formed.

    Raises:
        AssertionError: If a law does not hold; it says which, and with what input.

    Example:
        >>> from laplacebridge import Diagonal
        >>> check_covariance(Diagonal(torch.rand(3, 4, dtype=torch.float64)))
    """
    law = laws_of("check_covariance", covariance)
    batch, classes = covariance.shape
    given = f"B = {batch}, K = {classes}"
    with law("it is in float64, with at least two rows", given):
        require(covariance.dtype == torch.float64, f"its type is {covariance.dtype}")
        require(batch >= 2, f"it has {batch}")
    with law("`to_dense` is symmetric and positive semi-definite", given):
        matrix = covariance.to_dense()
        require(matrix.shape == (batch, classes, classes), f"its shape is {tuple(matrix.shape)}")
        torch.testing.assert_close(matrix, matrix.mT)
        least, largest = torch.linalg.eigvalsh(matrix)[:, [0, -1]].unbind(-1)
        require(least > -1e-10 * largest.clamp_min(1e-30), f"an eigenvalue is {least.min():.3g}")
    twin = Dense(matrix)
    _answers_agree(covariance, twin, law, given)
    _changes_agree(covariance, twin, law, given)
    with law("`check` finds nothing wrong", given):
        check(covariance)
    _samples_agree(covariance, twin, law, given)


def _answers_agree(covariance: Covariance, twin: Dense, law: Law, given: str) -> None:
    for question in _QUESTIONS:
        with law(f"`{question}` is that of the matrix", given):
            torch.testing.assert_close(
                getattr(covariance, question)(), getattr(twin, question)(), atol=1e-9, rtol=1e-9
            )
    vector = torch.randn(covariance.shape, generator=seeded(2), dtype=torch.float64)
    with law("`matvec` multiplies with the matrix", given):
        torch.testing.assert_close(covariance.matvec(vector), twin.matvec(vector))
    vectors = torch.randn(*covariance.shape, 3, generator=seeded(5), dtype=torch.float64)
    with law("`matmat` multiplies the matrix with several vectors", given):
        torch.testing.assert_close(covariance.matmat(vectors), twin.covariance @ vectors)
    chosen = torch.randint(covariance.shape[1], (len(covariance), 1), generator=seeded(4))
    with law("`column` is that of the matrix", f"{given}, columns {chosen.flatten().tolist()}"):
        torch.testing.assert_close(covariance.column(chosen), twin.column(chosen))


def _changes_agree(covariance: Covariance, twin: Dense, law: Law, given: str) -> None:
    matrix, (batch, classes) = twin.covariance, covariance.shape
    centring = torch.eye(classes, dtype=torch.float64) - 1 / classes
    with law("`centered` is CΣC, and so is doing it twice", given):
        expected = centring @ matrix @ centring
        torch.testing.assert_close(covariance.centered().to_dense(), expected)
        torch.testing.assert_close(covariance.centered().centered().to_dense(), expected)
        variances = expected.diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(covariance.centered_diagonal(), variances)
    factor = torch.rand(batch, generator=seeded(3), dtype=torch.float64)
    with law("`scaled` multiplies each matrix", f"{given}, factors {factor.tolist()}"):
        scaled = covariance.scaled(factor)
        torch.testing.assert_close(scaled.to_dense(), matrix * factor[:, None, None])
        torch.testing.assert_close(scaled.diagonal(), twin.diagonal() * factor[:, None])
    for rows in (0, -1, slice(0, 2), torch.tensor([1, 0]), [0]):
        with law("choosing rows chooses matrices", f"{given}, rows {rows}"):
            torch.testing.assert_close(covariance[rows].to_dense(), twin[rows].to_dense())
            torch.testing.assert_close(covariance[rows].diagonal(), twin[rows].diagonal())
    with law("`to` moves every tensor to another type", f"{given}, float32"):
        narrow = covariance.to(torch.float32)
        require(narrow.dtype == torch.float32, f"its type is {narrow.dtype}")
        kept = [n for n, part in narrow.tensors().items() if part.dtype != torch.float32]
        require(not kept, f"{kept} kept their type")


def _samples_agree(covariance: Covariance, twin: Dense, law: Law, given: str) -> None:
    with law("samples have this covariance, within six standard errors", given):
        draws = covariance.sample(_SAMPLES, seeded(4))
        require(draws.shape == (_SAMPLES, *covariance.shape), f"shape {tuple(draws.shape)}")
        products = torch.einsum("sbk,sbl->sbkl", draws, draws)
        error = products.std(0) / _SAMPLES**0.5
        apart = (products.mean(0) - twin.covariance).abs()
        require(apart <= 6 * error + 1e-12, f"it is {apart.max():.3g} off")
        bias = draws.mean(0).abs()
        allowed = 6 * twin.diagonal().clamp_min(0).sqrt() / _SAMPLES**0.5 + 1e-12
        require(bias <= allowed, f"their mean is {bias.max():.3g}, not 0")
