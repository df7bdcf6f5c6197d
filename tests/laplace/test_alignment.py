"""Labels stand where the model's own loss takes them: a wrong alignment cannot pass."""

import pytest
import torch
from cases import seeded
from torch import nn
from torch.nn.functional import cross_entropy

import laplacebridge as lb
from laplacebridge.laplace.alignment import shifted

VOCABULARY, LENGTH, BATCH_SIZE, WIDTH = 11, 7, 6, 8


class LanguageModel(nn.Module):
    """Computes its loss of labels as Hugging Face models do."""

    def __init__(self, shift, smoothing=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.mixer = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        with torch.no_grad():
            self.lm_head.weight.normal_(std=2.0)
        self.shift, self.smoothing = shift, smoothing

    def forward(self, input_ids, labels=None):
        hidden, _ = self.mixer(self.embedding(input_ids))
        logits, loss = self.lm_head(hidden), None
        if labels is not None:
            truth = shifted(labels) if self.shift else labels
            loss = cross_entropy(
                logits.flatten(0, 1), truth.flatten(), label_smoothing=self.smoothing
            )
        return {"loss": loss, "logits": logits}


def batches(number=3):
    found = []
    for seed in range(number):
        ids = torch.randint(VOCABULARY, (BATCH_SIZE, LENGTH), generator=seeded(seed))
        labels = ids.clone()
        labels[0, :3] = -100  # a prompt, or padding
        found.append({"input_ids": ids, "labels": labels})
    return found


def fitted(model, data, **options):
    return lb.fit(model, data, progress=False, **{"prior_precision": 1.0, **options})


@pytest.mark.parametrize("shift", [False, True])
def test_likelihood_is_that_of_the_models_own_loss(shift):
    model, data = LanguageModel(shift), batches()
    classifier = fitted(model, data)
    kept = [(shifted(part["labels"]) if shift else part["labels"]) != -100 for part in data]
    with torch.no_grad():
        own = sum(float(model(**part)["loss"]) * int(k.sum()) for part, k in zip(data, kept))
    assert classifier.log_likelihood == pytest.approx(-own, rel=1e-5)
    assert classifier.network.shift_labels is shift


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_held_out_labels_are_aligned_too():
    model, data = LanguageModel(True), batches()
    classifier = lb.fit(model, data, val_loader=data, progress=False)
    kept = sum(int((shifted(part["labels"]) != -100).sum()) for part in data)
    assert classifier.prior_choice.width.num_labels == kept


def test_another_loss_is_refused_until_it_is_said():
    model, data = LanguageModel(True, smoothing=0.3), batches()
    with pytest.raises(lb.InputError, match="says that the loss of the first batch is"):
        fitted(model, data)
    assert fitted(model, data, label_smoothing=0.3).network.shift_labels
    assert fitted(model, data, shift_labels=True).network.shift_labels
    assert not fitted(model, data, shift_labels=False).network.shift_labels


def test_labels_that_were_shifted_already_are_not_shifted_again():
    model = LanguageModel(True)
    moved = [{**part, "labels": shifted(part["input_ids"])} for part in batches()]
    with pytest.raises(lb.InputError, match="are the next tokens already"):
        fitted(model, moved)
    by_hand = fitted(model, moved, shift_labels=False)
    alone = [{**part, "labels": part["input_ids"]} for part in batches()]
    assert by_hand.log_likelihood == pytest.approx(fitted(model, alone).log_likelihood)


@pytest.mark.parametrize("shift", [False, True])
def test_pairs_whose_labels_are_the_tokens_are_taken_as_the_models_loss_takes_them(shift):
    model, data = LanguageModel(shift), batches()
    pairs = [(part["input_ids"], part["labels"]) for part in data]
    expected = fitted(model, data).log_likelihood
    assert fitted(model, pairs).log_likelihood == pytest.approx(expected)
    moved = [(ids, shifted(labels)) for ids, labels in pairs]  # stand where they are meant
    assert not fitted(model, moved).network.shift_labels


def test_weights_of_examples_do_not_hide_where_labels_stand():
    model, data = LanguageModel(True), batches()
    weighted = [{**part, "sample_weight": torch.ones(BATCH_SIZE, LENGTH)} for part in data]
    found = fitted(model, weighted, sample_weights=True)
    assert found.network.shift_labels
    assert found.log_likelihood == pytest.approx(fitted(model, data).log_likelihood)


def test_no_labels_are_shifted_twice():
    model, data = LanguageModel(True), batches()
    moved = [{**part, "labels": shifted(part["input_ids"])} for part in data]
    with pytest.raises(lb.InputError, match="are the next tokens already"):
        fitted(model, moved, shift_labels=True)
    with pytest.raises(lb.InputError, match="are the next tokens already"):
        lb.fit(model, data, val_loader=moved, progress=False)
    for places, words in ((-1, "the tokens before"), (2, "the tokens after the next")):
        labels = [part["input_ids"].roll(-places, 1) for part in data]
        for part in labels:
            part[:, slice(0, 1) if places < 0 else slice(-2, None)] = -100
        wrong = [{**part, "labels": moved} for part, moved in zip(data, labels)]
        with pytest.raises(lb.InputError, match=words):
            fitted(model, wrong)
    answers = [torch.full_like(part["input_ids"], -100) for part in data]
    for part in answers:
        part[:, -1] = 5  # an answer in place of the last token says nothing about its place
    assert fitted(model, [{**part, "labels": own} for part, own in zip(data, answers)])


def test_a_file_remembers_where_labels_stand(tmp_path):
    model, data = LanguageModel(True), batches()
    lb.save(fitted(model, data), tmp_path / "model.safetensors")
    assert lb.load(tmp_path / "model.safetensors", model).network.shift_labels


def test_a_batch_is_taken_as_fit_takes_it():
    model, data = LanguageModel(True), batches()
    classifier = fitted(model, data)
    whole = classifier(data[0]).mean
    torch.testing.assert_close(classifier(data[0]["input_ids"]).mean, whole)
    torch.testing.assert_close(classifier(**data[0]).mean, whole)
    torch.testing.assert_close(classifier.probabilities(data[0]), whole)
    pair = (data[0]["input_ids"], data[0]["labels"])
    torch.testing.assert_close(classifier(pair).mean, whole)
    assert classifier.features(data[0]).shape == (BATCH_SIZE * LENGTH, WIDTH)


def plain():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("layers", [None, "*"])
def test_wrappers_do_not_matter_for_loading(tmp_path, layers):
    model, inputs = plain(), torch.randn(6, 4, generator=seeded(0))
    wrapped = nn.DataParallel(model)
    classifier = fitted(wrapped, [inputs], layers=layers)
    lb.save(classifier, tmp_path / "wrapped.safetensors")
    expected = classifier(inputs).mean
    torch.testing.assert_close(
        lb.load(tmp_path / "wrapped.safetensors", model)(inputs).mean, expected
    )
    lb.save(fitted(model, [inputs], layers=layers), tmp_path / "plain.safetensors")
    again = lb.load(tmp_path / "plain.safetensors", nn.DataParallel(model))
    torch.testing.assert_close(again(inputs).mean, expected)


def test_every_layer_means_every_layer_that_can_be_covered():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    inputs = torch.randn(6, 4, generator=seeded(0))
    with pytest.warns(
        UserWarning, match="1 layers of other kinds are left as they were trained: '1'"
    ):
        classifier = fitted(model, [inputs], layers="*")
    assert classifier.network.layer_names == ("0", "2")
    with pytest.raises(lb.InputError, match="not supported"):
        fitted(model, [inputs], layers=["0", "1"])
