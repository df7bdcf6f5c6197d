"""Texts and tokens: fitted from data sets, called with strings, saved beside the model."""

import json
import warnings

import pytest
import torch

import laplacebridge as lb

small = pytest.importorskip("small_texts", reason="needs the extra `transformers`")
transformers = pytest.importorskip("transformers")
from laplacebridge import transformers as lbt  # noqa: E402

# few held-out labels: what the width rests on is not what is tested here
FEW = "ignore:With \\d+ held-out labels:UserWarning"
pytestmark = pytest.mark.filterwarnings(FEW)
TOKENIZER = small.tokenizer_of()


def model_of(task):
    """A model of each kind, with its training, held-out and test examples."""
    if task == "tokens":
        parts = [
            small.tagged(number, seed, TOKENIZER) for seed, number in enumerate((300, 160, 200))
        ]
        collate = transformers.DataCollatorForTokenClassification(TOKENIZER)
        kind = transformers.BertForTokenClassification

        def make():
            return small.bert(kind, num_labels=4, **small.TAG_NAMES)
    else:
        parts = [small.sentences(number, seed) for seed, number in enumerate((300, 240, 300))]

        def collate(rows):
            texts = [row["text"] for row in rows]
            labels = torch.tensor([row["label"] for row in rows])
            return {**TOKENIZER(texts, padding=True, return_tensors="pt"), "labels": labels}

        def make():
            if task == "decoder":
                kind = transformers.GPT2ForSequenceClassification
                return small.gpt2(kind, num_labels=3, **small.NAMES)
            kind = transformers.BertForSequenceClassification
            return small.bert(kind, num_labels=3, **small.NAMES)

    batches = [collate(parts[0][start : start + 50]) for start in range(0, 300, 50)]
    return small.trained(make, batches), parts, collate


@pytest.fixture(scope="module", params=["texts", "decoder", "tokens"])
def fitted(request):
    model, (train, val, test), collate = model_of(request.param)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "With \\d+ held-out labels")
        made = lbt.fit(model, train, val, tokenizer=TOKENIZER, risk=0.3, progress=False)
    return made, train, collate(test)


def test_the_fit_has_the_loss_of_the_model(fitted):
    made, train, _ = fitted
    labels = made.classifier.labels
    total, count = 0.0, 0
    collate = lbt.batches.Source(train, made.model, made.task, TOKENIZER, None, 16)
    with torch.no_grad():
        for batch in collate.loader():
            kept = int((batch["labels"] != -100).sum())
            total += float(made.model(**batch).loss) * kept
            count += kept
    assert int(labels.class_counts.sum()) == count
    assert -labels.log_likelihood / count == pytest.approx(total / count, rel=1e-5)


def test_the_mean_is_as_good_as_the_models_own_probabilities(fitted):
    made, _, test = fitted
    labels = test["labels"].flatten()
    kept = labels != -100
    with torch.no_grad():
        own = made.model(**test).logits.softmax(-1).reshape(len(labels), -1)[kept]
        ours = made.classifier(test)[kept]
    assert lb.metrics.nll(ours, labels[kept]) <= 1.01 * lb.metrics.nll(own, labels[kept])


def test_strings_are_answered_with_labels_intervals_and_decisions(fitted):
    made, _, _ = fitted
    texts = ["they talk about rain and snow", "they talk about soup", "bread of stadium"]
    answers = made(texts, level=0.9)
    if made.task == "token-classification":
        assert [row["word"] for row in answers[1]] == texts[1].split()
        assert [texts[0][row["start"] : row["end"]] for row in answers[0]] == texts[0].split()
        assert answers[1][3]["label"] == "food"
        assert [len(rows) for rows in answers] == [6, 4, 3]
        assert made(texts[1])[3]["score"] == pytest.approx(answers[1][3]["score"], abs=1e-5)
        answers = [row for rows in answers for row in rows]
    else:
        assert answers[0]["label"] == "weather"
        assert made(texts[0])["score"] == pytest.approx(answers[0]["score"], abs=1e-5)
    names = set(made.classifier.class_names)
    for answer in answers:
        low, high = answer["interval"]
        assert 0 <= low < answer["score"] < high <= 1
        assert {row["label"] for row in answer["labels"]} == names
        assert sum(row["score"] for row in answer["labels"]) == pytest.approx(1, abs=1e-5)
        assert answer["decision"] in {"answer", "set", "defer"}
        assert set(answer["classes"]) <= names
        assert (answer["decision"] == "answer") == (answer["reason"] == "")
    assert made.classifier.policy.sets.num_examples == (
        80 if made.task == "token-classification" else 120
    )


