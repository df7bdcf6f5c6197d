"""The laws of bridges."""

import math

import torch
from torch import Tensor

from laplacebridge.bridges import Bridge
from laplacebridge.covariance import Dense, Diagonal
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.testing._laws import (
    STRUCTURES,
    Law,
    extreme_gaussian,
    gaussian,
    laws_of,
    require,
    seeded,
)

_SIZES = (2, 3, 10)
_FLOATS = (torch.float64, torch.float32)
_HALVES = (torch.bfloat16, torch.float16)


def check_bridge(
    bridge: Bridge,
    *,
    shift_invariant: bool = True,
    common_mode_invariant: bool = True,
    consistent: bool = True,
    structured_tolerance: float = 1e-6,
    float32_tolerance: float = 1e-5,
) -> None:
    """Tries every law of bridges on a bridge of your own.

    Args:
        bridge: From `LogitGaussian` to `Dirichlet`.
        shift_invariant: Whether a constant added to all logits must change nothing. The
            published bridge does not obey this.
        common_mode_invariant: Whether noise common to all logits must change nothing.
        consistent: Whether the mean must become softmax(μ) as the variances vanish.
        structured_tolerance: How far log-concentrations may lie apart for a structured
            covariance and the same as a `Dense`.
        float32_tolerance: How far means in float32 and float64 may lie apart, in total
            variation.

    Raises:
        AssertionError: If a law does not hold; it says which, and with what input.

    Example:
        >>> from laplacebridge.bridges import one_vs_rest_bridge
        >>> check_bridge(one_vs_rest_bridge)
        >>> check_bridge(lambda gaussian: Dirichlet(gaussian.mean.cumsum(-1)))
        Traceback (most recent call last):
        ...
        AssertionError: `check_bridge(<lambda>)`: the law “...” does not hold for ...
    """
    law = laws_of("check_bridge", bridge)
    _answers_are_valid(bridge, law)
    for structure in STRUCTURES:
        for classes in _SIZES:
            _structures_agree(bridge, law, structure, classes, structured_tolerance)
            _types_agree(bridge, law, structure, classes, float32_tolerance)
        _rows_are_independent(bridge, law, structure)
    _independent_logits_agree(bridge, law)
    _half_precision_is_float32_rounded(bridge, law)
    _classes_have_no_order(bridge, law)
    _known_logits_give_softmax(bridge, law)
    _gradients_are_finite(bridge, law)
    _correlated_gradients_are_finite(bridge, law)
    _degenerate_matrices_are_valid(bridge, law)
    _nothing_jumps(bridge, law)
    if shift_invariant:
        _shifts_change_nothing(bridge, law)
    if common_mode_invariant:
        _common_noise_changes_nothing(bridge, law)
    if consistent:
        _small_variances_give_softmax(bridge, law)


def _answers_are_valid(bridge: Bridge, law: Law) -> None:
    for dtype in (*_FLOATS, *_HALVES):
        for classes in (2, 3, 10, 100):
            given = extreme_gaussian(classes, dtype)
            if dtype in _HALVES:  # what they cannot hold is not asked
                given = given[given.variance.isfinite().all(-1)]
            described = f"extreme logits and variances, K = {classes}, {dtype}"
            with law("every finite input gives a valid Dirichlet of its shape and type", described):
                answer = bridge(given)
                require(isinstance(answer, Dirichlet), f"it returned {type(answer).__name__}")
                log = answer.log_concentration
                require(log.shape == given.mean.shape, f"its shape is {tuple(log.shape)}")
                require(answer.dtype == dtype, f"its type is {answer.dtype}")
                bad = (~log.isfinite()).any(-1)
                if bad.any():
                    row = int(bad.nonzero()[0])
                    raise AssertionError(
                        f"{int(bad.sum())} of {len(bad)} rows are not finite, first mean"
                        f" {given.mean[row, :3].tolist()}…, variance"
                        f" {given.variance[row, :3].tolist()}…"
                    )
                tolerance = 1e-6 if dtype in _FLOATS else 4 * torch.finfo(dtype).eps
                sums = answer.mean.double().sum(-1)
                require((sums - 1).abs() <= tolerance, "means do not sum to one")


def _structures_agree(
    bridge: Bridge, law: Law, structure: str, classes: int, tolerance: float
) -> None:
    given = gaussian(structure, 0, 5, classes)
    dense = LogitGaussian(given.mean, Dense(given.covariance.to_dense()))
    with law(
        "a structured covariance and the same as a matrix agree", f"{structure}, K = {classes}"
    ):
        torch.testing.assert_close(
            bridge(given).log_concentration,
            bridge(dense).log_concentration,
            atol=tolerance,
            rtol=0,
        )


