"""The classifier of a network with several labels at once."""

from typing import Any, NoReturn

from jaxtyping import Float
from torch import Tensor

from laplacebridge.classifier import Classifier
from laplacebridge.covariance import Diagonal
from laplacebridge.errors import InputError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.batch import Batch
from laplacebridge.multi_label.prediction import MultiLabelPrediction
from laplacebridge.selective.policy import Policy


class MultiLabelClassifier(Classifier):
    """A trained network with a sigmoid for each of K labels that says how sure it is of
    each. Made by ``fit(..., multi_label=True)``.

    Inside it is K classifiers of two classes on the same features: everything that is
    chosen, such as prior, temperature and width, is chosen for all labels together.
    Rules and sets are of one class out of K: `with_rule` takes names of labels, how
    inputs are made, and ``unusual_above``.

    Args:
        parts: As of `Classifier`.
        policy: What it carries.
        options: As of `Classifier`.

    Raises:
        InputError: If it carries a rule or sets.

    Example:
        >>> import torch
        >>> from laplacebridge import fit
        >>> labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
        >>> batches = [(torch.eye(4)[:2], labels)]
        >>> model = torch.nn.Linear(4, 3)
        >>> classifier = fit(model, batches, multi_label=True, prior_precision=1.0, progress=False)
        >>> classifier(torch.eye(4)).mean.shape
        torch.Size([4, 3])
    """

    def __init__(self, *parts: Any, policy: Policy | None = None, **options: Any) -> None:  # noqa: ANN401
        for name in ("rule", "sets", "max_set_size"):
            if policy is not None and getattr(policy, name) is not None:
                raise InputError(
                    f"`with_rule({name})` is for one class out of K; this classifier has several"
                    " labels at once. Keep what `lb.multi_label.calibrate` gives beside it, and"
                    " call that with its predictions."
                )
        super().__init__(*parts, policy=policy, **options)

    def forward(self, *inputs: Any, **keywords: Any) -> MultiLabelPrediction:  # type: ignore[override]  # noqa: ANN401
        """A prediction for every label of every row of the inputs."""
        return MultiLabelPrediction(super().forward(*inputs, **keywords), self.num_classes)

    def _row_shape(self, batch: Batch, rows: Tensor) -> None:
        """Rows are labels of examples here."""

    def predict_features(  # type: ignore[override]
        self,
        features: Any,  # noqa: ANN401
        logits: Tensor | None = None,
    ) -> MultiLabelPrediction:
        """Predictions from what `features` gives, without running the network again.

        Args:
            features: One row for every example.
            logits: Those of all labels that the network gave for them, shape (B, K); by
                default those of the head.
        """
        rows = super().predict_features(features, logits)
        return MultiLabelPrediction(rows, self.num_classes)

    def probabilities(self, *inputs: Any, **keywords: Any) -> Float[Tensor, "B K"]:  # noqa: ANN401
        """How probable it is that each label applies, without the rest of a prediction."""
        return super().probabilities(*inputs, **keywords)[:, 1].view(-1, self.num_classes)

    def decide(self, *inputs: Any, **keywords: Any) -> NoReturn:  # noqa: ANN401
        """Not for several labels at once.

        Raises:
            InputError: Always, with what to use instead.
        """
        raise InputError(
            "`decide` answers, names a set, or defers for one class out of K; this classifier has"
            " several labels at once. `lb.multi_label.calibrate` says which labels may be believed."
        )

    def logits(self, *inputs: Any, **keywords: Any) -> LogitGaussian:  # noqa: ANN401
        """The Gaussian over the logits of all labels, which are independent."""
        rows = super().logits(*inputs, **keywords)
        mean = rows.mean[:, 1] - rows.mean[:, 0]
        variance = rows.covariance.diagonal().sum(-1)
        shape = (-1, self.num_classes)
        return LogitGaussian(mean.view(shape), Diagonal(variance.view(shape)))
