"""Exports classifiers with `torch.export` and prints how far their answers are from
those of the classifiers themselves, as JSON.

python export_classifier.py CURVATURE:BRIDGE:CLASSES:strict|traced …

A script of its own: the checks of types that tests switch on at import are not code
that torch can follow.
"""

import json
import sys
from pathlib import Path

import torch
from torch.export import Dim, export
from torch.utils._pytree import tree_leaves

import laplacebridge as lb

sys.path.insert(0, str(Path(__file__).with_name("helpers")))
import onnx_cases


def difference(curvature, bridge, classes, mode):
    # one feature for full covariances of many classes, which have a number for every pair
    features = 1 if curvature == "full" and classes > 10 else onnx_cases.NUM_FEATURES
    classes = min(classes, 300) if curvature == "full" else classes
    classifier = onnx_cases.classifier_of(curvature, bridge, classes, features=features)
    program = export(
        classifier,
        (torch.randn(5, features),),
        dynamic_shapes={"inputs": ({0: Dim("batch")},)},
        strict=mode == "strict",
    ).module()
    largest = 0.0
    for rows in (1, 7, 64):
        inputs = torch.randn(rows, features, generator=torch.Generator().manual_seed(rows))
        found, expected = program(inputs), classifier(inputs)
        assert isinstance(found, lb.Prediction)
        assert len(found) == rows
        for one, other in zip(tree_leaves(found), tree_leaves(expected)):
            largest = max(largest, float((one - other).abs().max()))
    return largest


if __name__ == "__main__":
    found = {}
    for case in sys.argv[1:]:
        curvature, bridge, classes, mode = case.split(":")
        found[case] = difference(curvature, bridge, int(classes), mode)
    print(json.dumps(found))
