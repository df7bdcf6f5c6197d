"""Compiles classifiers without graph breaks and prints how far their answers are from
the uncompiled ones, as JSON.

python compile_classifier.py BACKEND

A script of its own: the checks of types that tests switch on at import are not code
that `torch.compile` can follow.
"""

import copy
import json
import sys

import torch
from torch import nn

import laplacebridge as lb


def difference(kind, bridge, temperature, backend):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(40, 4, generator=generator)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    fitted = lb.fit(model, [features], curvature=kind, prior_precision=1.0, progress=False)
    plain = fitted.with_bridge(bridge)
    plain.posterior = plain.posterior.with_temperature(temperature)
    compiled = copy.deepcopy(plain)
    torch.compiler.reset()  # torch compiles one function only so many times
    compiled.compile(backend=backend, fullgraph=True)

    def answers(classifier, rows):
        return torch.stack(
            [
                classifier(features[:rows]).dirichlet.log_concentration,
                classifier.probabilities(features[:rows]),
            ]
        )

    with torch.no_grad():
        return max(
            (answers(compiled, rows) - answers(plain, rows)).abs().max().item() for rows in (1, 7)
        )


def main():
    torch.set_num_threads(1)
    (backend,) = sys.argv[1:]
    cases = [
        (kind, bridge, temperature)
        for kind in (lb.laplace.Diag, lb.laplace.Kron)
        for bridge in (lb.laplace_bridge, lb.bridges.one_vs_rest_bridge)
        for temperature in (1.0, 1.5)
    ]
    found = {
        f"{kind.__name__}, {bridge.__name__}, {temperature}": difference(
            kind, bridge, temperature, backend
        )
        for kind, bridge, temperature in cases
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
