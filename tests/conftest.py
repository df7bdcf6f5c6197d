import copy

import hypothesis
import pytest
from shared_fixtures import data_folder as data_folder
from shared_fixtures import names_for_doctests as names_for_doctests
from shared_fixtures import one_thread as one_thread
from shared_fixtures import own_cache as own_cache

hypothesis.settings.register_profile(
    "default", deadline=None, max_examples=25, derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("default")


@pytest.fixture(scope="module")
def model():
    """A small trained network; each module has a copy of its own."""
    # Not above: older jaxtyping checks shapes only in packages that no conftest has
    # imported.
    from small_network import trained_network

    return copy.deepcopy(trained_network())


# a script of its own, for an environment that has KServe and gRPC
collect_ignore = ["helpers/kserve_client.py", "on_a_device.py"]
