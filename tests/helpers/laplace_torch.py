"""laplace-torch, to compare with: what asks for this module is skipped without it."""

import warnings

import pytest

import laplacebridge as lb

INSTALL = (
    "needs laplace-torch 0.3: `pip install --no-deps -r requirements/crosscheck.txt` (without"
    " --no-deps it brings a torchvision that cannot be imported beside a CPU build of torch)"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what torch has deprecated
    # a module inside, because the folder tests/laplace is importable as `laplace` too
    pytest.importorskip("laplace.baselaplace", reason=INSTALL)
    from laplace import Laplace as Laplace

STRUCTURES = {"diag": lb.laplace.Diag, "kron": lb.laplace.Kron, "full": lb.laplace.Full}
PRIORS = pytest.mark.parametrize("prior_precision", [5e-4, 1.0, 30.0])
MARKS = [
    pytest.mark.crosscheck,
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),  # of what it needs
]
