"""Several labels at once: curvature against autograd, means against integration,
guarantees, files, and what is asked before anything is guessed.
"""

import types
import warnings

import pytest
import torch
from cases import seeded
from scipy import integrate, special
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import laplacebridge as lb
from laplacebridge.laplace import Diag, DiagKron, Kron
from laplacebridge.laplace.feature_statistics import joint_logit
from laplacebridge.multi_label import (
    MultiLabelPrediction,
    calibrate,
    logistic_normal_mean,
    per_label,
)
from laplacebridge.selective.policy import Policy

NUM_LABELS, NUM_FEATURES, NUM_EXAMPLES = 3, 4, 60
POS_WEIGHT = torch.tensor([0.5, 3.0, 8.0], dtype=torch.float64)


def problem(seed=0, number=NUM_EXAMPLES, dtype=torch.float64):
    """Labels drawn from a head, which so is the true one."""
    generator = seeded(seed)
    head = nn.Linear(NUM_FEATURES, NUM_LABELS).to(dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=seeded(99)))
    inputs = torch.randn(number, NUM_FEATURES, generator=generator, dtype=dtype)
    chance = head(inputs).detach().sigmoid()
    labels = (torch.rand(chance.shape, generator=generator) < chance).to(dtype)
    return head, inputs, labels


def fitted(model, batches, **options):
    return lb.fit(
        model,
        batches,
        **{"multi_label": True, "prior_precision": 1.0, "progress": False, **options},
    )


