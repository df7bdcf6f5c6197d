"""Class sets that hold the label nine times in ten, guaranteed: `python
examples/class_sets.py`.
"""

import torch

import laplacebridge as lb
from laplacebridge.datasets import digits, loader, trained_network
from laplacebridge.sets import APS, LeastAmbiguous, Mass, Overlap, calibrate

COVERAGE = 0.9
data = digits(seed=0)  # scikit-learn's digits, 0 to 6
few = tuple(tensor[:25] for tensor in data.train)  # too few to be good, so that sets are needed
model = trained_network(few, seed=0)
classifier = lb.fit(model, loader(few), val_loader=loader(data.validation), progress=False)

with torch.no_grad():
    prediction, network = classifier(data.test[0]), model(data.test[0]).softmax(-1)
labels = data.test[1]

# The guarantee needs labelled examples that were used for nothing else: not to train,
# nor to choose the prior.
calibration, new = slice(0, 300), slice(300, None)
rules = {
    "least ambiguous": LeastAmbiguous(),
    "adaptive (APS)": APS(),
    "overlap of marginals (Algorithm 1)": Overlap(),
}
calibrated = {
    name: calibrate(rule, prediction[calibration], labels[calibration], coverage=COVERAGE)
    for name, rule in rules.items()
}
sets = {f"{name}, calibrated": chosen(prediction[new]) for name, chosen in calibrated.items()}
sets[f"{COVERAGE:.0%} of the network's softmax, as it is"] = Mass()(network[new], COVERAGE)

right = lb.metrics.accuracy(network[new], labels[new])
print(f"the network is right on {right:.1%} of {len(labels[new])} new digits\n")
print(f"{'':48} label in the set   mean size")
for name, found in sets.items():
    held, size = lb.metrics.coverage(found, labels[new]), lb.metrics.mean_set_size(found)
    print(f"{name:48} {held:16.1%} {size:11.2f}")
low, _ = calibrated["least ambiguous"].coverage_interval()
print(f"\nfor this calibration set the coverage is at least {low:.1%}, with 97.5 % chance")

shown = sets["overlap of marginals (Algorithm 1), calibrated"]
ambiguous = [pair for pair in zip(labels[new].tolist(), shown.to_lists()) if len(pair[1]) > 1]
print(f"\n{len(ambiguous)} digits have several classes left (Algorithm 1), for instance:")
for label, members in ambiguous[:5]:
    print(f"  a {label}: {members}")
