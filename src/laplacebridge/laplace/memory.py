"""What a fit may take of the machine's memory."""

import os

from laplacebridge.errors import InputError
from laplacebridge.laplace.curvature import Curvature, Diag, DiagKron
from laplacebridge.laplace.feature_statistics import FeatureStatistics

# Beyond this many classes nothing is kept for each of them without being asked for.
MOST_CLASSES = 4000
# Bytes of sums over features that are made without being asked for: 8,000 features.
LARGEST_STATISTICS = 2**29


def require_memory(kind: type[Curvature], num_features: int, num_classes: int) -> None:
    """Refuses a curvature that cannot fit into memory, before anything is allocated.

    Args:
        kind: The structure.
        num_features: D, with the constant one for a bias.
        num_classes: K.

    Raises:
        InputError: If it needs more than half of the machine's memory.
    """
    needed = kind.num_bytes(num_features, num_classes)
    memory = machine_memory()
    if needed > memory / 2:
        raise InputError(
            f"`{kind.__name__}` needs {needed / 1e9:.1f} GB for {num_features} features and"
            f" {num_classes} classes, more than half of the {memory / 1e9:.0f} GB here. `DiagKron`"
            f" needs {DiagKron.num_bytes(num_features, num_classes) / 1e9:.1f} GB, `Diag`"
            f" {Diag.num_bytes(num_features, num_classes) / 1e9:.1f} GB."
        )


def are_affordable(num_features: int, num_classes: int) -> bool:
    """Whether sums over features are made without being asked for: they hold the class
    means.

    Args:
        num_features: D.
        num_classes: K.
    """
    needed = FeatureStatistics.num_bytes(num_features, num_classes)
    return num_classes <= MOST_CLASSES and needed <= LARGEST_STATISTICS


def machine_memory() -> int:
    """How many bytes of memory this machine has."""
    return (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if hasattr(os, "sysconf")
        else 16 * 2**30
    )