def hessian(head, inputs, minimised):
    trained = torch.cat([head.weight, head.bias.unsqueeze(-1)], -1).detach().flatten()
    ones = torch.cat([inputs, inputs.new_ones(len(inputs), 1)], -1)
    return torch.autograd.functional.hessian(
        lambda flat: minimised(ones @ flat.view(NUM_LABELS, -1).T), trained
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("pos_weight", [None, POS_WEIGHT])
def test_curvature_is_the_hessian_of_torchs_loss(pos_weight, smoothing):
    head, inputs, labels = problem()
    weights = 2 * torch.rand(NUM_EXAMPLES, generator=seeded(5), dtype=torch.float64)
    targets = (1 - smoothing) * labels + smoothing / 2

    def minimised(logits):
        losses = binary_cross_entropy_with_logits(
            logits, targets, pos_weight=pos_weight, reduction="none"
        )
        return (weights.unsqueeze(-1) * losses).sum()

    classifier = fitted(
        head,
        [(inputs[:25], labels[:25], weights[:25]), (inputs[25:], labels[25:], weights[25:])],
        class_weight=pos_weight,
        label_smoothing=smoothing,
        sample_weights=True,
    )
    posterior = classifier.posterior
    blocks = posterior.vectors @ torch.diag_embed(posterior.values) @ posterior.vectors.mT
    expected = hessian(head, inputs, minimised)
    torch.testing.assert_close(torch.block_diag(*blocks), expected, rtol=1e-9, atol=1e-9)
    loss = float(minimised(head(inputs)).detach())
    assert classifier.log_likelihood == pytest.approx(-loss, rel=1e-12)


@pytest.mark.parametrize("kind", [Diag, DiagKron])
def test_other_structures_keep_the_diagonal(kind):
    head, inputs, labels = problem()
    inputs = inputs[:1].expand(NUM_EXAMPLES, -1)  # then A ⊗ g/N is exact
    head_only = nn.Linear(NUM_FEATURES, NUM_LABELS, bias=False).double()
    with torch.no_grad():
        head_only.weight.copy_(head.weight)
    exact = fitted(head_only, [(inputs, labels)])
    other = fitted(head_only, [(inputs, labels)], curvature=kind)
    if kind is DiagKron:
        torch.testing.assert_close(other.logits(inputs).variance, exact.logits(inputs).variance)
    blocks = exact.posterior.vectors @ torch.diag_embed(exact.posterior.values)
    blocks = blocks @ exact.posterior.vectors.mT
    if kind is Diag:
        torch.testing.assert_close(
            other.posterior.curvature, blocks.diagonal(dim1=-2, dim2=-1), rtol=1e-9, atol=1e-12
        )


def test_a_curvature_of_classes_is_refused():
    head, inputs, labels = problem()
    with pytest.raises(lb.InputError, match="LabelBlocks"):
        fitted(head, [(inputs, labels)], curvature=Kron)


@pytest.mark.parametrize("mean", [-300.0, -12.0, -3.0, 0.0, 1.0, 15.0])
@pytest.mark.parametrize("variance", [0.0, 1e-4, 1.0, 3.9, 4.1, 60.0, 1e4])
def test_the_mean_is_exact(mean, variance):
    yes, no = logistic_normal_mean(torch.tensor([mean]), torch.tensor([variance]))
    deviation = variance**0.5

    def expected(sign):
        if not variance:
            return float(special.log_expit(sign * mean))
        scale = min(sign * mean + variance / 2, 0.0)  # the tail's size, taken out

        def density(t):
            point = sign * mean + deviation * t
            return float(special.expit(point)) * 2.718281828459045 ** (-t * t / 2 - scale)

        points = sorted({max(-35.0, min(35.0, -sign * mean / deviation)), min(deviation, 35.0)})
        found = integrate.quad(density, -38, 38, points=points, limit=2000, epsabs=0)[0]
        return float(torch.tensor(found / 2.5066282746310002).log()) + scale

    if mean > -100 or variance < 1e3:
        assert float(yes) == pytest.approx(expected(1), rel=1e-7, abs=1e-7)
    assert float(no) == pytest.approx(float(torch.log1p(-yes.exp())), rel=1e-7, abs=1e-7)
    mirrored, _ = logistic_normal_mean(torch.tensor([-mean]), torch.tensor([variance]))
    assert float(mirrored) == pytest.approx(float(no), rel=1e-12, abs=1e-300)


def test_predictions_have_the_exact_mean_and_the_logits_variance():
    head, inputs, labels = problem()
    classifier = fitted(head, [(inputs, labels)])
    prediction, logits = classifier(inputs), classifier.logits(inputs)
    yes, _ = logistic_normal_mean(logits.mean, logits.variance)
    torch.testing.assert_close(prediction.mean, yes.exp().detach(), check_dtype=False)
    torch.testing.assert_close(classifier.probabilities(inputs), prediction.mean)
    torch.testing.assert_close(logits.mean, head(inputs).detach())
    torch.testing.assert_close(
        prediction.rows.log_odds_variance[:, 1].view(-1, NUM_LABELS), logits.variance
    )
    assert prediction.betas().mean.view(-1, NUM_LABELS).allclose(prediction.mean)
    lower, upper = prediction.interval(0.9)
    assert ((lower < prediction.mean) & (prediction.mean < upper)).all()
    total = prediction.aleatoric + prediction.epistemic
    torch.testing.assert_close(total, prediction.total)
    torch.testing.assert_close(prediction[[4, 7]].mean, prediction.mean[[4, 7]])
    assert f"{NUM_LABELS} labels" in repr(prediction)
    assert set(prediction.numpy()) >= {"mean", "lower", "upper", "applies", "epistemic"}
    again = classifier.predict_features(classifier.features(inputs))
    torch.testing.assert_close(again.mean, prediction.mean)


def test_blocks_of_rows_give_the_same(monkeypatch):
    head, inputs, labels = problem()
    classifier = fitted(head, [(inputs, labels)])
    expected = classifier(inputs)
    monkeypatch.setattr("laplacebridge._blocks.ELEMENTS_AT_ONCE", 7 * NUM_LABELS)
    torch.testing.assert_close(classifier(inputs).mean, expected.mean)
    torch.testing.assert_close(classifier.probabilities(inputs), expected.mean)
    again = fitted(head, [(inputs, labels)])
    torch.testing.assert_close(again(inputs).mean, expected.mean)


def test_a_sigmoid_may_stay_and_is_asked_about():
    head, inputs, labels = problem()
    ending = nn.Sequential(head, nn.Sigmoid())
    torch.testing.assert_close(
        fitted(ending, [(inputs, labels)])(inputs).mean,
        fitted(head, [(inputs, labels)])(inputs).mean,
    )
    with pytest.raises(lb.HeadNotFoundError, match="multi_label=True"):
        lb.fit(ending, [inputs], prior_precision=1.0, progress=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_ones_and_zeros_are_asked_about(dtype):
    head, inputs, labels = problem()
    with pytest.raises(lb.errors.ShapeError, match=r"several labels at once.*multi_label=True"):
        lb.fit(head, [(inputs, labels.to(dtype))], prior_precision=1.0, progress=False)


def test_a_model_that_says_so_is_asked_about():
    head, inputs, labels = problem()
    head.config = types.SimpleNamespace(problem_type="multi_label_classification")
    one_hot = torch.eye(NUM_LABELS, dtype=torch.float64)[labels.argmax(-1)]
    with pytest.raises(lb.InputError, match="multi_label=True"):
        lb.fit(head, [(inputs, one_hot)], prior_precision=1.0, progress=False)
    said = lb.fit(head, [(inputs, one_hot)], prior_precision=1.0, multi_label=False, progress=False)
    assert isinstance(said(inputs), lb.Prediction)
    assert isinstance(fitted(head, [(inputs, one_hot)])(inputs), MultiLabelPrediction)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.zeros(NUM_EXAMPLES), "a one or a zero for each of 3 labels"),
        (torch.full((NUM_EXAMPLES, NUM_LABELS), 2.0), "labels from 2 to 2"),
    ],
)
def test_wrong_labels_are_refused(labels, words):
    head, inputs, _ = problem()
    with pytest.raises(lb.LaplaceBridgeError, match=words):
        fitted(head, [(inputs, labels)])


