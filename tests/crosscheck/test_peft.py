"""Adapters of PEFT, as users have them: in the body, on the head, merged or not."""

import warnings

import pytest
import torch
from cases import seeded

import laplacebridge as lb

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies use what Python has deprecated
    transformers = pytest.importorskip("transformers", minversion="5")
    peft = pytest.importorskip("peft", reason="needs peft: `pip install peft`")

pytestmark = [pytest.mark.crosscheck, pytest.mark.filterwarnings("ignore::FutureWarning")]


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.BertConfig(
            vocab_size=30,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            num_labels=3,
            initializer_range=0.5,
        )
        return transformers.BertForSequenceClassification(config).eval()


def batch():
    generator = seeded(0)
    return {
        "input_ids": torch.randint(30, (12, 6), generator=generator),
        "labels": torch.randint(3, (12,), generator=generator),
    }


def with_adapter(**options):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return peft.get_peft_model(network(), peft.LoraConfig(r=2, **options)).eval()


@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["query", "value"], "init_lora_weights": False},
        {"task_type": "SEQ_CLS"},
        {"target_modules": ["query", "classifier"], "init_lora_weights": False},
        {"target_modules": ["classifier"], "init_lora_weights": False, "use_dora": True},
        {"target_modules": ["classifier"]},  # an adapter that adds nothing yet
    ],
    ids=["body", "head saved whole", "head", "head with DoRA", "head untrained"],
)
def test_an_adapter_is_fitted_as_the_merged_network_is(options, tmp_path):
    model, inputs = with_adapter(**options), batch()
    classifier = lb.fit(model, [inputs], prior_precision=0.5, progress=False)
    with torch.no_grad():
        loss = model(**inputs).loss
        prediction = classifier(inputs)
    assert classifier.log_likelihood == pytest.approx(-12 * float(loss), rel=1e-5)
    lb.save(classifier, tmp_path / "classifier.safetensors")
    loaded = lb.load(tmp_path / "classifier.safetensors", model)
    torch.testing.assert_close(loaded(inputs).mean, prediction.mean, rtol=1e-5, atol=1e-6)
    merged = model.merge_and_unload()
    with torch.no_grad():
        plain = lb.fit(merged, [inputs], prior_precision=0.5, progress=False)(inputs)
    torch.testing.assert_close(prediction.mean, plain.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(prediction.epistemic, plain.epistemic, rtol=1e-3, atol=1e-6)
