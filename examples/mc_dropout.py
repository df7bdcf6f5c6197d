"""MC dropout: a network trained with dropout, read as a Gaussian over logits: `python
examples/mc_dropout.py`.
"""

import torch
from torch import Generator, nn
from torch.nn import functional

import laplacebridge as lb
from laplacebridge.datasets import digits

torch.manual_seed(0)
data = digits(seed=0)  # scikit-learn's digits; the network never sees a 7, 8 or 9
images, labels = data.train

model = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 7)
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(200):
    optimizer.zero_grad()
    functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
model.eval()


def predict(inputs):
    """Dirichlets from 100 passes with other units dropped; the model stays in
    evaluation mode.
    """
    with torch.no_grad():
        gaussian = lb.sources.dropout_gaussian(
            model, inputs, num_samples=100, generator=Generator().manual_seed(0)
        )
    return lb.race_bridge(gaussian)


known, unknown = predict(data.test[0]), predict(data.unknown[0])
with torch.no_grad():
    single = [model(inputs).softmax(-1) for inputs in (data.test[0], data.unknown[0])]

print(
    f"accuracy                                      {lb.metrics.accuracy(known, data.test[1]):.3f}"
)
print(
    f"negative log-likelihood, one pass             {lb.metrics.nll(single[0], data.test[1]):.3f}"
)
print(f"negative log-likelihood, bridge               {lb.metrics.nll(known, data.test[1]):.3f}")
print(
    "unknown digits by one pass, AUROC            "
    f" {lb.metrics.auroc(*map(lb.scores.msp, single)):.3f}"
)
print(
    "unknown digits by the bridge, AUROC          "
    f" {lb.metrics.auroc(*map(lb.scores.msp, (known, unknown))):.3f}"
)
