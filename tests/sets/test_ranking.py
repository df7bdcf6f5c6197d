"""Rankings are those of a full stable sort."""

import torch

from laplacebridge.sets.ranking import top_ranked


def test_equal_values_rank_by_class_also_where_the_cut_goes_through_them():
    values = torch.tensor([[1.0, 3.0, 1.0, 3.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 9.0]])
    for length in range(1, 7):
        ranked, classes = top_ranked(values, length)
        assert classes.tolist() == [[1, 3, 0, 2, 4, 5][:length], [5, 0, 1, 2, 3, 4][:length]]
        assert torch.equal(ranked, values.gather(-1, classes))
