"""Compiles a classifier of several labels at once into a file, and prints how far its
answers are from those of the classifier, as JSON.

python compile_labels.py FILE

A script of its own, as `compile_file.py` is.
"""

import json
import sys

import torch
from torch import nn

import laplacebridge as lb

OUTPUTS = ("probabilities", "interval", "applies", "total", "epistemic", "aleatoric", "ood_score")


def compiled(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    inputs = torch.randn(600, 6)
    labels = torch.bernoulli(model(inputs).detach().sigmoid())
    parts = [(inputs[:300], labels[:300])], [(inputs[300:], labels[300:])]
    classifier = lb.fit(
        model, parts[0], val_loader=parts[1], multi_label=True, progress=False
    )  # fmt: skip
    lb.export(classifier, path, inputs[:1], outputs=OUTPUTS)
    return classifier


if __name__ == "__main__":
    classifier = compiled(sys.argv[1])
    program = torch._inductor.aoti_load_package(sys.argv[1])
    inputs = 3 * torch.randn(70, 6)
    expected = classifier(inputs).numpy()
    expected["probabilities"] = expected.pop("mean")
    answers = program(inputs)
    found = {
        name.removeprefix("lb_"): float(
            (value.double() - torch.as_tensor(expected[name.removeprefix("lb_")]).double())
            .abs()
            .max()
        )
        for name, value in answers.items()
        if name != "logits"
    }
    inputs[3, 0] = torch.nan
    missing = program(inputs)["lb_probabilities"].isnan().all(-1)
    found["rows without an answer"] = missing.nonzero().flatten().tolist()
    sys.stdout.write(json.dumps(found) + "\n")
