"""A published network, ResNet-20 for CIFAR-10, that says how sure it is: `python
examples/pretrained_vision.py`.

Images and weights are read by the reproduction of the paper: `pip install .
./reproduction` in the clone.
"""

import argparse
import sys

import matplotlib.pyplot as plt
import torch
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb
from laplacebridge_reproduction.data import DataMissingError, find
from laplacebridge_reproduction.models import pretrained

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--data", help="folder of images and weights; by default LAPLACEBRIDGE_DATA, or the cache"
)
parser.add_argument(
    "--no-download", action="store_true", help="do not fetch what is missing, about 170 MB"
)
parser.add_argument("--output", default="pretrained_vision.png", help="where to write the plot")
arguments = parser.parse_args()

source = {"folder": arguments.data, "download": not arguments.no_download}
try:
    model = pretrained("cifar-10-resnet20", **source)
    train, test = (find("cifar-10", split, **source) for split in ("train", "test"))
except DataMissingError as error:
    sys.exit(str(error))


def loader(part):
    return DataLoader(TensorDataset(part.scaled, part.labels), batch_size=250)


# A part of the training images does for a try; the width is chosen on images that the
# network was not trained on.
validation, judged = test[:1000], test[1000:3000]
classifier = lb.fit(model, loader(train[:1000]), val_loader=loader(validation), progress=False)
with torch.no_grad():
    network = torch.cat([model(images) for images, _ in loader(judged)]).softmax(-1)
    bridge = classifier.predict_features(
        torch.cat([classifier.features(images) for images, _ in loader(judged)])
    )
sets = lb.sets.overlap_sets(bridge, threshold=0.05)

print(f"{len(judged)} images of {test.name}       network   bridge")
measures = {
    "accuracy": lb.metrics.accuracy,
    "log loss": lb.metrics.nll,
    "calibration error": lb.metrics.ece,
}
for title, metric in measures.items():
    print(f"{title:32} {metric(network, judged.labels):9.3f} {metric(bridge, judged.labels):8.3f}")
held, size = lb.metrics.coverage(sets, judged.labels), lb.metrics.mean_set_size(sets)
print(
    f"\nclasses that remain (Algorithm 1): {size:.2f} on average, {held:.1%} of the sets hold the"
    " label"
)

figure, axes = plt.subplots(2, 6, figsize=(15, 4.8), layout="constrained")
print("\nthe images of which least is known:")
for column, row in enumerate(lb.scores.mutual_information(bridge).topk(6).indices.tolist()):
    label, best = test.class_names[judged.labels[row]], bridge.mean[row].topk(4).indices
    print(f"  {label:12} {', '.join(sets[row].to_names(test.class_names)[0])}")
    picture, bars = axes[:, column]
    picture.imshow(judged.inputs[row].movedim(0, -1).numpy())
    picture.set(title=label, xticks=[], yticks=[])
    bounds = (bound[0, best].tolist() for bound in bridge[row].interval(0.95))
    bars.hlines(range(4), *bounds, linewidth=6, alpha=0.4)
    bars.plot(bridge.mean[row, best].tolist(), range(4), "o", label="bridge, 95 %")
    bars.plot(network[row, best].tolist(), range(4), "kx", label="network")
    bars.set(
        yticks=range(4),
        yticklabels=[test.class_names[k] for k in best],
        xlim=(-0.02, 1.02),
        ylim=(3.5, -0.5),
    )
figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
figure.savefig(arguments.output, dpi=110)
print(f"\nwrote {arguments.output}")
