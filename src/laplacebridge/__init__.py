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
from types import ModuleType

from laplacebridge import bridges as bridges
from laplacebridge import laplace as laplace
from laplacebridge import links as links
from laplacebridge import metrics as metrics
from laplacebridge import multi_label as multi_label
from laplacebridge import report as report
from laplacebridge import scores as scores
from laplacebridge import selective as selective
from laplacebridge import sets as sets
from laplacebridge import sources as sources
from laplacebridge import temperature as temperature
from laplacebridge import testing as testing
from laplacebridge._checks import check as check
from laplacebridge._export import export as export
from laplacebridge._fit import fit as fit
from laplacebridge._partial import FitSums as FitSums
from laplacebridge._partial import from_sums as from_sums
from laplacebridge._partial import partial as partial
from laplacebridge._scoring import score_file as score_file
from laplacebridge.beta import Beta as Beta
from laplacebridge.bridges import delta_bridge as delta_bridge
from laplacebridge.bridges import kl_bridge as kl_bridge
from laplacebridge.bridges import laplace_bridge as laplace_bridge
from laplacebridge.bridges import laplace_bridge_norm as laplace_bridge_norm
from laplacebridge.bridges import one_vs_rest_bridge as one_vs_rest_bridge
from laplacebridge.bridges import predict as predict
from laplacebridge.bridges import race_bridge as race_bridge
from laplacebridge.checkpoint import load as load
from laplacebridge.checkpoint import save as save
from laplacebridge.classifier import Classifier as Classifier
from laplacebridge.covariance import CenteredDiagonal as CenteredDiagonal
from laplacebridge.covariance import Covariance as Covariance
from laplacebridge.covariance import Dense as Dense
from laplacebridge.covariance import Diagonal as Diagonal
from laplacebridge.covariance import LowRank as LowRank
from laplacebridge.covariance import SharedBasis as SharedBasis
from laplacebridge.dirichlet import Dirichlet as Dirichlet
from laplacebridge.errors import CheckpointError as CheckpointError
from laplacebridge.errors import HeadNotFoundError as HeadNotFoundError
from laplacebridge.errors import InputError as InputError
from laplacebridge.errors import InputTypeError as InputTypeError
from laplacebridge.errors import LaplaceBridgeError as LaplaceBridgeError
from laplacebridge.errors import ShapeError as ShapeError
from laplacebridge.gaussian import LogitGaussian as LogitGaussian
from laplacebridge.laplace.interrupted import FitInterrupted as FitInterrupted
from laplacebridge.laplace.interrupted import LoaderError as LoaderError
from laplacebridge.prediction import Prediction as Prediction
from laplacebridge.sets import overlap_sets as overlap_sets

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    """`lb.onnx`, which needs packages of an extra, is imported when it is first used.

    Raises:
        AttributeError: If another name is asked for.
    """
    if name == "onnx":
        return importlib.import_module("laplacebridge.onnx")
    raise AttributeError(f"module 'laplacebridge' has no attribute {name!r}")
