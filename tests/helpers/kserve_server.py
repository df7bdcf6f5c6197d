"""A model behind KServe's server, on the ports that are given: run as a script, inside
a network namespace, because that server listens on all interfaces.
"""

import sys

import torch
from small_network import FEATURES, examples, trained
from torch import nn

import laplacebridge as lb
from laplacebridge.serve import ServedClassifier, Settings, TensorSpec


def classifier():
    """The same in every process."""
    network = trained(
        lambda: nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 3)),
        *examples(400),
        steps=150,
    )
    held_out = [examples(200, seed=1)]
    return lb.fit(network, [examples(400)], val_loader=held_out, progress=False)


if __name__ == "__main__":
    import kserve  # it reads the command line when it is imported

    from laplacebridge.kserve import Model

    http_port, grpc_port = map(int, sys.argv[1:3])
    torch.set_num_threads(1)
    served = ServedClassifier(
        classifier(),
        [TensorSpec("features", "FP32", (-1, FEATURES))],
        class_names=("cat", "dog", "owl"),
    )
    server = kserve.ModelServer(http_port=http_port, grpc_port=grpc_port, workers=1)
    server.start([Model("digits", served, settings=Settings(max_batch=32))])
