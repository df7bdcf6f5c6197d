import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what Python has deprecated
    pytest.importorskip("transformers", minversion="5", reason="needs the extra `transformers`")
