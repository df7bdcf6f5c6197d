"""Fits and predictions of laplace-torch and of this library on the same data, for
`bench_laplace_torch.py`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from timing import Call
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb

THEIRS, OURS = "laplace-torch", "laplacebridge"
STRUCTURES = {"diag": lb.laplace.Diag, "kron": lb.laplace.Kron}
BRIDGES = {
    lb.bridges.BRIDGES[name].__name__: lb.bridges.BRIDGES[name]
    for name in ("laplace-norm", "one-vs-rest", "race")
}
SAME_NUMBERS = {
    "bridge_norm": lambda g: lb.bridges.laplace_bridge_norm(g).mean,
    "probit": lb.links.probit,
}


@dataclass(frozen=True)
class Case:
    """What is compared at which size.

    Attributes:
        what: "fit"; "predict"; or "refused", a prediction that laplace-torch has no
            memory for.
        structure: "diag" or "kron".
        classes: K.
        batch: Examples in a batch that is fitted, or predicted.
        examples: Examples of the fit, as many as laplace-torch gets through in
            reasonable time.
        least: How many times faster we want to be.
        features: D.
    """

    what: str
    structure: str
    classes: int
    batch: int
    examples: int
    least: float | None = None
    features: int = 512


def network(case: Case) -> nn.Module:
    """A network that is its head, in a form that both libraries take."""
    torch.manual_seed(case.classes)
    return nn.Sequential(nn.Identity(), nn.Linear(case.features, case.classes, bias=False)).eval()


def loader(case: Case) -> DataLoader:
    """Features and labels to fit."""
    generator = Generator().manual_seed(case.examples)
    features = torch.randn(case.examples, case.features, generator=generator)
    labels = torch.randint(case.classes, (case.examples,), generator=generator)
    size = min(case.batch, case.examples) if case.what == "fit" else case.examples
    return DataLoader(TensorDataset(features, labels), batch_size=size)


def queries(case: Case) -> Tensor:
    """Features to predict."""
    return torch.randn(case.batch, case.features, generator=Generator().manual_seed(1))


def fit_ours(model: nn.Module, data: DataLoader, structure: str) -> lb.Classifier:
    """A fit by this library."""
    return lb.fit(model, data, curvature=STRUCTURES[structure], prior_precision=1.0, progress=False)


def fit_theirs(model: nn.Module, data: DataLoader, structure: str, **options: Any) -> Any:  # noqa: ANN401
    """A fit by laplace-torch."""
    from laplace import Laplace

    places = {"subset_of_weights": "last_layer", "hessian_structure": structure}
    fitted = Laplace(model, "classification", prior_precision=1.0, **places, **options)
    with torch.enable_grad():
        fitted.fit(data)
    return fitted


def posterior_of_theirs(case: Case) -> Any:  # noqa: ANN401
    """To predict with. For the diagonal by their faster backend: the default one takes
    too long for many classes.
    """
    from laplace.curvature import BackPackGGN

    options = {"backend": BackPackGGN} if case.structure == "diag" else {}
    return fit_theirs(network(case), loader(case), case.structure, **options)


def posterior_of_ours(case: Case) -> lb.Classifier:
    """To predict with."""
    return fit_ours(network(case), loader(case), case.structure)


def predictions(classifier: lb.Classifier, inputs: Tensor) -> dict[str, Call]:
    """Calls of this library, by bridge."""
    return {
        name: partial(classifier.with_bridge(bridge), inputs) for name, bridge in BRIDGES.items()
    }


def warm_up(library: str) -> None:
    """Loads the code of a library, by a tiny case, so that it is neither timed nor
    weighed.
    """
    for structure in STRUCTURES:
        tiny = Case("predict", structure, 3, 2, 4, features=4)
        if library == THEIRS:
            fitted = fit_theirs(network(tiny), loader(tiny), structure)
            for link in SAME_NUMBERS:
                fitted(queries(tiny), pred_type="glm", link_approx=link)
        for call in predictions(posterior_of_ours(tiny), queries(tiny)).values():
            call()
