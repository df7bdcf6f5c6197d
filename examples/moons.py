"""Half-moons: how sure a network is far from its data, and how sure it should be:
`python examples/moons.py`.
"""

import argparse
import math

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional

import laplacebridge as lb

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--output", default="moons.png", help="where to write the plot")
output = parser.parse_args().output


def half_moons(seed):
    points, labels = make_moons(200, noise=0.2, random_state=seed)
    return torch.tensor(points, dtype=torch.float32), torch.tensor(labels)


torch.manual_seed(0)
train, validation, test = (half_moons(seed) for seed in range(3))

model = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2))
points, labels = train
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
for _ in range(500):
    optimizer.zero_grad()
    functional.cross_entropy(model(points), labels).backward()
    optimizer.step()

classifier = lb.fit(
    model, [train], val_loader=[validation], progress=False
)  # lists of batches, or any DataLoader


@torch.no_grad()
def predict(points):
    return model(points).softmax(-1), classifier(points)


new_points, new_labels = test
for name, prediction in zip(("network", "bridge"), predict(new_points)):
    print(
        f"negative log-likelihood of new points, {name:9}"
        f" {lb.metrics.nll(prediction, new_labels):.3f}"
    )

print(
    "\nmean confidence around the data, with 95 % bounds on it\ndistance   network   bridge  "
    " bounds"
)
angles = torch.linspace(0, 2 * math.pi, 200)
for distance in (2.0, 4.0, 8.0, 16.0):
    ring = torch.stack([0.5 + distance * angles.cos(), 0.25 + distance * angles.sin()], -1)
    network, bridge = predict(ring)
    low, high = (
        bound.gather(-1, bridge.label.unsqueeze(-1)).mean() for bound in bridge.interval(0.95)
    )
    print(
        f"{distance:8g} {lb.metrics.mmc(network):9.3f} {lb.metrics.mmc(bridge):8.3f}   {low:.2f} to"
        f" {high:.2f}"
    )

ticks = torch.linspace(-6, 7, 100)
network, bridge = predict(torch.cartesian_prod(ticks, ticks))
panels = {
    "confidence of the network": (network.amax(-1), 0.5, 1.0),
    "confidence of the bridge": (bridge.mean.amax(-1), 0.5, 1.0),
    "epistemic uncertainty (mutual information)": (bridge.epistemic, 0.0, None),
}
figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
for panel, (title, (values, low, high)) in zip(axes, panels.items()):
    surface = panel.pcolormesh(
        ticks.numpy(), ticks.numpy(), values.view(100, 100).T.numpy(), vmin=low, vmax=high
    )
    panel.scatter(*points.T.numpy(), c=labels.numpy(), s=6, cmap="coolwarm")
    panel.set_title(title)
    figure.colorbar(surface, ax=panel)
figure.savefig(output, dpi=120)
print(f"\nwrote {output}")
