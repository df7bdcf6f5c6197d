"""Curvatures as the matrices they stand for."""

import torch

from laplacebridge.laplace import Diag, Full, Kron

FEATURES, CLASSES = 3, 4


def dense(curvature):
    """The matrix that a curvature stands for."""
    if isinstance(curvature, Diag):
        return curvature.diagonal.flatten().diag()
    if isinstance(curvature, Full):
        return curvature.matrix
    classes = (
        curvature.class_factor if isinstance(curvature, Kron) else curvature.class_factor.diag()
    )
    return torch.kron(classes, curvature.feature_factor) / curvature.num_examples