def test_one_logit_is_no_multi_label_problem():
    with pytest.raises(lb.InputError, match="Leave out `multi_label`"):
        fitted(nn.Linear(2, 1), [(torch.eye(2), torch.ones(2, 1))])


@pytest.mark.parametrize("kind", [None, Diag, DiagKron])
def test_saved_and_loaded(tmp_path, kind):
    head, inputs, labels = problem(dtype=torch.float32)
    classifier = fitted(head, [(inputs, labels)], curvature=kind)
    lb.save(classifier, tmp_path / "labels.safetensors")
    again = lb.load(tmp_path / "labels.safetensors", head)
    assert torch.equal(again(inputs).mean, classifier(inputs).mean)
    assert again.log_likelihood == classifier.log_likelihood
    raced = classifier.with_bridge(lb.race_bridge)
    lb.save(raced, tmp_path / "raced.safetensors")
    loaded = lb.load(tmp_path / "raced.safetensors", head)
    assert torch.equal(loaded(inputs).mean, raced(inputs).mean)


def trained(inputs, labels, steps=300):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(NUM_FEATURES, 32), nn.Tanh(), nn.Linear(32, NUM_LABELS))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(inputs), labels).backward()
        optimizer.step()
    return model


@pytest.fixture(scope="module")
def judged():
    """An overfitted network: 150 examples, 150 to choose its width by, 2000 to judge."""
    _, inputs, labels = problem(1, 150, torch.float32)
    model = trained(inputs, labels)
    held_out = problem(2, 150, torch.float32)[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = lb.fit(
            model, [(inputs, labels)], val_loader=[held_out], multi_label=True, progress=False
        )
    truth, inputs, labels = problem(3, 2000, torch.float32)
    with torch.no_grad():
        return classifier, classifier(inputs), model(inputs), labels, truth(inputs).sigmoid()


def test_held_out_labels_make_an_overfitted_network_less_sure(judged):
    classifier, prediction, logits, labels, truth = judged
    alone = binary_cross_entropy_with_logits(logits, labels)
    ours = nn.functional.binary_cross_entropy(prediction.mean, labels)
    assert classifier.prior_choice.width is not None
    assert ours < 0.9 * alone
    lower, upper = prediction.interval(0.95)
    covered = ((lower <= truth) & (truth <= upper)).float().mean()
    assert 0.85 < covered <= 1


def test_metrics_of_each_label(judged):
    _, prediction, _, labels, _ = judged
    found = per_label(lb.metrics.nll, prediction, labels)
    expected = nn.functional.binary_cross_entropy(
        prediction.mean.double(), labels.double(), reduction="none"
    ).mean(0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    right = per_label(lb.metrics.accuracy, prediction, labels)
    torch.testing.assert_close(right, (prediction.applies == labels.bool()).double().mean(0))
    with pytest.raises(lb.errors.ShapeError, match="3 labels of 2000 examples"):
        per_label(lb.metrics.nll, prediction, labels[:, :2])


@pytest.mark.parametrize("jointly", [False, True])
def test_sets_keep_their_promise(judged, jointly):
    """Over many halves, the mean coverage is what was asked: never less."""
    _, prediction, _, labels, _ = judged
    covered = []
    for seed in range(40):
        order = torch.randperm(len(labels), generator=seeded(seed))
        some, others = order[:200], order[200:]
        sets = calibrate(prediction[some], labels[some], coverage=0.9, jointly=jointly)
        applies, unsure = sets(prediction[others])
        held = unsure | (applies == labels[others].bool())
        covered.append(held.all(-1).double().mean() if jointly else held.double().mean(0))
    mean = torch.stack(covered).mean(0)
    assert (mean > 0.885).all()
    assert (mean < 0.93).all()


def test_too_few_examples_for_a_promise(judged):
    _, prediction, _, labels, _ = judged
    with pytest.raises(lb.InputError, match="at least 9 examples"):
        calibrate(prediction[:5], labels[:5], coverage=0.9)


def test_what_is_for_one_class_says_what_there_is_for_several_labels():
    from laplacebridge._predictions import probabilities_of

    head, inputs, labels = problem()
    classifier = lb.fit(
        head, [(inputs, labels)], multi_label=True, prior_precision=1.0, progress=False
    )
    with pytest.raises(lb.InputError, match=r"groups=.*several labels at once"):
        classifier.report([(inputs, labels)], groups=["a"] * len(inputs))
    unchecked = getattr(probabilities_of, "__wrapped__", probabilities_of)  # by the tests' types
    with pytest.raises(lb.InputError, match=r"`msp\(prediction\)` is for one class.*per_label"):
        unchecked("msp(prediction)", classifier(inputs))


def test_unusual_inputs_are_noticed_at_the_stated_rate(judged):
    classifier, prediction, *_ = judged
    generator = seeded(8)
    far = 6 * torch.randn(500, NUM_FEATURES, generator=generator)
    assert prediction.ood_score.shape == (2000,)
    assert float(lb.metrics.auroc(prediction.ood_score, classifier(far).ood_score)) > 0.9
    # 75 held-out scores: the share above .95 is .95 ± .025 at two deviations
    assert 0.01 < float((prediction.ood_quantile > 0.95).float().mean()) < 0.11
    assert {"ood_score", "ood_quantile"} <= set(prediction.numpy())
    torch.testing.assert_close(prediction[[3, 8]].ood_score, prediction.ood_score[[3, 8]])
    torch.testing.assert_close(prediction.label(1).ood_score, prediction.ood_score)


def test_the_energy_is_that_of_all_answers_together():
    """logsumexp over all 2^K answers, of the logits of those labels that are said yes
    to.
    """
    logits = torch.randn(5, 3, generator=seeded(1), dtype=torch.float64)
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 3)
    torch.testing.assert_close(joint_logit(logits).squeeze(-1), (logits @ every.T).logsumexp(-1))


@pytest.mark.parametrize("scale", [1e20, 1e30, 3e37])
def test_rows_are_valid_for_features_whose_squares_no_number_holds(scale):
    head, inputs, labels = problem(1, 300, torch.float32)
    classifier = fitted(head, [(inputs, labels)])
    prediction = classifier(scale * torch.eye(NUM_FEATURES))
    assert prediction.mean.isfinite().all()
    for end in prediction.interval():
        assert ((end >= 0) & (end <= 1)).all()


def test_far_away_nothing_is_known():
    head, inputs, labels = problem(1, 300, torch.float32)
    held_out = problem(2, 300, torch.float32)[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = fitted(head, [(inputs, labels)], val_loader=[held_out], prior_precision=None)
    far = 1e30 * torch.randn(20, NUM_FEATURES, generator=seeded(4))
    torch.testing.assert_close(
        classifier(far).mean, torch.full((20, NUM_LABELS), 0.5), rtol=0, atol=1e-4
    )
    torch.testing.assert_close(classifier.probabilities(far), classifier(far).mean)


def test_scores_come_with_the_file_and_can_be_left_out(judged, tmp_path):
    classifier, *_ = judged
    inputs = torch.randn(9, NUM_FEATURES, generator=seeded(6))
    lb.save(classifier, tmp_path / "labels.safetensors")
    again = lb.load(tmp_path / "labels.safetensors", classifier.network.model)
    assert torch.equal(again(inputs).ood_quantile, classifier(inputs).ood_quantile)
    head, inputs, labels = problem()
    without = fitted(head, [(inputs, labels)], feature_statistics=False)
    assert without(inputs).knows_unusual == (False, False)
    with pytest.raises(lb.InputError, match="feature_statistics=True"):
        _ = without(inputs).ood_score


def test_blocks_of_rows_have_their_scores(judged, monkeypatch):
    classifier, *_ = judged
    inputs = torch.randn(30, NUM_FEATURES, generator=seeded(6))
    with torch.no_grad():
        expected = classifier(inputs)
        monkeypatch.setattr("laplacebridge._blocks.ELEMENTS_AT_ONCE", 7 * NUM_LABELS)
        found = classifier(inputs)
    torch.testing.assert_close(found.ood_score, expected.ood_score)
    torch.testing.assert_close(found.mean, expected.mean)


def test_a_frame_has_a_row_for_each_example_and_the_names(judged):
    pytest.importorskip("pandas")
    prediction = judged[1][:5]
    frame = prediction.to_pandas(["a", "b", "c"], level=0.5)
    assert (len(frame), list(frame)[:4]) == (5, ["labels", "p(a)", "lower(a)", "upper(a)"])
    values = prediction.numpy(0.5)
    for place, name in enumerate("abc"):
        for part in ("lower", "upper", "epistemic"):
            assert frame[f"{part}({name})"].tolist() == values[part][:, place].tolist()
    assert frame["ood_quantile"].tolist() == values["ood_quantile"].tolist()
    assert list(prediction.to_pandas())[1] == "p(0)"
    for names in (["a", "b"], ["a", "a", "b"]):
        with pytest.raises(lb.InputError, match="a name of its own for each of 3 labels"):
            prediction.to_pandas(names)


def test_rules_of_one_class_are_refused_and_names_are_kept(judged, tmp_path):
    classifier, prediction = judged[:2]
    rule = lb.selective.calibrate(lb.scores.msp, prediction.label(0), answer_share=0.5)
    with pytest.raises(lb.InputError, match=r"`with_rule\(rule\)`.*lb\.multi_label\.calibrate"):
        classifier.with_rule(rule)
    with pytest.raises(lb.InputError, match=r"`with_rule\(max_set_size\)`"):
        classifier.with_rule(max_set_size=2)
    with pytest.raises(lb.InputError, match=r"`decide`.*lb\.multi_label\.calibrate"):
        classifier.decide(torch.zeros(1, 4))
    carrying = classifier.with_rule(unusual_above=0.9)
    carrying.policy = Policy(rule)  # as a file may have it
    lb.save(carrying, tmp_path / "labels.safetensors")
    with pytest.raises(lb.InputError, match=r"`with_rule\(rule\)`"):
        lb.load(tmp_path / "labels.safetensors", classifier.network.model)
    named = classifier.with_rule(class_names=["a", "b", "c"], unusual_above=0.9)
    assert (named.class_names, named.policy.unusual_above) == (("a", "b", "c"), 0.9)
    assert isinstance(named(problem(4, 5, torch.float32)[1]), MultiLabelPrediction)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"risk": 0.1}, "risk"), ({"class_names": ["a", "a", "b"]}, "a name of its own")],
)
def test_a_report_refuses_what_it_would_ignore_or_lose(judged, options, words):
    _, inputs, labels = problem(4, 100, torch.float32)
    with pytest.raises(lb.InputError, match=words):
        lb.report.evaluate(judged[0], [(inputs, labels)], progress=False, **options)
