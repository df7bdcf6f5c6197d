"""What a fit raises when it ends early: it holds the sums so far."""

from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.laplace.feature_statistics import FeatureStatistics
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.sums import Sums


class FitInterrupted(KeyboardInterrupt):
    """A fit was stopped by hand. It holds the sums so far; give it to `fit` as
    ``resume`` to go on.

    Example:
        >>> import torch
        >>> from laplacebridge import FitInterrupted, fit
        >>> def stopped_after_one():
        ...     yield torch.eye(4)
        ...     raise KeyboardInterrupt
        >>> model = torch.nn.Linear(4, 3)
        >>> try:
        ...     fit(model, stopped_after_one(), progress=False)
        ... except FitInterrupted as stopped:
        ...     interrupted = stopped
        >>> interrupted.curvature.num_examples
        tensor(4., dtype=torch.float64)
        >>> rest = [2 * torch.eye(4)]
        >>> whole = fit(model, rest, resume=interrupted, prior_precision=1.0, progress=False)
    """

    def __init__(
        self,
        curvature: Sums | None,
        labels: LabelStatistics | None,
        features: FeatureStatistics | None = None,
        num_features: int | None = None,
    ) -> None:
        super().__init__(
            "the fit was interrupted; give this to `fit` as `resume` to go on with the other"
            " batches"
        )
        self.curvature = curvature
        self.labels = labels
        self.features = features
        self.num_features = num_features  # of a head that does not say it itself


class LoaderError(LaplaceBridgeError, RuntimeError):
    """The loader failed in the middle of a fit. It holds the sums so far; give it to
    `fit` as ``resume`` to go on with the other batches. Its cause is the loader's
    error.
    """

    def __init__(
        self,
        error: Exception,
        num_batches: int,
        curvature: Sums,
        labels: LabelStatistics | None,
        features: FeatureStatistics | None = None,
    ) -> None:
        super().__init__(
            f"The loader failed after {num_batches} batches: {type(error).__name__}: {error}. What"
            " was added up is kept: catch this error and give it to `fit` as `resume`, with the"
            " batches that are left."
        )
        self.curvature = curvature
        self.labels = labels
        self.features = features
