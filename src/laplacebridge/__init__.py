"""A distribution over class probabilities from any trained classifier, in closed form.

Example:
    >>> import torch
    >>> import laplacebridge as lb
    >>> model, batches = torch.nn.Linear(4, 3), [(torch.eye(4), torch.tensor([0, 1, 2, 0]))]
    >>> classifier = lb.fit(model, batches, prior_precision=1.0, progress=False)
    >>> prediction = classifier(torch.eye(4))
    >>> prediction.mean.shape  # probabilities
    torch.Size([4, 3])
    >>> prediction.interval(0.95)[0].shape  # with bounds for that of every class
    torch.Size([4, 3])
    >>> prediction.ood_score.shape  # how unusual each input is
    torch.Size([4])
"""

import importlib
from importlib.util import find_spec
from types import ModuleType

from laplacebridge import (
    bridges,
    covariance,
    errors,
    laplace,
    links,
    metrics,
    multi_label,
    report,
    scores,
    selective,
    sets,
    sources,
    temperature,
    testing,
)
from laplacebridge._export import export
from laplacebridge._fit import FitSums, fit, from_sums, partial
from laplacebridge._scoring import score_file
from laplacebridge._values import check
from laplacebridge.beta import Beta
from laplacebridge.bridges import laplace_bridge, predict, race_bridge
from laplacebridge.checkpoint import load, save
from laplacebridge.classifier import Classifier
from laplacebridge.covariance import Dense, Diagonal, LowRank, SharedBasis
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import (
    CheckpointError,
    HeadNotFoundError,
    InputError,
    LaplaceBridgeError,
)
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace import FitInterrupted
from laplacebridge.prediction import Prediction
from laplacebridge.selective import review

__version__ = "0.1.0"

__all__ = [
    "Beta",
    "CheckpointError",
    "Classifier",
    "Dense",
    "Diagonal",
    "Dirichlet",
    "FitInterrupted",
    "FitSums",
    "HeadNotFoundError",
    "InputError",
    "LaplaceBridgeError",
    "LogitGaussian",
    "LowRank",
    "Prediction",
    "SharedBasis",
    "bridges",
    "check",
    "covariance",
    "errors",
    "export",
    "fit",
    "from_sums",
    "laplace",
    "laplace_bridge",
    "links",
    "load",
    "metrics",
    "multi_label",
    "partial",
    "predict",
    "race_bridge",
    "report",
    "review",
    "save",
    "score_file",
    "scores",
    "selective",
    "sets",
    "sources",
    "temperature",
    "testing",
]

# Adapters to other packages, imported when they are first used: what each needs.
_ADAPTERS = {"onnx": "onnx"}

# Where names that were here in earlier versions are now.
_MOVED = {
    name: module
    for module, names in {
        "bridges": "delta_bridge kl_bridge laplace_bridge_norm laplace_bridge_raw"
        " one_vs_rest_bridge race_mean one_vs_rest_mean dirichlet_to_gaussian condition center"
        " as_given pull_back Marginals",
        "covariance": "CenteredDiagonal Covariance",
        "errors": "InputTypeError ShapeError",
        "laplace": "Diag DiagKron Full Kron LoaderError",
        "sets": "ClassSets overlap_sets",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> ModuleType:
    """`lb.onnx`, which needs packages of an extra, is imported when it is first used.

    Raises:
        AttributeError: If another name is asked for; it says where a name of an earlier
            version is now.
    """
    if name in _ADAPTERS:
        return importlib.import_module(f"laplacebridge.{name}")
    now = f"; it is `lb.{_MOVED[name]}.{name}` now" if name in _MOVED else ""
    raise AttributeError(f"module 'laplacebridge' has no attribute {name!r}{now}")


def __dir__() -> list[str]:
    adapters = [name for name, needed in _ADAPTERS.items() if find_spec(needed)]
    return sorted([*__all__, *adapters, "__version__"])
