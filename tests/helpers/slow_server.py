"""A server whose model takes the time, or fails, as its inputs say: run as a script."""

import gc
import sys
import time

import numpy as np

from laplacebridge.errors import InputError
from laplacebridge.serve import Served, Settings, TensorSpec, run


class Slow(Served):
    """Sleeps for the largest of its inputs in seconds; 77 is a bad input, 88 a fault."""

    platform = "test"
    inputs = (TensorSpec("seconds", "FP32", (-1, 1)),)
    outputs = (
        TensorSpec("slept", "FP32", (-1,)),
        TensorSpec("together", "INT64", (-1,)),
        TensorSpec("frozen", "INT64", (-1,)),
        TensorSpec("batches", "INT64", (-1,)),
    )
    default_outputs = ("slept", "together", "frozen", "batches")

    def __init__(self):
        self.batches = 0

    def answer(self, inputs, wanted):
        seconds = inputs["seconds"][:, 0]
        if (seconds == 77).any():
            raise InputError("77 is more than this network can take.")
        if (seconds == 88).any():
            raise ZeroDivisionError("secret 88")
        self.batches += 1
        time.sleep(float(seconds.max()))
        return {
            "slept": seconds,
            "together": np.full(len(seconds), len(seconds)),
            "frozen": np.full(len(seconds), gc.get_freeze_count()),
            "batches": np.full(len(seconds), self.batches),
        }


if __name__ == "__main__":
    options = {
        name: type(getattr(Settings(), name))(value)
        for name, value in (argument.split("=") for argument in sys.argv[1:])
    }
    run({("slow", "1"): Slow()}, Settings(port=0, **options))
