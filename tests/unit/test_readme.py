"""The README's example runs as it stands, and gives the numbers it shows."""

import re
from pathlib import Path

import torch

README = Path(__file__).parents[2] / "README.md"


def test_the_five_lines_give_what_their_comments_say():
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102  (the project's own example)
    dirichlet = names["dirichlet"]
    shown = torch.tensor([float(number) for number in re.findall(r"tensor\(\[\[(.*?)\]\]\):", block)[0].split(",")])
    torch.testing.assert_close(dirichlet.mean[0], shown, atol=5e-5, rtol=0)
    low, high = (float(number) for number in re.search(r"lies: ([\d.]+) to ([\d.]+)", block).groups())
    for end, expected in zip(dirichlet.marginal(0).interval(0.95), (low, high)):
        assert abs(end.item() - expected) < 5e-4
    nats = float(re.search(r"in nats: ([\d.]+)", block).group(1))
    assert abs(dirichlet.mutual_information().item() - nats) < 5e-4
