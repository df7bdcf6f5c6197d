"""Walking over a batch in blocks gives what the whole batch gives."""

import pytest
import torch
from cases import BRIDGES, gaussian

from laplacebridge import _blocks


@pytest.mark.parametrize("elements", [1, 7, 40, 10**6])
def test_the_size_of_blocks_changes_nothing(elements):
    batch = gaussian("shared basis", 0, 11, 5)
    doubled = _blocks.by_rows(lambda part: 2 * part.mean + part.variance, batch, elements=elements)
    torch.testing.assert_close(doubled, 2 * batch.mean + batch.variance)


def test_blocks_hold_about_as_many_numbers_as_asked():
    sizes = []

    def note(part):
        sizes.append(len(part))
        return part.mean

    _blocks.by_rows(note, gaussian("diagonal", 0, 11, 5), elements=20)
    assert sizes == [4, 4, 3]


def test_gradients_go_through_the_whole_batch_at_once():
    batch = gaussian("diagonal", 0, 11, 5)
    batch.mean.requires_grad_()
    sizes = []

    def note(part):
        sizes.append(len(part))
        return part.mean

    _blocks.by_rows(note, batch, elements=1)
    assert sizes == [11]
    with torch.no_grad():
        _blocks.by_rows(note, batch, elements=5)
    assert sizes == [11] + 11 * [1]


@pytest.mark.parametrize("name", BRIDGES)
def test_an_empty_batch_gives_an_empty_answer(name):
    assert BRIDGES[name].function(gaussian("diagonal", 0, 3, 4)[:0]).mean.shape == (0, 4)
