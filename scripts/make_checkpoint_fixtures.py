"""Writes the small files of the present format that later versions must read, with the
answers that they must give: one for each kind of posterior.

    python scripts/make_checkpoint_fixtures.py tests/fixtures/checkpoints

To be run once for a format version, when it is released; never again after that.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn

import laplacebridge as lb
from laplacebridge import laplace
from laplacebridge.checkpoint.layout import FORMAT_VERSION

KINDS = {
    "diag": (laplace.Diag, None, None),
    "kron": (laplace.Kron, None, None),
    "matrix-normal": (laplace.Kron, laplace.MatrixNormalPosterior, None),
    "diag-kron": (laplace.DiagKron, None, None),
    "full": (laplace.Full, None, None),
    "layers": (laplace.Kron, None, "*"),
    "layers-full": (laplace.Full, None, "*"),
}


def network() -> nn.Module:
    """A network whose weights are written out, so that no later torch draws others."""
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            steps = torch.arange(parameter.numel(), dtype=torch.float32)
            parameter.copy_(torch.sin(steps * 1.7 + number).view_as(parameter))
    return model


def inputs(count: int) -> torch.Tensor:
    """Points in a plane."""
    steps = torch.arange(count, dtype=torch.float32)
    return torch.stack([torch.sin(steps * 0.9), torch.cos(steps * 2.3)], -1)


def main(folder: Path) -> None:
    """Writes all files."""
    model, answers = network(), {}
    loader = [(inputs(40), model(inputs(40)).argmax(-1))]
    for name, (curvature, posterior, layers) in KINDS.items():
        classifier = lb.fit(
            model, loader, curvature=curvature, posterior=posterior, layers=layers,
            prior_precision=0.5, progress=False,
        )  # fmt: skip
        file = f"version-{FORMAT_VERSION}-{name}.safetensors"
        lb.save(classifier, folder / file)
        answers[file] = classifier(inputs(4)).dirichlet.log_concentration.tolist()
    path = folder / f"version-{FORMAT_VERSION}.json"
    path.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
