"""What ran a benchmark: enough to read its figures, nothing that identifies a machine."""

import platform
from pathlib import Path

import torch

from laplacebridge._provenance import versions


def description() -> dict[str, object]:
    """Processor, number of threads and versions."""
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        **versions(),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