def _independent_logits_agree(bridge: Bridge, law: Law) -> None:
    for classes in _SIZES:
        generator = seeded(9)
        mean = 2 * torch.randn(20, classes, generator=generator, dtype=torch.float64)
        variance = 10 ** (12 * torch.rand(20, classes, generator=generator).double() - 6)
        given = LogitGaussian(mean, Diagonal(variance))
        matrix = LogitGaussian(mean, Dense(torch.diag_embed(variance)))
        for dtype, tolerance in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
            with law(
                "independent logits agree, whether given as variances or as a matrix",
                f"variances from 1e-6 to 1e6, K = {classes}, {dtype}",
            ):
                for means in (bridge(matrix.to(dtype)).mean, bridge(given.to(dtype)).mean):
                    apart = 0.5 * (means.double() - bridge(given).mean).abs().sum(-1).max()
                    require(apart < tolerance, f"means are {float(apart):.2g} apart")


def _types_agree(bridge: Bridge, law: Law, structure: str, classes: int, tolerance: float) -> None:
    given = gaussian(structure, 2, 20, classes)
    with law("float32 agrees with float64", f"{structure}, K = {classes}"):
        exact, narrow = bridge(given), bridge(given.to(torch.float32))
        require(narrow.dtype == torch.float32, f"its type is {narrow.dtype}")
        apart = 0.5 * (narrow.mean.double() - exact.mean).abs().sum(-1).max()
        require(apart < tolerance, f"means are {float(apart):.2g} apart in total variation")
        totals = (narrow.log_total.double() - exact.log_total).abs().max()
        require(totals < 1e-3, f"log totals are {float(totals):.2g} apart")


def _rows_are_independent(bridge: Bridge, law: Law, structure: str) -> None:
    given = gaussian(structure, 1, 7, 5)
    with law("rows do not see each other", f"{structure}, seven rows at once and one by one"):
        alone = [bridge(given[row]).log_concentration for row in range(len(given))]
        torch.testing.assert_close(bridge(given).log_concentration, torch.cat(alone))


def _half_precision_is_float32_rounded(bridge: Bridge, law: Law) -> None:
    for dtype in _HALVES:
        given = gaussian("Diagonal", 3, 20, 10).to(dtype)
        with law("half precision is computed in float32", str(dtype)):
            narrow = bridge(given).log_concentration
            exact = bridge(given.to(torch.float32)).log_concentration
            allowed = torch.finfo(dtype).eps * exact.abs().clamp_min(1e-2)
            require((narrow.float() - exact).abs() <= allowed, "it differs by more than rounding")


def _classes_have_no_order(bridge: Bridge, law: Law) -> None:
    for structure in ("Dense", "Dense with shared factors"):
        for classes in (6, 30):
            given = gaussian(structure, 4, 3, classes)
            order = torch.randperm(classes, generator=seeded(classes))
            matrix = given.covariance.to_dense()[:, order][:, :, order]
            renamed = LogitGaussian(given.mean[:, order], Dense(matrix))
            described = f"{structure}, the order {order.tolist()}"
            with law("renaming classes renames the answer", described):
                torch.testing.assert_close(
                    bridge(renamed).log_concentration,
                    bridge(given).log_concentration[:, order],
                    atol=1e-7,
                    rtol=1e-7,
                )
    equal = LogitGaussian(torch.full((1, 6), 3.0), Diagonal(torch.full((1, 6), 2.0)))
    with law("exchangeable logits have a uniform mean", "six logits of mean 3 and variance 2"):
        torch.testing.assert_close(bridge(equal).mean, torch.full((1, 6), 1 / 6))


def _known_logits_give_softmax(bridge: Bridge, law: Law) -> None:
    mean = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0], [1e4, -1e4, 0.0]])
    with law("without variance the mean is softmax, and sure", f"means {mean.tolist()}"):
        answer = bridge(LogitGaussian(mean, Diagonal(torch.zeros(3, 3))))
        torch.testing.assert_close(answer.mean, mean.softmax(-1), atol=1e-6, rtol=1e-5)
        require(answer.log_total > math.log(1e6), "its total concentration is below 1e6")


def _gradients_are_finite(bridge: Bridge, law: Law) -> None:
    for dtype in _FLOATS:
        for variance in (0.0, 1e-10, 1.0, 1e6):
            mean = torch.tensor([[0.0, 0.0, 0.0], [100.0, 0.0, -100.0]], dtype=dtype)
            mean.requires_grad_()
            variances = torch.full((2, 3), variance, dtype=dtype, requires_grad=True)
            with law("gradients are finite", f"variances {variance}, {dtype}"):
                answer = bridge(LogitGaussian(mean, Diagonal(variances)))
                _require_finite_gradients(answer, mean=mean, variance=variances)


def _correlated_gradients_are_finite(bridge: Bridge, law: Law) -> None:
    for scale in (1e-6, 1.0, 1e4):
        given = gaussian("Dense with shared factors", 10, 4, 6)
        mean = given.mean.clone().requires_grad_()
        matrix = (scale * given.covariance.to_dense()).requires_grad_()
        with law("gradients are finite", f"shared factors, scale {scale}"):
            answer = bridge(LogitGaussian(mean, Dense(matrix)))
            _require_finite_gradients(answer, mean=mean, covariance=matrix)


