"""Compiles bridges without graph breaks and prints how far the answers are from the
uncompiled ones, as JSON.

python compile_bridges.py BACKEND NAME ...

A script of its own: the checks of types that tests switch on at import are not code
that `torch.compile` can follow.
"""

import json
import sys

import torch

import laplacebridge as lb

FUNCTIONS = {
    "laplace_bridge": lambda gaussian: lb.laplace_bridge(gaussian).log_concentration,
    "laplace_bridge_norm": lambda gaussian: (
        lb.bridges.laplace_bridge_norm(gaussian).log_concentration
    ),
    "one_vs_rest_mean": lb.bridges.one_vs_rest_mean,
    "one_vs_rest_bridge": lambda gaussian: (
        lb.bridges.one_vs_rest_bridge(gaussian).log_concentration
    ),
    "race_bridge": lambda gaussian: lb.race_bridge(gaussian).log_concentration,
}

# More classes than the race takes all axes of are probed, or averaged over their own factors.
MANY_CLASSES = {"race_bridge": ("low rank, 30 classes", "matrix, 30 classes")}


def inputs(structure):
    generator = torch.Generator().manual_seed(0)
    mean, spread = torch.randn(2, 6, 10, generator=generator)
    if structure == "diagonal":
        return lb.Diagonal, (2 * mean, spread.exp())
    if structure == "low rank, 30 classes":
        mean, *factor = torch.randn(4, 6, 30, generator=generator)
        return lb.LowRank, (2 * mean, torch.stack(factor, -1))
    if structure == "matrix, 30 classes":
        mean, *factor = torch.randn(4, 6, 30, generator=generator)
        factor = torch.stack(factor, -1)
        return lb.Dense, (2 * mean, factor @ factor.mT + 0.1 * torch.eye(30))
    basis, _ = torch.linalg.qr(torch.randn(10, 10, generator=generator))
    return lb.SharedBasis, (2 * mean, spread.exp(), basis)


def difference(name, structure, backend):
    kind, (mean, *tensors) = inputs(structure)

    def answer(mean, *tensors):
        return FUNCTIONS[name](lb.LogitGaussian(mean, kind(*tensors)))

    torch.compiler.reset()  # torch compiles one function only so many times
    with torch.no_grad():
        compiled = torch.compile(answer, fullgraph=True, backend=backend)
        return (compiled(mean, *tensors) - answer(mean, *tensors)).abs().max().item()


def main():
    torch.set_num_threads(1)
    backend, *names = sys.argv[1:]
    found = {
        f"{name}, {structure}": difference(name, structure, backend)
        for name in names
        for structure in ("diagonal", "shared basis", *MANY_CLASSES.get(name, ()))
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
