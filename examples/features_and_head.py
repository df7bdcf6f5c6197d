"""Features and a linear head, without a network: `python
examples/features_and_head.py`.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from torch import nn

import laplacebridge as lb

# All that is needed are features (N, D), and the weights (K, D) and bias (K,) of a
# linear head. Here scikit-learn makes both; they may as well be embeddings from a file,
# and the last layer of a network that runs elsewhere.
images, labels = load_digits(return_X_y=True)
train, validation, test = slice(0, 300), slice(300, 600), slice(600, None)
features = (
    Nystroem(gamma=0.1, n_components=100, random_state=0)
    .fit(images[train] / 16)
    .transform(images / 16)
)
regression = LogisticRegression(C=1e4, max_iter=10_000).fit(features[train], labels[train])

features, labels = torch.tensor(features), torch.tensor(labels)
weight, bias = torch.tensor(regression.coef_), torch.tensor(regression.intercept_)

# A linear layer is a model too: its inputs are features.
head = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
head.load_state_dict({"weight": weight, "bias": bias})
batches, held_out = [(features[train], labels[train])], [(features[validation], labels[validation])]
classifier = lb.fit(head, batches, val_loader=held_out, progress=False)

with torch.no_grad():
    network, bridge = head(features[test]).softmax(-1), classifier(features[test])
truth = labels[test]

print(
    f"features {tuple(features.shape)}, weights {tuple(weight.shape)}, {len(truth)} examples to"
    " judge by\n"
)
print("                             head    bridge")
for title, metric in {
    "accuracy": lb.metrics.accuracy,
    "negative log-likelihood": lb.metrics.nll,
    "calibration error": lb.metrics.ece,
}.items():
    print(f"{title:24} {metric(network, truth):8.3f} {metric(bridge, truth):9.3f}")

answers = bridge.label
low, high = (bound.gather(-1, answers.unsqueeze(-1)).squeeze(-1) for bound in bridge.interval(0.95))
least_known = int((high - low).argmax())
answer = int(answers[least_known])
print(f"\nthe least known answer is {answer}, and its label {int(truth[least_known])}:")
print(f"  the head gives it {network[least_known, answer]:.2f}")
print(
    f"  the bridge {bridge.mean[least_known, answer]:.2f}, from {low[least_known]:.2f} to"
    f" {high[least_known]:.2f}"
)
