"""SWAG: follow the end of a training, then draw networks from where it wandered:
`python examples/swag.py`.
"""

import torch
from torch import Generator, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb
from laplacebridge.datasets import digits

torch.manual_seed(0)
data = digits(seed=0)  # scikit-learn's digits; the network never sees a 7, 8 or 9
loader = DataLoader(TensorDataset(*data.train), batch_size=32, shuffle=True, drop_last=True)

model = nn.Sequential(
    nn.Flatten(),
    nn.Linear(64, 64),
    nn.BatchNorm1d(64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 7),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
swag = lb.sources.SWAG(model)
for epoch in range(60):
    for images, labels in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    if epoch >= 20:  # the learning rate stays large, so that the weights go on wandering
        swag.record()
model.eval()

# the network has BatchNorm: every drawn network takes its statistics anew, from the
# training data
generator = Generator().manual_seed(0)
members = [swag.sample(generator, batches=loader) for _ in range(20)]


@torch.no_grad()
def predict(inputs):
    return lb.race_bridge(lb.sources.ensemble_gaussian(members, inputs))


known, unknown = predict(data.test[0]), predict(data.unknown[0])
with torch.no_grad():
    single = [model(inputs).softmax(-1) for inputs in (data.test[0], data.unknown[0])]

print(f"snapshots, weights                            {swag.num_snapshots}, {len(swag.mean)}")
print(
    "accuracy of the last weights                 "
    f" {lb.metrics.accuracy(single[0], data.test[1]):.3f}"
)
print(
    f"accuracy of the bridge                        {lb.metrics.accuracy(known, data.test[1]):.3f}"
)
print(
    "unknown digits by the last weights, AUROC    "
    f" {lb.metrics.auroc(*map(lb.scores.msp, single)):.3f}"
)
print(
    "unknown digits by the bridge, AUROC          "
    f" {lb.metrics.auroc(*map(lb.scores.msp, (known, unknown))):.3f}"
)
