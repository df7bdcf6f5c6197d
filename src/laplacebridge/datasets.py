"""The demonstration's data and network: scikit-learn's handwritten digits, some of
which the network never sees.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from laplacebridge.errors import LaplaceBridgeError

KNOWN = (0, 1, 2, 3, 4, 5, 6)
UNKNOWN = (7, 8, 9)
SIDE = 8
NUM_TRAIN, NUM_VALIDATION = 200, 250
WIDTH, EPOCHS, BATCH_SIZE, LEARNING_RATE = 64, 100, 32, 3e-3


@dataclass(frozen=True, eq=False)
class Digits:
    """Images in [0, 1] of shape (N, 1, 8, 8), with labels: the known digits in three
    parts, and the unknown ones.
    """

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    unknown: tuple[Tensor, Tensor]


def digits(seed: int) -> Digits:
    """Reads and splits the digits. There is no download: they come with scikit-learn.

    Args:
        seed: Of the split.

    Raises:
        LaplaceBridgeError: If scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise LaplaceBridgeError(
            "The demo needs scikit-learn for its data, which is not installed. Install it with "
            "`pip install 'laplacebridge[report]'`."
        ) from error
    pixels, classes = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, SIDE, SIDE)
    labels = torch.tensor(classes)
    order = torch.randperm(len(labels), generator=Generator().manual_seed(seed))
    images, labels = images[order], labels[order]
    known = labels < len(KNOWN)
    parts = zip(
        *(
            tensor[known].tensor_split([NUM_TRAIN, NUM_TRAIN + NUM_VALIDATION])
            for tensor in (images, labels)
        )
    )
    train, validation, test = parts
    return Digits(train, validation, test, (images[~known], labels[~known]))


def loader(part: tuple[Tensor, Tensor]) -> DataLoader[tuple[Tensor, ...]]:
    """Batches in order.

    Args:
        part: Images and labels.
    """
    return DataLoader(TensorDataset(*part), batch_size=256)


def trained_network(train: tuple[Tensor, Tensor], *, seed: int) -> nn.Module:
    """A small network, trained in a few seconds, until it is surer than it should be.

    Args:
        train: Images and labels.
        seed: Of its weights and the order of the batches.
    """
    images, labels = train
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(SIDE * SIDE, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, len(KNOWN)),
        )
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    generator = Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(images), generator=generator), BATCH_SIZE):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval()