def test_it_is_saved_beside_the_model_and_read_without_pickle(fitted, tmp_path):
    made, _, test = fitted
    (tmp_path / "README.md").write_text("# My model\n", encoding="utf-8")
    for _ in range(2):  # the section of the card is replaced, not added
        made.save_pretrained(tmp_path)
    loaded = lbt.from_pretrained(tmp_path)
    assert type(loaded) is type(made)
    assert loaded.classifier.policy == made.classifier.policy
    assert isinstance(loaded("they talk about rain and snow"), type(made("they talk about rain")))
    with torch.no_grad():
        torch.testing.assert_close(loaded.classifier(test).mean, made.classifier(test).mean)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# My model\n")
    assert card.count("## Uncertainty") == 1
    assert "sets hold the label with probability at least 0.9" in card
    suffixes = {path.suffix for path in tmp_path.iterdir()}
    assert suffixes <= {".json", ".safetensors", ".md", ".jinja"}


def test_files_of_another_model_are_refused(fitted, tmp_path):
    made, _, _ = fitted
    made.save_pretrained(tmp_path)
    other = type(made.model)(made.model.config).eval()
    with pytest.raises(lb.CheckpointError, match="another model"):
        lbt.from_pretrained(tmp_path, model=other)
    (tmp_path / "laplacebridge.json").write_text(json.dumps({"task": "poetry"}), encoding="utf-8")
    with pytest.raises(lb.CheckpointError, match="holds no fitted model"):
        lbt.from_pretrained(tmp_path)


def test_one_token_of_each_text_calibrates_and_the_texts_are_not_those_of_the_width():
    first, second = lbt.batches.halves(101)
    assert sorted(first + second) == list(range(101))
    assert abs(len(first) - len(second)) == 1
    assert sorted(first) != first  # not the first half in order


def test_what_cannot_be_promised_is_said():
    model, (train, val, _), _ = model_of("texts")
    with pytest.warns(UserWarning, match="There are no decisions"):
        made = lbt.fit(model, train, val[:40], tokenizer=TOKENIZER, risk=0.01, progress=False)
    assert "decision" not in made("they talk about rain")


def test_wrong_models_and_data_are_refused():
    plain = small.bert(transformers.BertForSequenceClassification, num_labels=3)
    texts = small.sentences(4, 0)
    with pytest.raises(lb.InputError, match="tokenizer"):
        lbt.fit(plain, texts)
    with pytest.raises(lb.InputError, match="needs `train`"):
        lbt.fit(plain)
    with pytest.raises(lb.errors.InputTypeError, match="DataLoader"):
        lbt.fit(plain, iter(texts))
    with pytest.raises(lb.InputError, match="several names"):
        lbt.fit(plain, texts, {"a": texts}, tokenizer=TOKENIZER)
    with pytest.raises(lb.InputError, match="looks like none of them"):
        lbt.fit(small.bert(transformers.BertForMaskedLM), texts, tokenizer=TOKENIZER)
    with pytest.raises(lb.InputError, match="must be one of"):
        lbt.fit(plain, texts, tokenizer=TOKENIZER, task="poetry")
    several = small.bert(
        transformers.BertForSequenceClassification,
        num_labels=3,
        problem_type="multi_label_classification",
    )
    with pytest.raises(lb.InputError, match="multi_label=True"):
        lbt.fit(several, texts, tokenizer=TOKENIZER)
    tokens = small.bert(transformers.BertForTokenClassification, num_labels=3)
    with pytest.raises(lb.InputError, match="needs tokenised examples"):
        lbt.fit(tokens, texts, tokenizer=TOKENIZER)


def test_labels_by_name_and_pairs_of_texts_are_taken():
    model, (train, _, _), _ = model_of("texts")
    named = [{**row, "label": list(small.TOPICS)[row["label"]]} for row in train]
    by_name = lbt.fit(model, named, tokenizer=TOKENIZER, prior_precision=1.0, progress=False)
    by_number = lbt.fit(model, train, tokenizer=TOKENIZER, prior_precision=1.0, progress=False)
    assert by_name.classifier.log_likelihood == by_number.classifier.log_likelihood
    pairs = [{**row, "text_pair": small.COMMON[len(row["text"]) % 13]} for row in train]
    paired = lbt.fit(model, pairs, tokenizer=TOKENIZER, prior_precision=1.0, progress=False)
    assert paired.classifier.log_likelihood != by_number.classifier.log_likelihood
    one = paired({"text": "they talk about rain", "text_pair": "winter"})
    assert one["score"] != paired("they talk about rain")["score"]
