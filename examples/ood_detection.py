"""Detecting out-of-distribution (OOD) inputs, and deferring them to a person: `python
examples/ood_detection.py`.
"""

import torch
from torch import Generator

import laplacebridge as lb
from laplacebridge.datasets import digits, loader, trained_network

data = digits(seed=0)  # scikit-learn's digits; the network never sees a 7, 8 or 9
model = trained_network(data.train, seed=0)
classifier = lb.fit(model, loader(data.train), val_loader=loader(data.validation), progress=False)

images = data.test[0]
ood = {
    "digits 7, 8, 9": data.unknown[0],
    "rotated by 90°": torch.rot90(images, dims=(2, 3)),
    "noise": torch.rand(images.shape, generator=Generator().manual_seed(0)),
}
scores = {
    "network, maximum probability": lambda inputs: lb.scores.msp_of_logits(model(inputs)),
    "network, energy": lambda inputs: lb.scores.energy(model(inputs)),
    "bridge, maximum probability": lambda inputs: lb.scores.msp(classifier(inputs)),
    "bridge, mutual information": lambda inputs: lb.scores.mutual_information(classifier(inputs)),
    "ood_score": lambda inputs: classifier(inputs).ood_score,
}

print(
    "AUROC with its 95 % interval: the chance that an OOD input scores higher than an"
    " in-distribution one\n"
)
print(f"{'':30}" + "".join(f"{name:>24}" for name in ood))
with torch.no_grad():
    for name, score in scores.items():
        cells = []
        for inputs in ood.values():
            auroc = lb.metrics.bootstrap(
                lb.metrics.auroc,
                score(images),
                score(inputs),
                paired=False,
                generator=Generator().manual_seed(0),
            )
            cells.append(f"{auroc.estimate:.3f} ({auroc.low:.3f}–{auroc.high:.3f})")
        print(f"{name:30}" + "".join(f"{cell:>24}" for cell in cells))

# A rule that answers where the label is clear and the input is no more unusual than 95 %
# of the validation data. It has not seen any other data.
with torch.no_grad():
    validation = classifier(data.validation[0])
    rule = lb.selective.calibrate(
        lb.scores.msp, validation, answer_share=0.95, unusual=validation.ood_quantile > 0.95
    )
    print("\nanswered, and why the rest is deferred to a person:")
    for name, inputs in {"digits 0 to 6": images, **ood}.items():
        prediction = classifier(inputs)
        reasons = rule(prediction, unusual=prediction.ood_quantile > 0.95).reasons()
        shares = ", ".join(
            f"{reason or 'answered'} {reasons.count(reason) / len(reasons):.1%}"
            for reason in ("", "ambiguous", "unusual", "both")
        )
        print(f"  {name:20} {shares}")
