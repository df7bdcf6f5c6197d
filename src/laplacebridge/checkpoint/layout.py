"""What the file of a saved classifier must hold: the one description that files are
checked against before anything of them is used.

A tensor or an entry that a later version adds is described here, as optional, so that
files without it stay valid. Whoever changes the meaning of what is there raises
`FORMAT_VERSION` and keeps reading the old one.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

FORMAT = "laplacebridge"
# Files of this version are read by all later ones; see docs/promises.md.
FORMAT_VERSION = 3
CHECKSUM = "sha256"  # the entry of the metadata that holds the checksum of all others

TYPES = {torch.float64, torch.float32, torch.bfloat16, torch.float16}


class Part(NamedTuple):
    """A tensor of a file.

    Attributes:
        shape: Its dimensions by name: K classes or outputs, D features, E features and
            the constant one for a bias, P weights, G groups of a layer.
        like_weight: Whether it has the type of the weights; otherwise that of the
            eigenvalues.
        least: The smallest value allowed, if there is one.
        above: Whether that value itself is not allowed.
        optional: Whether it may be missing.
    """

    shape: str
    like_weight: bool = False
    least: float | None = None
    above: bool = False
    optional: bool = False


_NOT_NEGATIVE = 0.0
SCALARS = {
    "prior_precision": Part("", least=0.0, above=True),
    "temperature": Part("", least=0.0, above=True),
    "variance_scale": Part("", least=0.0, above=True),
    "temperature_variance": Part("", least=_NOT_NEGATIVE),
    "extra_variance": Part("", least=_NOT_NEGATIVE),
    "mean_share": Part("", least=_NOT_NEGATIVE),
}
_HEAD = {
    **SCALARS,
    "weight": Part("K D", like_weight=True),
    "bias": Part("K", like_weight=True, optional=True),
}
_FEATURE_FACTOR = {
    "feature_values": Part("E", least=_NOT_NEGATIVE),
    "feature_basis": Part("E E", like_weight=True),
}
_KRON = {
    **_HEAD,
    **_FEATURE_FACTOR,
    "class_values": Part("K", least=_NOT_NEGATIVE),
    "class_basis": Part("K K", like_weight=True),
}
LAYOUTS: dict[str, dict[str, Part]] = {
    "DiagPosterior": {**_HEAD, "curvature": Part("K E", least=_NOT_NEGATIVE)},
    "KronPosterior": _KRON,
    "MatrixNormalPosterior": _KRON,
    "DiagKronPosterior": {
        **_HEAD,
        **_FEATURE_FACTOR,
        "class_values": Part("K", least=_NOT_NEGATIVE),
    },
    "FullPosterior": {
        **_HEAD,
        "values": Part("P", least=_NOT_NEGATIVE),
        "vectors": Part("K E P", like_weight=True),
    },
}
LAYOUTS["LabelBlocksPosterior"] = {
    **_HEAD,
    "values": Part("K E", least=_NOT_NEGATIVE),
    "vectors": Part("K E E", like_weight=True),
}
OF_INDEPENDENT = {"DiagPosterior", "DiagKronPosterior", "LabelBlocksPosterior"}
SHIFT_LABELS = "shift_labels"  # there if labels are of the next token
# There if the network's logits are those of its head times a number, or stand in what it
# returns under a name.
LOGIT_SCALE, OUTPUT = "logit_scale", "output"
# There if logits are each a label's own, and how they are answered: with the bridge of
# labels, or as the entry `bridge` says.
MULTI_LABEL, OF_LABELS, OTHERWISE = "multi_label", "logistic", "other"
# the score of unusual inputs, which may be left out: of G groups of examples and N held-out
# ones. In files of before one metric served both distances, of L numbers of the polar form
UNUSUAL, UNUSUAL_HEAD = "unusual.", "unusual_head"
_SCORE = {
    "usual": Part("moments parts"),
    "reference": Part("N", least=_NOT_NEGATIVE),
    "held_back": Part("parts", optional=True),
}
OF_UNUSUAL = {
    **_SCORE,
    "center": Part("D"),
    "scale": Part("D", least=0.0, above=True),
    "basis": Part("D directions"),
    "variances": Part("directions", least=0.0, above=True),
    "offset": Part("directions"),
    "means": Part("G directions"),
    "rest": Part("sums", least=_NOT_NEGATIVE),
    "expected": Part("moments"),
}
OF_WHITENED = {
    **_SCORE,
    "distance.center": Part("D"),
    "distance.whitening": Part("D D"),
    "distance.means": Part("G D"),
    "distance.expected": Part("moments"),
    "polar_distance.center": Part("L"),
    "polar_distance.whitening": Part("L L"),
    "polar_distance.means": Part("G L"),
    "polar_distance.expected": Part("moments"),
}
# posteriors over layers, and the blocks that they may be made of
NETWORK_BLOCKS = {
    "NetworkPosterior": ("DiagPosterior", "KronPosterior", "MatrixNormalPosterior"),
    "FullNetworkPosterior": ("FullPosterior",),
}
ENTRIES = {"format", "version", CHECKSUM, "structure", "bridge", "num_classes", "num_features"}
ENTRIES |= {"head", "fingerprint", "network_fingerprint", "labels", "prior_method", "width"}
OF_LAYERS = {"layers", "block"}
# what is done with predictions, which may be left out
POLICY = "policy"


def apart(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Tensors of the posterior, and of the score of unusual inputs without its prefix.

    Args:
        tensors: All tensors of a file.
    """
    posterior = {name: part for name, part in tensors.items() if not name.startswith(UNUSUAL)}
    score = {
        name.removeprefix(UNUSUAL): part
        for name, part in tensors.items()
        if name.startswith(UNUSUAL)
    }
    return posterior, score
