"""Compiles a classifier with a rule into a file, and prints how far its answers are
from those of the classifier, as JSON.

python compile_file.py FILE

A script of its own: the checks of types that tests switch on at import are not code
that torch can follow.
"""

import json
import sys
from pathlib import Path

import torch

import laplacebridge as lb

sys.path.insert(0, str(Path(__file__).with_name("helpers")))
import onnx_cases

OUTPUTS = ("probabilities", "top_interval", "set", "decision")


def compiled(path):
    classifier = onnx_cases.classifier_of("diag", "laplace")
    inputs = torch.randn(200, onnx_cases.NUM_FEATURES, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        prediction = classifier(inputs)
    full = classifier.with_rule(
        lb.selective.calibrate(lb.scores.msp, prediction, answer_share=0.5),
        sets=lb.sets.calibrate(lb.sets.Mass(), prediction, prediction.label, coverage=0.9),
        max_set_size=9,
    )
    names = lb.export(full, path, inputs[:1], outputs=OUTPUTS)
    return full, names


if __name__ == "__main__":
    full, names = compiled(sys.argv[1])
    program = torch._inductor.aoti_load_package(sys.argv[1])
    found = {"names": names, "bridge": program.get_metadata()["laplacebridge.bridge"]}
    for rows in (1, 7, 64):
        inputs = torch.randn(rows, onnx_cases.NUM_FEATURES)
        with torch.no_grad():
            answers, prediction = program(inputs), full(inputs)
        top = prediction.label.unsqueeze(-1)
        lower = prediction.interval()[0].gather(-1, top).squeeze(-1)
        expected = {"probabilities": prediction.mean, "top_lower": lower}
        for name, value in expected.items():
            difference = float((answers[f"lb_{name}"] - value).abs().max())
            found[name] = max(found.get(name, 0.0), difference)
        decided = full.policy(prediction)
        members = [row.nonzero().flatten().tolist() for row in answers["lb_set"]]
        found[f"same {rows}"] = answers[
            "lb_decision"
        ].tolist() == decided.action.tolist() and members == [
            sorted(classes) for classes in decided.sets.to_lists()
        ]
    inputs[5, 0] = torch.nan
    with torch.no_grad():
        answers = program(inputs)
    found["deferred"] = int(answers["lb_decision"][5])
    found["nan rows"] = answers["lb_probabilities"].isnan().any(-1).nonzero().flatten().tolist()
    found["actions"] = sorted(set(answers["lb_decision"].tolist()))
    print(json.dumps(found))
