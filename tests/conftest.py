import copy
import os

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("default", deadline=None, max_examples=25, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("default")


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


@pytest.fixture(scope="module")
def model():
    """A small trained network; each module has a copy of its own."""
    # Not above: older jaxtyping checks shapes only in packages that no conftest has imported.
    from small_network import trained_network

    return copy.deepcopy(trained_network())
