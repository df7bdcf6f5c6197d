"""Causal language models: each token of a text, given or generated."""

import pytest
import torch

import laplacebridge as lb
from laplacebridge.bridges import predict

small = pytest.importorskip("small_texts", reason="needs the extra `transformers`")
transformers = pytest.importorskip("transformers")
from laplacebridge import transformers as lbt  # noqa: E402
from laplacebridge.transformers import leading, steps  # noqa: E402

TOKENIZER = small.tokenizer_of()


def texts(number, seed):
    return [row["text"] for row in small.sentences(number, seed)]


@pytest.fixture(scope="module")
def model():
    batches = []
    for start in range(0, 300, 50):
        tokens = TOKENIZER(texts(300, 0)[start : start + 50], padding=True, return_tensors="pt")
        labels = tokens["input_ids"].masked_fill(tokens["attention_mask"] == 0, -100)
        batches.append({**tokens, "labels": labels})
    return small.trained(lambda: small.gpt2(transformers.GPT2LMHeadModel), batches)


@pytest.fixture(scope="module")
def made(model):
    return lbt.fit(model, texts(300, 0), texts(100, 1), tokenizer=TOKENIZER, progress=False)


def test_the_fit_has_the_loss_of_the_model(model, made):
    total, count = 0.0, 0
    for text in texts(300, 0):
        ids = TOKENIZER(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            total += float(model(input_ids=ids, labels=ids).loss) * (ids.shape[1] - 1)
        count += ids.shape[1] - 1
    assert int(made.classifier.labels.class_counts.sum()) == count
    assert -made.classifier.log_likelihood == pytest.approx(total, rel=1e-5)


def test_the_mean_is_as_good_as_the_models_own(model, made):
    own = ours = 0.0
    for text in texts(100, 2):
        ids = TOKENIZER(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            own += float(model(input_ids=ids, labels=ids).loss) * (ids.shape[1] - 1)
        ours -= float(made(text).probability.log().sum())
    assert ours <= 1.01 * own


def test_each_token_has_what_the_classifier_says_of_it(made):
    text = "they talk about rain and snow"
    answer = made(text)
    tokens = TOKENIZER(text, return_tensors="pt")
    with torch.no_grad():
        whole = made.classifier(dict(tokens)).as_rows()
    ids = tokens["input_ids"][0]
    assert answer.tokens == [*text.split(), "[SEP]"]
    assert answer.text == text
    assert torch.equal(answer.ids, ids[1:])
    torch.testing.assert_close(answer.probability, whole.mean[:-1].gather(-1, ids[1:, None])[:, 0])
    torch.testing.assert_close(answer.epistemic, whole.epistemic[:-1])
    torch.testing.assert_close(answer.total, whole.total[:-1])
    assert answer.epistemic_sum == pytest.approx(float(whole.epistemic[:-1].sum()))
    assert answer.epistemic_max == pytest.approx(float(whole.epistemic[:-1].max()))


def test_padding_changes_nothing(made):
    several = made(["they talk about rain", "they talk about rain and snow of the"])
    alone = made("they talk about rain")
    assert len(several[0]) == len(alone)
    torch.testing.assert_close(several[0].epistemic, alone.epistemic, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("number", [steps.STEPS_AT_ONCE, 3])
def test_what_is_generated_is_what_the_model_generates_with_what_a_second_pass_says(
    made, monkeypatch, number
):
    monkeypatch.setattr(steps, "STEPS_AT_ONCE", number)
    prompts = ["they talk about", "they talk about snow of"]
    options = {"max_new_tokens": 7, "do_sample": False}
    before = len(made.classifier.network.head._forward_hooks)
    answers = made.generate(prompts, **options)
    assert len(made.classifier.network.head._forward_hooks) == before
    for prompt, answer in zip(prompts, answers):
        ids = TOKENIZER(prompt, return_tensors="pt")["input_ids"]
        alone = made.model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)[
            0
        ]
        assert answer.ids.tolist() == alone[ids.shape[1] :].tolist()[: len(answer)]
        again = made.of_tokens(alone[None])[0]
        for name in ("probability", "epistemic", "total"):
            expected = getattr(again, name)[ids.shape[1] - 1 :][: len(answer)]
            torch.testing.assert_close(getattr(answer, name), expected, rtol=1e-3, atol=1e-5)


def test_a_text_ends_where_it_ends_and_samples_are_many(made):
    answers = made.generate(
        "they talk about rain", max_new_tokens=8, do_sample=True, num_return_sequences=5
    )
    assert len(answers) == 5
    for answer in answers:
        assert 3 not in answer.ids[:-1].tolist()
        assert len(answer.epistemic) == len(answer.ids) == len(answer.tokens)


def test_beams_and_strings_without_a_tokenizer_are_refused(made):
    with pytest.raises(lb.InputError, match="num_beams=3"):
        made.generate("they talk", num_beams=3)
    with pytest.raises(lb.InputError, match="need the tokenizer"):
        lbt.LanguageModel(made.classifier)("they talk")


def test_it_is_saved_and_read(made, tmp_path):
    made.save_pretrained(tmp_path)
    loaded = lbt.from_pretrained(tmp_path)
    first, second = made("they talk about rain"), loaded("they talk about rain")
    assert torch.equal(first.epistemic, second.epistemic)
    assert loaded.classifier.network.shift_labels
    assert "generate" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_leading_tokens_and_the_others_as_one_say_what_all_say():
    """On logits as a language model has them: some large, very many small."""
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(6, 3000, generator=generator, dtype=torch.float64) * 2
    mean[:, :20] += 5
    variance = 0.2 + 2 * torch.rand(6, 3000, generator=generator, dtype=torch.float64)
    gaussian = lb.LogitGaussian(mean, lb.Diagonal(variance))
    chosen = mean.topk(256).indices
    few = predict(leading.with_others_as_one(gaussian, chosen))
    whole = predict(gaussian)
    kept = whole.mean.gather(-1, chosen)
    assert float((kept.sum(-1)).max()) < 0.95  # the others matter
    torch.testing.assert_close(few.mean[:, :-1], kept, rtol=0.02, atol=1e-4)
    samples = gaussian.sample(4000, generator=generator).softmax(-1)
    expected = samples.gather(-1, chosen.expand(4000, -1, -1)).mean(0)
    torch.testing.assert_close(few.mean[:, :-1], expected, rtol=0.1, atol=5e-4)


def test_sums_of_the_others_are_the_same_in_logarithms(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    mean, variance = torch.randn(2, 5, 400, generator=generator, dtype=torch.float64)
    gaussian = lb.LogitGaussian(9 * mean, lb.Diagonal(8 * variance.square()))
    chosen = gaussian.mean.topk(20).indices
    found = leading.with_others_as_one(gaussian, chosen)
    monkeypatch.setattr(leading, "_LARGEST_SUMMED", 0.0)
    expected = leading.with_others_as_one(gaussian, chosen)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.variance, expected.variance, rtol=1e-10, atol=1e-10)
    monkeypatch.undo()
    wide = lb.LogitGaussian(mean, lb.Diagonal(2000 * variance.square()))
    assert leading.with_others_as_one(wide, chosen).variance.isfinite().all()


def test_a_large_vocabulary_takes_the_leading_tokens(model, monkeypatch):
    made = lbt.fit(
        model,
        texts(300, 0),
        tokenizer=TOKENIZER,
        curvature=lb.laplace.DiagKron,
        prior_precision=1.0,
        progress=False,
    )
    text = "they talk about rain and snow"
    whole = made(text)
    monkeypatch.setattr(leading, "MOST_CLASSES", 10)
    some = lbt.LanguageModel(made.classifier, TOKENIZER, leading=30)(text)
    assert not torch.equal(whole.epistemic, some.epistemic)  # it did take fewer
    torch.testing.assert_close(some.probability, whole.probability, rtol=0.02, atol=1e-3)
    torch.testing.assert_close(some.epistemic, whole.epistemic, rtol=0.2, atol=1e-2)


@pytest.mark.parametrize("given", ["option", "configuration"])
def test_a_text_ends_where_the_options_say(made, given):
    prompts = ["they talk about", "they talk about snow"]
    settings = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    free = made.generate(prompts, **settings)
    assert [len(answer) for answer in free] == [8, 8]
    end = int(free[0].ids[1])
    settings["eos_token_id"] = [end]
    if given == "configuration":
        settings = {"generation_config": transformers.GenerationConfig(**settings)}
    for answer, whole in zip(made.generate(prompts, **settings), free):
        ids = whole.ids.tolist()
        assert answer.ids.tolist() == (ids[: ids.index(end) + 1] if end in ids else ids)


def test_texts_that_leave_no_room_are_refused(made):
    text = "they talk about rain and snow and"  # 9 tokens with those at the ends, of 16
    assert len(made.generate(text, max_new_tokens=7, eos_token_id=-1)) == 7
    with pytest.raises(lb.InputError, match=r"9 tokens to continue by 8; .* 16 in all.*fewer"):
        made.generate(text, max_new_tokens=8)
    with pytest.raises(lb.InputError, match=r"20 tokens to continue .*Give the end of the text"):
        made.generate("they talk " * 9)


@pytest.mark.parametrize("options", [{"calibration": ["they"]}, {"coverage": 0.9}, {"risk": 0.1}])
def test_options_of_decisions_are_refused(model, options):
    with pytest.raises(lb.InputError, match="no meaning for text generation"):
        lbt.fit(model, texts(3, 0), tokenizer=TOKENIZER, **options)
