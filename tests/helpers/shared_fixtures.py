"""Fixtures of the tests here and of those in reproduction/tests; each conftest.py
imports the ones it wants.
"""

import os

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The runner already uses every core."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Networks that tests train are not left in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPLACEBRIDGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def names_for_doctests(doctest_namespace):
    doctest_namespace["torch"] = torch


@pytest.fixture(scope="session")
def data_folder():
    folder = os.environ.get("LAPLACEBRIDGE_DATA")
    if not folder:
        pytest.skip("needs real data: set LAPLACEBRIDGE_DATA to the folder that holds it")
    return folder
