"""The experiment on ImageNet behind two figures: a network's last layer, its posterior,
and the images to judge.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from laplacebridge import metrics
from laplacebridge.bridges import race_mean
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.posterior import Posterior
from laplacebridge_reproduction.artifact import Result, Run
from laplacebridge_reproduction.data import DataSet, find_imagenet
from laplacebridge_reproduction.data.dataset import scaled
from laplacebridge_reproduction.data.images import CROP, ImageFolder
from laplacebridge_reproduction.evaluate import keeping_confidence, last_layer_posterior
from laplacebridge_reproduction.models.published import PUBLISHED, pretrained

FITTED_IMAGES = 20_000  # of the training set, as the authors have it
PRIOR_IMAGES = 500  # among those fitted, that choose the prior
KEPT_CONFIDENCE = 0.95  # the paper's rule
# Of Tiny-ImageNet: a minute or two. The file's order is mixed.
SHIFTED_IMAGES = 1000
# More images at once fall out of a processor's cache and take several times as long.
IMAGES_AT_ONCE = 4
LOADED_AT_ONCE = 64

GENERATED_CLASSES, GENERATED_FEATURES, GENERATED_EXAMPLES = 20, 10, 100
GENERATED_NOISE, SHIFTED_NOISE = 1.5, 2.25


class Pretrained(NamedTuple):
    """A published network: what it is called, its name here, and its last layer."""

    title: str
    name: str
    head: str


NETWORKS = {
    "small": Pretrained("EfficientNet-Lite0", "imagenet-efficientnet-lite0", "_fc"),
    "paper": Pretrained("DenseNet-121", "imagenet-densenet121", "classifier"),
}
CAUTIONS = {
    "smoke": "The features are generated, so nothing compares with the paper.",
    "small": (
        "Shares do not compare with the paper's: EfficientNet-Lite0 stands in for DenseNet-121, on"
        " images that it was most likely trained on."
    ),
    "paper": "",
}


class Parts(NamedTuple):
    """What an experiment is made of."""

    network: str
    head: nn.Module
    fitted: DataSet
    judged: DataSet


@dataclass(frozen=True, eq=False)
class Experiment:
    """What is judged and by what.

    Attributes:
        network: Its name.
        posterior: Posterior of its last layer, diagonal as the authors' is, under the
            prior of the paper's rule.
        fitted: Features that the posterior was fitted on.
        judged: Features to judge.
        caution: Why numbers do not compare with the paper's; empty if they do.
    """

    network: str
    posterior: Posterior
    fitted: DataSet
    judged: DataSet
    caution: str

    @torch.no_grad()
    def described(self) -> Result:
        """The setting in numbers, ready for JSON."""
        gaussian = self.posterior(self.fitted.inputs[:PRIOR_IMAGES])
        return {
            "network": self.network,
            "caution": self.caution,
            "classes": self.posterior.num_classes,
            "fitted": len(self.fitted),
            "judged": len(self.judged),
            "prior_precision": float(self.posterior.prior_precision),
            "confidence_of_network": metrics.mmc(gaussian.mean.softmax(-1)),
            "confidence_of_race": metrics.mmc(race_mean(gaussian)),
        }


def experiment(run: Run) -> Experiment:
    """The experiment in the size of a profile.

    `smoke` has generated features; `small` features of a published sample, one half to
    fit and one to judge; `paper` the images of ImageNet itself.
    """
    parts = {"smoke": _generated_parts, "small": _sample_parts, "paper": _imagenet_parts}[
        run.profile
    ](run)
    wide = last_layer_posterior(parts.head, parts.fitted, "diagonal", 1.0)
    posterior = keeping_confidence(wide, parts.fitted.inputs[:PRIOR_IMAGES], share=KEPT_CONFIDENCE)
    return Experiment(parts.network, posterior, parts.fitted, parts.judged, CAUTIONS[run.profile])


def _generated_parts(run: Run) -> Parts:
    head = _generated_head(run)
    fitted, judged = (_generated(run, head, GENERATED_NOISE, part) for part in (1, 2))
    return Parts("generated", head, fitted, judged)


def _sample_parts(run: Run) -> Parts:
    features = run.find("imagenet-features")
    return Parts(NETWORKS["small"].title, _network(run).head, features[::2], features[1::2])


def _imagenet_parts(run: Run) -> Parts:
    training, validation = (find_imagenet(split, run.data) for split in ("train", "val"))
    network = _network(run)
    chosen = training.sample(FITTED_IMAGES, Generator().manual_seed(run.seed))
    fitted, judged = (features_of_folder(network, folder, run) for folder in (chosen, validation))
    return Parts(NETWORKS["paper"].title, network.head, fitted, judged)


def shifted(run: Run) -> DataSet | None:
    """Features of images of another kind with the same classes: small ones of
    Tiny-ImageNet, enlarged.

    The paper judges none, so its profile has none.
    """
    if run.profile == "smoke":
        return _generated(run, _generated_head(run), SHIFTED_NOISE, 3)
    if run.profile == "paper":
        return None
    small = run.find("tiny-imagenet")[:SHIFTED_IMAGES]
    batches = (_enlarged(images) for images in torch.split(small.inputs, IMAGES_AT_ONCE))
    features = _features(_network(run), batches, run, total=len(small))
    return DataSet("Tiny-ImageNet, enlarged", features, small.labels, small.class_names)


def _network(run: Run) -> HeadNetwork:
    published = PUBLISHED[NETWORKS[run.profile].name]
    network = pretrained(NETWORKS[run.profile].name, run.data)
    run.used[f"weights/{published.file}"] = published.sha256  # which was compared with the file's
    return HeadNetwork(network, NETWORKS[run.profile].head)


def _enlarged(images: Tensor) -> Float[Tensor, "B 3 224 224"]:
    """Images of any size in the size that the networks take."""
    large = functional.interpolate(
        scaled(images), size=(CROP, CROP), mode="bicubic", align_corners=False
    )
    return large.clamp(0, 1)  # cubic curves leave the range of colours


def features_of_folder(network: HeadNetwork, folder: ImageFolder, run: Run) -> DataSet:
    """What the last layer sees of the images in a folder.

    Args:
        network: Split at its last layer.
        folder: The images, read a few at a time.
    """
    loaded = (images for images, _ in folder.batches(LOADED_AT_ONCE))
    batches = (scaled(few) for images in loaded for few in torch.split(images, IMAGES_AT_ONCE))
    features = _features(network, batches, run, total=len(folder))
    return DataSet(folder.name, features, folder.labels, folder.class_names)


@torch.no_grad()
def _features(
    network: HeadNetwork, batches: Iterable[Tensor], run: Run, *, total: int
) -> Float[Tensor, "N D"]:
    def seen() -> Iterator[Tensor]:
        with tqdm(total=total, desc="features", unit="image", disable=not run.progress) as bar:
            for images in batches:
                yield network(images)
                bar.update(len(images))

    return torch.cat(list(seen()))


def _generated_head(run: Run) -> nn.Linear:
    """The best classifier of Gaussian clouds around random centres."""
    generator = Generator().manual_seed(run.seed)
    centers = torch.randn(GENERATED_CLASSES, GENERATED_FEATURES, generator=generator)
    head = nn.Linear(GENERATED_FEATURES, GENERATED_CLASSES)
    with torch.no_grad():
        head.weight.copy_(centers / GENERATED_NOISE**2)
        head.bias.copy_(-centers.square().sum(-1) / (2 * GENERATED_NOISE**2))
    return head


def _generated(run: Run, head: nn.Linear, noise: float, part: int) -> DataSet:
    """Examples from clouds around the centres of a head."""
    generator = Generator().manual_seed(1000 * run.seed + part)
    labels = torch.randint(GENERATED_CLASSES, (GENERATED_EXAMPLES,), generator=generator)
    centers = head.weight.detach()[labels] * GENERATED_NOISE**2
    features = centers + noise * torch.randn(*centers.shape, generator=generator)
    return DataSet(
        "generated", features, labels, tuple(f"class {place}" for place in range(GENERATED_CLASSES))
    )
