"""What `fit` cannot use, in words, before any batch is read."""

from collections.abc import Sequence

from torch import nn

from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.laplace.curvature import Curvature
from laplacebridge.laplace.posterior import Posterior


def instead_of(model: object) -> str:
    """What to do with a model that is no network."""
    if hasattr(model, "fit") and hasattr(model, "predict"):  # as scikit-learn has it
        return (
            "A classifier of scikit-learn is wrapped:"
            " `laplacebridge.sklearn.LaplaceBridgeClassifier(classifier).fit(X, y)`."
        )
    return (
        "A linear model of another library is fitted as an `nn.Linear` with its weights, on"
        " batches of features: see `examples/features_and_head.py`."
    )


def require_kind_of_labels(
    model: nn.Module, multi_label: bool | None, layers: str | Sequence[str] | None
) -> None:
    """Refuses to guess whether one class is right or several labels may apply, where
    the model says that it was trained for several.

    Args:
        model: The network.
        multi_label: What was given.
        layers: What was given.

    Raises:
        InputError: If it must be said, or is not supported.
    """
    if multi_label and layers is not None:
        raise InputError(
            "`fit(multi_label=True)` covers the head alone; got `layers` as well. Leave one out."
        )
    problem = getattr(getattr(model, "config", None), "problem_type", None)
    if multi_label is None and problem == "multi_label_classification":
        raise InputError(
            f"{type(model).__name__} was trained with `problem_type={problem!r}`: any number of"
            " labels may apply. Give `fit(..., multi_label=True)` for a probability of each label;"
            " `multi_label=False` reads the same logits as one class out of all, which is seldom"
            " meant."
        )


def require_kinds(curvature: object, posterior: object) -> None:
    """Refuses what is no class of curvatures or posteriors, such as its name.

    Raises:
        InputTypeError: If one is not.
    """
    for name, given, base, example in (
        ("curvature", curvature, Curvature, "lb.laplace.Kron"),
        ("posterior", posterior, Posterior, "lb.laplace.MatrixNormalPosterior"),
    ):
        if given is not None and not (isinstance(given, type) and issubclass(given, base)):
            raise InputTypeError(
                f"`fit` needs a class such as `{example}` as `{name}`; got {given!r}. Names are"
                " for the command line."
            )
