"""The demonstration's data and networks: scikit-learn's handwritten digits, some of
which the network never sees, and a table of cells with a column in the wrong unit.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from laplacebridge.errors import LaplaceBridgeError

KNOWN = (0, 1, 2, 3, 4, 5, 6)
UNKNOWN = (7, 8, 9)
SIDE = 8
NUM_TRAIN, NUM_VALIDATION = 200, 250
# Of the table: rows for training and validation, passes, the column whose unit is wrong,
# and how: as if inches, centimetres and tenths of a millimetre were millimetres. Too small
# a number is hard to notice: it is nearer to what is usual than one that is too large.
NUM_CELLS_TRAIN, NUM_CELLS_VALIDATION, CELL_EPOCHS = 150, 200, 60
WRONG_COLUMN, WRONG_UNITS = 2, {"× 25.4": 25.4, "× 10": 10.0, "÷ 10": 0.1}
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
    pixels, classes = _bundled().load_digits(return_X_y=True)
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


def ood_digits(data: Digits, seed: int) -> dict[str, Tensor]:
    """Images that are no digits as the network knows them: noise, and test images with
    black and white exchanged.

    Args:
        data: The digits.
        seed: Of the noise.
    """
    count = len(data.unknown[0])
    noise = torch.rand(count, 1, SIDE, SIDE, generator=Generator().manual_seed(seed))
    return {"noise": noise, "inverted images": 1 - data.test[0][:count]}


@dataclass(frozen=True, eq=False)
class Cells:
    """Rows of 30 standardised numbers about cells, with labels, in three parts; and the
    test rows once more with one column in each wrong unit.
    """

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    wrong_unit: dict[str, Tensor]
    column: str
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...]


def cells(seed: int) -> Cells:
    """Reads and splits the breast cancer data, which come with scikit-learn.

    Args:
        seed: Of the split.

    Raises:
        LaplaceBridgeError: If scikit-learn is not installed.
    """
    bunch = _bundled().load_breast_cancer()
    rows, labels = torch.tensor(bunch.data), torch.tensor(bunch.target)
    order = torch.randperm(len(labels), generator=Generator().manual_seed(seed))
    ends = [NUM_CELLS_TRAIN, NUM_CELLS_TRAIN + NUM_CELLS_VALIDATION]
    train, validation, test = rows[order].tensor_split(ends)
    known = labels[order].tensor_split(ends)
    mean, deviation = train.mean(0), train.std(0)

    def standardised(part: Tensor) -> Tensor:
        return ((part - mean) / deviation).float()

    column = str(bunch.feature_names[WRONG_COLUMN])
    wrong_unit = {}
    for name, factor in WRONG_UNITS.items():
        wrong = test.clone()
        wrong[:, WRONG_COLUMN] *= factor
        wrong_unit[f"{column} {name}"] = standardised(wrong)
    return Cells(
        (standardised(train), known[0]),
        (standardised(validation), known[1]),
        (standardised(test), known[2]),
        wrong_unit,
        column,
        tuple(map(str, bunch.target_names)),
        tuple(map(str, bunch.feature_names)),
    )


def _bundled() -> Any:  # noqa: ANN401 - a module without types
    try:
        from sklearn import datasets
    except ImportError as error:
        raise LaplaceBridgeError(
            "The demo needs scikit-learn for its data, which is not installed. Install it with "
            "`pip install 'laplacebridge[report]'`."
        ) from error
    return datasets


def loader(part: tuple[Tensor, Tensor]) -> DataLoader[tuple[Tensor, ...]]:
    """Batches in order.

    Args:
        part: Images and labels.
    """
    return DataLoader(TensorDataset(*part), batch_size=256)


def trained_network(train: tuple[Tensor, Tensor], *, seed: int, epochs: int = EPOCHS) -> nn.Module:
    """A small network, trained in a few seconds, until it is surer than it should be.

    Args:
        train: Images or rows, and labels.
        seed: Of its weights and the order of the batches.
        epochs: How many passes over the data.
    """
    images, labels = train
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(images[0].numel(), WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, int(labels.max()) + 1),
        )
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    generator = Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(images), generator=generator), BATCH_SIZE):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model.eval()
