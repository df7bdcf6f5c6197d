"""Fitted functions and sums that bridges use in place of slower ones of torch: the
error that they state.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import special as scipy_special
from scipy import stats

from laplacebridge import _special as special
from laplacebridge.bridges import precision

SCRIPT_PATH = Path(__file__).parents[1] / "scripts" / "fit_special.py"
CHANCES = torch.cat([torch.logspace(-30, -2, 500), torch.linspace(0.01, 0.5, 500)]).double()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 2e-9), (torch.float32, 4e-6)], ids=str
)
def test_inverse_mills_ratio(dtype, tolerance):
    quantiles = scipy_special.ndtri(CHANCES.numpy())
    exact = torch.from_numpy(
        np.exp(stats.norm.logpdf(quantiles) - scipy_special.log_ndtr(quantiles))
    )
    got = special.inverse_mills_ratio(CHANCES.to(dtype)).double()
    torch.testing.assert_close(got, exact, rtol=tolerance, atol=0)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 3e-8), (torch.float32, 4e-7)], ids=str
)
def test_one_minus_the_scaled_gap_of_digamma(dtype, tolerance):
    x = torch.logspace(-18, 10, 2000).double()
    exact = 1 - special.scaled_log_minus_digamma(x.log())
    torch.testing.assert_close(
        precision._below_one(x.to(dtype)).double(), exact, rtol=0, atol=tolerance
    )


def test_nested_is_the_polynomial_with_these_ratios_of_coefficients():
    x = torch.linspace(-2, 2, 9).double()
    torch.testing.assert_close(special.nested(x, (3.0, -2.0, 0.5)), 1 + 3 * x - 6 * x**2 - 3 * x**3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(
    "row",
    [
        [1e12, 1e-30, 2e-30],
        [5.0, 5.0, 1e-20],
        [0.0, 0.0, 0.0],
        [1.0, 2.0, 3.0],
        [3e-45, 1e-45, 0.0],
        [1.0, 0.4, 0.2],
    ],
    ids=str,
)
def test_the_sum_of_others_keeps_its_digits(row, dtype):
    values = torch.tensor([row], dtype=dtype)
    exact = torch.stack(
        [values[:, [other for other in range(3) if other != k]].sum(-1) for k in range(3)], -1
    )
    torch.testing.assert_close(special.sum_of_others(values), exact, rtol=1e-6, atol=0)


def test_the_script_makes_these_fits():
    specification = importlib.util.spec_from_file_location("fit_special", SCRIPT_PATH)
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    constant, ratios = script.fit_series()
    np.testing.assert_allclose(
        [precision._SERIES_CONSTANT, *precision._SERIES], [constant, *ratios], rtol=1e-4
    )
    # a rational fit has many nearly equal forms: compare what it gives
    radius = np.sqrt(-2 * np.log(CHANCES.numpy()))
    got = special.inverse_mills_ratio(CHANCES).numpy()
    np.testing.assert_allclose(got, script.mills(radius, *script.fit_mills()), rtol=4e-9)
    np.testing.assert_allclose(
        [precision.START, precision.START_SLOPE], script.fit_start(), rtol=1e-3
    )


def test_the_script_makes_the_fits_of_graphs():
    pytest.importorskip("onnx", reason="needs the extra `onnx`")
    from laplacebridge.onnx.formulas import special as graphs

    specification = importlib.util.spec_from_file_location("fit_special", SCRIPT_PATH)
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    np.testing.assert_allclose(graphs._NEXT_DIGAMMA, script.fit_next_digamma(), atol=1e-6)
    np.testing.assert_allclose(graphs._NORMAL_TAIL, script.fit_normal_tail(), atol=1e-5)
    radius = np.sqrt(-2 * np.log(CHANCES.numpy()))
    mills = script.mills(radius, graphs._MILLS_NUMERATOR, graphs._MILLS_DENOMINATOR)
    np.testing.assert_allclose(mills, special.inverse_mills_ratio(CHANCES).numpy(), rtol=5e-6)
