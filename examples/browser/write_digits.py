"""Writes what the page beside it shows:
`python examples/browser/write_digits.py FOLDER`.

A network that knows the digits 0 to 6 is trained, fitted, given a rule and exported as
FOLDER/model.onnx; FOLDER/images.json has images of all ten digits, and index.html is
copied beside them. The page needs the files of onnxruntime-web too, in FOLDER/ort:

    npm install --no-save onnxruntime-web
    cp -r node_modules/onnxruntime-web/dist FOLDER/ort
    python -m http.server --bind 127.0.0.1 -d FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

import torch

import laplacebridge as lb
from laplacebridge import datasets

SHOWN = 6  # of each digit


def main(folder: Path) -> None:
    """Trains, fits, calibrates and writes."""
    folder.mkdir(parents=True, exist_ok=True)
    data = datasets.digits(seed=0)
    network = datasets.trained_network(data.train, seed=0)
    images, labels = data.validation
    half = len(images) // 2
    classifier = lb.fit(
        network,
        datasets.loader(data.train),
        val_loader=datasets.loader((images[:half], labels[:half])),
        bridge=lb.bridges.one_vs_rest_bridge,
        progress=False,
    )
    with torch.no_grad():
        prediction = classifier(images[half:])
    rule = lb.selective.calibrate(
        lb.scores.msp, prediction, labels[half:], risk=0.1, unusual=prediction.ood_quantile > 0.95
    )
    classifier = classifier.with_rule(
        rule,
        unusual_above=0.95,
        class_names=[str(digit) for digit in range(classifier.num_classes)],
        preprocessing="8 x 8 pixels from 0 to 1, ink is 1",
    )
    lb.export(classifier, folder / "model.onnx", images[:2])
    everything = [
        torch.cat(parts) for parts in zip((data.test[0], data.test[1]), data.unknown, strict=True)
    ]
    shown = [
        {"digit": digit, "pixels": image.flatten().tolist()}
        for digit in range(10)
        for image in everything[0][everything[1] == digit][:SHOWN]
    ]
    (folder / "images.json").write_text(json.dumps(shown), encoding="utf-8")
    shutil.copy(Path(__file__).with_name("index.html"), folder / "index.html")
    print(f"wrote {folder / 'model.onnx'}, images.json and index.html")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits-page"))