def _require_finite_gradients(answer: Dirichlet, **tensors: Tensor) -> None:
    answer.mean[:, 0].sum().backward()  # type: ignore[no-untyped-call]
    for name, tensor in tensors.items():
        require(tensor.grad is not None, f"none reached the {name}")
        assert tensor.grad is not None  # noqa: S101
        require(tensor.grad.isfinite(), f"that of the {name} is not")


def _degenerate_matrices_are_valid(bridge: Bridge, law: Law) -> None:
    for dtype in _FLOATS:
        for classes in (3, 10, 40):
            ones = torch.ones(classes, dtype=torch.float64)
            signs = torch.where(torch.arange(classes) % 2 == 0, ones, -ones)
            first = torch.eye(classes, dtype=torch.float64)[0]
            pairs = (torch.arange(classes) // 2).unsqueeze(0) == (torch.arange(classes) // 2)[
                :, None
            ]
            matrices = [torch.outer(along, along) for along in (ones, signs, first)]
            matrices += [pairs.double(), torch.zeros(classes, classes).double()]
            stacked = torch.stack([scale * m for m in matrices for scale in (1e-12, 1.0, 1e6)])
            for spread in (0.0, 3.0, 1e3):
                mean = spread * torch.randn(
                    len(stacked), classes, generator=seeded(11), dtype=torch.float64
                )
                given = LogitGaussian(mean.to(dtype), Dense(stacked.to(dtype)))
                described = f"singular matrices, means ±{spread:g}, K = {classes}, {dtype}"
                with law("every finite input gives a valid Dirichlet", described):
                    answer = bridge(given)
                    require(answer.log_concentration.isfinite(), "a concentration is not finite")
                    apart = (answer.mean.double().sum(-1) - 1).abs()
                    require(apart <= 1e-5, "means do not sum to one")


def _nothing_jumps(bridge: Bridge, law: Law) -> None:
    for classes in (3, 10):
        given = gaussian("Dense with shared factors", 12, 1, classes)
        factor = torch.randn(1, classes, 1, generator=seeded(13), dtype=torch.float64)
        growing = torch.linspace(0, 1, 201, dtype=torch.float64).square()
        own = torch.exp(torch.randn(1, classes, generator=seeded(14), dtype=torch.float64))
        matrix = torch.diag_embed(own) + growing[:, None, None] * (factor @ factor.mT)
        with law("the answer does not jump as a factor appears", f"K = {classes}"):
            mean = bridge(LogitGaussian(given.mean.expand(201, -1), Dense(matrix))).mean
            steps = 0.5 * mean.diff(dim=0).abs().sum(-1)
            beside = torch.maximum(steps[:-2], steps[2:])
            jump = float((steps[1:-1] - 2 * beside).max())
            require(jump < 2e-4, f"one step of 200 moves it by {jump:.2g} more than those beside")


def _shifts_change_nothing(bridge: Bridge, law: Law) -> None:
    for structure in STRUCTURES:
        given = gaussian(structure, 6, 3, 5)
        for shift in (-50.0, 7.0):
            moved = LogitGaussian(given.mean + shift, given.covariance)
            with law("a constant added to all logits changes nothing", f"{structure}, {shift:+}"):
                torch.testing.assert_close(
                    bridge(moved).log_concentration,
                    bridge(given).log_concentration,
                    atol=1e-7,
                    rtol=1e-7,
                )


def _common_noise_changes_nothing(bridge: Bridge, law: Law) -> None:
    for structure in ("Dense", "Dense with shared factors"):
        given = gaussian(structure, 7, 3, 5)
        tilt = 0.1 * torch.randn(3, 5, generator=seeded(8), dtype=torch.float64)
        noisy = given.covariance.to_dense() + tilt[:, :, None] + tilt[:, None, :] + 3.0
        described = f"{structure}, Σ + u1ᵀ + 1uᵀ + 3·11ᵀ"
        with law("noise common to all logits changes nothing", described):
            torch.testing.assert_close(
                bridge(LogitGaussian(given.mean, Dense(noisy))).log_concentration,
                bridge(given).log_concentration,
                atol=1e-6,
                rtol=1e-6,
            )


def _small_variances_give_softmax(bridge: Bridge, law: Law) -> None:
    for structure in ("Diagonal", "Dense with shared factors"):
        for classes in (3, 10, 100):
            given = gaussian(structure, 5, 5, classes)
            small = given.covariance.scaled(torch.full((5,), 1e-7, dtype=torch.float64))
            described = f"{structure}, 1e-7, K = {classes}"
            with law("the mean becomes softmax as variances vanish", described):
                mean = bridge(LogitGaussian(given.mean, small)).mean
                apart = 0.5 * (mean - given.mean.softmax(-1)).abs().sum(-1).max()
                require(apart < 1e-5, f"it is {float(apart):.2g} apart in total variation")
