"""Variances as a sum of few products are the variances."""

import numpy as np
import pytest

from laplacebridge.laplace.separated import MOST_TERMS, separated


def spread(lowest, highest, number, seed):
    exponents = np.random.default_rng(seed).uniform(np.log(lowest), np.log(highest), number)
    return np.exp(exponents)


def variances(first, second, prior):
    return 1 / (first[:, None] * second + prior)


@pytest.mark.parametrize("prior", [0.01, 1.0, 100.0])
def test_few_products_are_every_variance(prior):
    first, second = spread(1e-3, 300.0, 500, 1), spread(1e-4, 0.1, 1000, 2)
    second[:3] = 0.0  # nothing is known along these
    found = separated(first, second, prior)
    assert found.of_first.shape[1] < MOST_TERMS
    np.testing.assert_allclose(
        found.of_first @ found.of_second, variances(first, second, prior), rtol=1e-6
    )


def test_a_few_values_far_from_the_others_are_right_too():
    generator = np.random.default_rng(4)
    first, second = generator.lognormal(-12, 2, 129), generator.lognormal(-3.4, 1.6, 6000)
    first[0] = 2.5
    found = separated(first, second, 1e-4)
    np.testing.assert_allclose(
        found.of_first @ found.of_second, variances(first, second, 1e-4), rtol=1e-6
    )


def test_float32_loses_no_more_digits_than_a_full_product():
    first, second = spread(1e-3, 300.0, 500, 1), spread(1e-4, 0.1, 1000, 2)
    found = separated(first, second, 0.05)
    squares = spread(1e-4, 1e4, 500, 3).astype(np.float32)
    expected = squares.astype(np.float64) @ variances(first, second, 0.05)
    answer = (squares @ found.of_first.astype(np.float32)) @ found.of_second.astype(np.float32)
    np.testing.assert_allclose(answer, expected, rtol=1e-5)


def test_all_alike_need_one_product():
    found = separated(np.full(5, 2.0), np.full(4, 3.0), 1.0)
    assert found.of_first.shape == (5, 1)
    np.testing.assert_allclose(found.of_first @ found.of_second, 1 / 7)


def test_eigenvalues_over_too_many_orders_of_magnitude_are_left_as_they_are():
    assert separated(spread(1e-9, 1e9, 300, 1), spread(1e-9, 1e9, 300, 2), 1e-6) is None
