"""Temperature and width: what held-out labels reveal is what predictions say, and
intervals hold a known truth.
"""

import math
import warnings

import pytest
import torch
from cases import POSTERIORS, seeded
from small_network import examples, fit, loader
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace import revealed_error, width
from laplacebridge.laplace.posterior import AS_FITTED, Widening

WIDENING = Widening(
    temperature=2.0,
    variance_scale=0.5,
    temperature_variance=0.04,
    extra_variance=0.3,
    mean_share=0.25,
)


EVERY_POSTERIOR = pytest.mark.parametrize(
    "pair", POSTERIORS, ids=[kind.__name__ for _, kind in POSTERIORS]
)
KRON = (lb.laplace.Kron, lb.laplace.KronPosterior)


def posterior_of(pair):
    generator = seeded(3)
    features = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    bias = torch.randn(4, generator=generator, dtype=torch.float64)
    logits = nn.functional.linear(features, weight, bias)
    inputs = torch.cat([features, torch.ones(30, 1, dtype=torch.float64)], -1)
    curvature, kind = pair
    return kind(weight, bias, curvature.of_batch(inputs, logits.softmax(-1)), 0.7), features


# what a widening does


@EVERY_POSTERIOR
def test_a_widened_posterior_has_the_stated_mean_and_the_variance_of_the_formula(pair):
    posterior, features = posterior_of(pair)
    plain, (wide, narrow) = (
        posterior(features),
        posterior.widened(WIDENING).wide_and_narrow(features),
    )
    tempered = plain.mean / WIDENING.temperature
    torch.testing.assert_close(wide.mean, tempered)
    torch.testing.assert_close(narrow.mean, tempered)
    centred = tempered - tempered.mean(-1, keepdim=True)
    # the trace does not depend on the basis, in which some structures keep a diagonal
    # only
    expected = WIDENING.variance_scale * plain.covariance.to_dense().diagonal(dim1=-2, dim2=-1).sum(
        -1
    )
    expected = expected + WIDENING.temperature_variance * centred.square().sum(-1)
    found = [
        gaussian.covariance.to_dense().diagonal(dim1=-2, dim2=-1).sum(-1)
        for gaussian in (wide, narrow)
    ]
    torch.testing.assert_close(found[0], expected + 4 * WIDENING.extra_variance)
    torch.testing.assert_close(found[1], WIDENING.mean_share * expected)


def test_a_full_posterior_is_widened_exactly():
    posterior, features = posterior_of((lb.laplace.Full, lb.laplace.FullPosterior))
    wide = posterior.widened(WIDENING)(features)
    tempered = posterior(features).mean / WIDENING.temperature
    centred = (tempered - tempered.mean(-1, keepdim=True)).unsqueeze(-1)
    matrix = WIDENING.variance_scale * posterior(features).covariance.to_dense()
    matrix = matrix + WIDENING.temperature_variance * centred @ centred.mT
    matrix = matrix + WIDENING.extra_variance * torch.eye(4, dtype=matrix.dtype)
    torch.testing.assert_close(wide.covariance.to_dense(), matrix)


def test_a_kronecker_posterior_of_many_classes_is_widened_exactly():
    features = torch.randn(2, 3, generator=seeded(3), dtype=torch.float64)
    weight = torch.randn(1000, 3, generator=seeded(4), dtype=torch.float64)
    curvature = lb.laplace.Kron.of_batch(features, (features @ weight.T).softmax(-1))
    posterior = lb.laplace.KronPosterior(weight, None, curvature, 0.7)
    plain, (wide, narrow) = (
        posterior(features),
        posterior.widened(WIDENING).wide_and_narrow(features),
    )
    centred = plain.mean / WIDENING.temperature
    centred = centred - centred.mean(-1, keepdim=True)
    vector = torch.randn(2, 1000, generator=seeded(5), dtype=torch.float64)
    expected = WIDENING.variance_scale * plain.covariance.matvec(vector)
    along = (centred * vector).sum(-1, keepdim=True) * centred
    expected = expected + WIDENING.temperature_variance * along
    torch.testing.assert_close(
        wide.covariance.matvec(vector), expected + WIDENING.extra_variance * vector
    )
    torch.testing.assert_close(narrow.covariance.matvec(vector), WIDENING.mean_share * expected)


def test_a_posterior_as_it_was_fitted_has_one_gaussian():
    posterior, features = posterior_of(KRON)
    assert posterior.wide_and_narrow(features)[1] is None
    again = posterior.widened(WIDENING).widened(AS_FITTED)
    torch.testing.assert_close(
        again(features).covariance.to_dense(), posterior(features).covariance.to_dense()
    )


@pytest.mark.parametrize(
    "bad", [{"temperature": 0.0}, {"variance_scale": -1.0}, {"extra_variance": math.nan}]
)
def test_a_widening_out_of_range_is_refused(bad):
    posterior, _ = posterior_of(KRON)
    with pytest.raises(lb.InputError, match=r"positive|negative"):
        posterior.widened(WIDENING._replace(**bad))


@EVERY_POSTERIOR
def test_gradient_and_curvature_are_those_of_the_labels_likelihood(pair):
    posterior, features = posterior_of(pair)
    inputs = torch.cat([features, torch.ones(len(features), 1, dtype=torch.float64)], -1)
    probabilities = posterior(features).mean.softmax(-1)
    labels = torch.arange(len(features)) % 4
    residuals = nn.functional.one_hot(labels, 4) - probabilities
    gradient, curvature = posterior.gradient_and_curvature(inputs, residuals, probabilities)
    assert gradient.shape == curvature.shape == posterior.variances.shape
    # along any orthonormal axes the squares of the gradient, and the curvatures, have
    # the same sums
    by_weights = residuals.T @ inputs
    torch.testing.assert_close(gradient.square().sum(), by_weights.square().sum())
    total = (inputs.square().sum(-1) * (probabilities * (1 - probabilities)).sum(-1)).sum()
    torch.testing.assert_close(curvature.sum(), total)


# the rule


def logistic_regression(seed, num_train=400, num_held_out=300, num_features=5):
    """A well specified model with known probabilities, fitted by maximum a posteriori."""
    truth = 0.67 * torch.randn(2, num_features, generator=seeded(1), dtype=torch.float64)
    generator = seeded(1000 + seed)
    sizes = (num_train, num_held_out, 400)
    inputs = [
        torch.randn(size, num_features, generator=generator, dtype=torch.float64) for size in sizes
    ]
    chances = [(part @ truth.T).softmax(-1) for part in inputs]
    labels = [torch.multinomial(chance, 1, generator=generator).squeeze(-1) for chance in chances]
    head = nn.Linear(num_features, 2, dtype=torch.float64)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = nn.functional.cross_entropy(head(inputs[0]), labels[0], reduction="sum")
        value = value + 0.5 * head.weight.square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return head, [(inputs[0], labels[0])], [(inputs[1], labels[1])], inputs[2], chances[2]


def test_intervals_of_logistic_regression_hold_the_true_probability():
    covered, widths, excess = [], [], []
    for seed in range(8):
        head, training, held_out, inputs, chances = logistic_regression(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in some of them the gap is smaller than its error
            classifier = lb.fit(head, training, val_loader=held_out, progress=False)
        with torch.no_grad():
            prediction = classifier(inputs)
            scaling = lb.temperature.temperature_scaling(head(held_out[0][0]), held_out[0][1])
            scaled = scaling(head(inputs))
        lower, upper = prediction.interval(0.95)
        covered.append(((lower <= chances) & (chances <= upper)).double().mean().item())
        widths.append((upper - lower).mean().item())
        nll = [
            -(chances * probabilities.log()).sum(-1).mean().item()
            for probabilities in (prediction.mean, scaled)
        ]
        excess.append(nll[0] / nll[1] - 1)
    assert sum(covered) / 8 >= 0.88
    # the posterior's own are .21 wide: three hundred labels cannot tell that it is right
    assert sum(widths) / 8 < 0.5
    assert sum(excess) / 8 < 0.01


def overfitted(seed=0):
    """A network that knows its training labels by heart, a fifth of which are wrong."""
    inputs, labels = examples(300, seed=seed)
    flipped = torch.rand(300, generator=seeded(seed)) < 0.2
    labels = torch.where(flipped, (labels + 1) % 3, labels)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 3))
        optimiser = torch.optim.Adam(model.parameters(), 1e-2)
        for _ in range(600):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[:150]), labels[:150]).backward()
            optimiser.step()
    return model, [(inputs[:150], labels[:150])], [(inputs[150:], labels[150:])]


def test_a_network_that_fits_its_own_labels_better_than_others_is_widened():
    model, training, held_out = overfitted()
    with pytest.warns(UserWarning, match="fits its training labels far better than others"):
        classifier = lb.fit(model, training, val_loader=held_out, progress=False)
    found = classifier.prior_choice.width
    assert found.widening.extra_variance > 0
    assert found.held_out_brier > found.training_brier
    assert found.error == pytest.approx(max(found.gap_error, found.neighbour_error), rel=0.15)
    with torch.no_grad():
        wide, plain = (
            c(held_out[0][0]).interval()
            for c in (classifier, fit(model, training, prior_precision=100.0))
        )
    assert (wide[1] - wide[0]).mean() > 2 * (plain[1] - plain[0]).mean()


def test_a_network_that_is_too_sure_of_all_labels_is_not_told_it_knows_its_own():
    sure = WIDTH._replace(network_temperature=5.0, training_brier=0.6, held_out_brier=0.5)
    assert not any("far better" in sentence for sentence in sure.warnings())
    own = sure._replace(training_brier=0.1)
    assert any("far better" in sentence for sentence in own.warnings())


def test_the_mean_stays_near_temperature_scaling():
    model, training, held_out = overfitted()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = lb.fit(model, training, val_loader=held_out, progress=False)
    with torch.no_grad():
        logits = model(held_out[0][0]).double()
        scaled = lb.temperature.temperature_scaling(logits, held_out[0][1])(logits)
        nll = [
            lb.metrics.nll(prediction, held_out[0][1])
            for prediction in (classifier(held_out[0][0]), scaled)
        ]
    assert nll[0] < 1.01 * nll[1]


def test_a_mean_that_labels_deny_is_not_taken_although_it_is_near():
    """Two groups, the network too sure of one and not sure enough of the other, which
    it has hardly seen: doubting that one is a small step away from temperature scaling,
    in the wrong direction.
    """
    head = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[3.0, 1.2], [0.0, 0.0]]))
    groups = torch.eye(2, dtype=torch.float64)

    def rows(first, second, wrong):
        inputs = groups.repeat_interleave(torch.tensor([first, second]), 0)
        return inputs, (torch.arange(first + second) < wrong).long()

    inputs, labels = rows(300, 100, wrong=45)  # all of the first group
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = lb.fit(
            head, [rows(400, 5, wrong=20)], val_loader=[(inputs, labels)], progress=False
        )
    with torch.no_grad():
        scaled = lb.temperature.temperature_scaling(head(inputs), labels)(head(inputs))
        ours = lb.metrics.nll(classifier(inputs), labels)
    assert classifier.prior_choice.width.widening.mean_share > 0
    assert ours < 1.006 * lb.metrics.nll(scaled, labels)  # 1.058 where nearness alone decides


@pytest.mark.parametrize("waves", [3, 12])
def test_labels_that_agree_with_their_neighbours_reveal_an_error(waves):
    generator = seeded(5)
    places = torch.rand(600, 2, generator=generator, dtype=torch.float64)
    wave = 0.4 * torch.sin(waves * math.pi * places[:, :1])
    chances = torch.cat([0.5 + wave, 0.5 - wave], -1)
    labels = torch.multinomial(chances, 1, generator=generator).squeeze(-1)
    logits = torch.zeros(600, 2, dtype=torch.float64)  # which say one half everywhere
    expected = (chances - 0.5).square().sum(-1).mean().item()
    # whether it changes slowly or fast; a kernel of one width says 1.9 or 1.0 times as much
    assert 0.9 * expected < revealed_error.shared_residuals(places, logits, labels) < 1.7 * expected
    shuffled = labels[torch.randperm(600, generator=generator)]
    assert revealed_error.shared_residuals(places, logits, shuffled) < 0.3 * expected


def test_a_handful_of_examples_has_no_neighbours():
    places, logits = torch.zeros(5, 2), torch.zeros(5, 2, dtype=torch.float64)
    assert revealed_error.shared_residuals(places, logits, torch.zeros(5, dtype=torch.long)) == 0


def test_errors_in_the_tails_are_found():
    """One width of kernel for all examples asks the dense middle alone."""
    generator = seeded(6)
    drawn = torch.randn(600, 1, generator=generator, dtype=torch.float64)
    places = drawn * drawn.norm(dim=-1, keepdim=True).square()  # a dense middle, long tails
    wrong = 0.4 * (places.norm(dim=-1, keepdim=True) > 2.0)
    chances = torch.cat([0.5 + wrong, 0.5 - wrong], -1)
    labels = torch.multinomial(chances, 1, generator=generator).squeeze(-1)
    logits = torch.zeros(600, 2, dtype=torch.float64)
    expected = (chances - 0.5).square().sum(-1).mean().item()
    found = revealed_error.shared_residuals(places, logits, labels)
    assert 0.6 * expected < found < 1.7 * expected


def test_intervals_widen_with_log_odds_and_means_and_dirichlets_do_not():
    mean = torch.tensor([[0.0, -2.0, -6.0, -30.0]], dtype=torch.float64)
    gaussian = lb.LogitGaussian(mean, lb.Diagonal(torch.full_like(mean, 0.4)))
    plain, apart = lb.predict(gaussian), lb.bridges.predict_apart(gaussian, gaussian)
    torch.testing.assert_close(apart.dirichlet.mean, plain.dirichlet.mean)
    odds = plain.mean.logit()
    grown = apart.log_odds_variance / plain.log_odds_variance
    torch.testing.assert_close(grown[:, :3], 1 + odds[:, :3].square() / 10)
    assert apart.log_odds_variance[0, 3] == 4  # and no further: the upper end would fall
    assert (apart.interval()[1] > plain.interval()[1]).all()


@pytest.mark.parametrize("log_odds", [0.5, 3.0, 3.8, 4.2, 4.6, 5.0, 6.0, 9.0, 20.0])
def test_a_wider_gaussian_never_brings_an_end_of_an_interval_nearer(log_odds):
    variances = torch.logspace(-2, 3, 60, dtype=torch.float64)[:, None]
    mean = torch.tensor([[log_odds, 0.0]], dtype=torch.float64).expand(len(variances), 2)
    narrow = lb.LogitGaussian(mean, lb.Diagonal(torch.zeros_like(mean)))
    wide = lb.LogitGaussian(mean, lb.Diagonal(variances.expand(-1, 2) / 2))
    prediction = lb.bridges.predict_apart(wide, narrow)
    lower, upper = prediction.interval(0.95)
    assert ((lower <= prediction.mean) & (prediction.mean <= upper)).all()
    # of the sure class the lower end, of the other the upper one: each the farther
    assert (lower[1:, 0] <= lower[:-1, 0] + 0.01 * (1 - lower[:-1, 0])).all()
    assert (upper[1:, 1] >= 0.99 * upper[:-1, 1]).all()


@pytest.mark.parametrize("number", [1, 2, 20])
def test_few_held_out_labels_are_enough_to_run(model, number):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = fit(model, val_loader=[examples(number, seed=4)])
    assert classifier.prior_choice.width.num_labels == number
    assert classifier(examples(5, seed=6)[0]).interval()[0].isfinite().all()


def test_labels_that_are_all_right_do_not_make_the_network_certain(model):
    inputs, _ = examples(30, seed=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = fit(model, val_loader=[(inputs, model(inputs).argmax(-1))])
    assert classifier.prior_choice.width.network_temperature > 0.05


WIDTH = width.Width(
    WIDENING, 0.02, 0.01, 0.02, 0.04, 0.0, 1.2, 0.1, 0.14, num_labels=50, num_tried=50
)


def test_too_few_labels_to_check_the_width_are_said_with_how_many_would_do():
    (message,) = WIDTH.warnings()
    assert "With 50 held-out labels the width of intervals cannot be checked" in message
    assert "About 200 would do" in message


def test_validation_data_that_were_trained_on_are_noticed():
    (message,) = WIDTH._replace(training_brier=0.5, gap_standard_error=0.01).warnings()
    assert "Was it trained on them?" in message


@pytest.mark.filterwarnings("ignore")
def test_the_training_data_as_held_out_data_are_noticed_in_any_order_and_batches():
    torch.manual_seed(0)
    inputs, labels = torch.randn(120, 4), torch.randint(3, (120,))
    order, others = torch.randperm(120), torch.randint(3, (120,))
    shuffled = [(inputs[some], labels[some]) for some in order.split(32)]
    network = torch.nn.Linear(4, 3)
    with pytest.warns(UserWarning, match="The held-out data are the training data: 120 labels"):
        lb.fit(network, [(inputs, labels)], val_loader=shuffled, progress=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The held-out data are")
        lb.fit(network, [(inputs, labels)], val_loader=[(inputs, others)], progress=False)


def test_a_sentence_says_what_the_intervals_rest_on():
    text = WIDTH.described(num_classes=2)
    assert "error of the probabilities 0.100 per class" in text
    assert "posterior 50%, gap 50%" in text
    assert "the posterior alone" in WIDTH._replace(error=0.01).described(2)


def test_without_training_labels_the_likelihood_of_held_out_labels_chooses(model):
    classifier = fit(model, [examples(100)[0]], val_loader=loader(100, seed=4))
    assert classifier.prior_choice.width is None
    assert "validation" in classifier.prior_choice.method


def test_the_width_is_saved(model, tmp_path):
    classifier = fit(model, val_loader=loader(200, seed=4))
    lb.save(classifier, tmp_path / "c.safetensors")
    loaded = lb.load(tmp_path / "c.safetensors", model)
    assert loaded.prior_choice.width == classifier.prior_choice.width
    inputs, _ = examples(20, seed=5)
    torch.testing.assert_close(
        loaded(inputs).interval()[0], classifier(inputs).interval()[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "options", [{"curvature": lb.laplace.Diag}, {"curvature": lb.laplace.Full}, {"layers": "*"}]
)
def test_every_structure_has_a_width(model, options):
    classifier = fit(model, val_loader=loader(150, seed=4), **options)
    found = classifier.prior_choice.width
    assert found.error > 0
    prediction = classifier(examples(50, seed=5)[0])
    lower, upper = prediction.interval()
    assert (lower <= upper).all()
    assert (lower < upper).double().mean() > 0.9  # but where float32 says one or zero for both


def test_probabilities_alone_are_the_mean_of_predictions(model):
    classifier = fit(model, val_loader=loader(200, seed=4))
    inputs, _ = examples(30, seed=5)
    torch.testing.assert_close(
        classifier.probabilities(inputs), classifier(inputs).mean, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("number", [30, 100])
def test_a_network_is_not_made_much_surer_by_labels_that_happen_to_be_right(number):
    logits = torch.tensor([[3.0, 0.0, 0.0]], dtype=torch.float64).repeat(number, 1)  # 91 % sure
    temperature, _ = revealed_error.network_temperature(logits, torch.zeros(number).long())
    assert 0.5 < temperature <= 1


def test_a_few_errors_less_than_expected_make_no_network_surer():
    """One in ten is expected to be wrong; of fifteen none is, which is chance."""
    logits = torch.tensor([[9.0, 1.0]], dtype=torch.float64).log()
    unclear, _ = revealed_error.network_temperature(logits.repeat(15, 1), torch.zeros(15).long())
    clear, _ = revealed_error.network_temperature(logits.repeat(60, 1), torch.zeros(60).long())
    assert unclear == 1
    assert clear < 0.9


def test_a_network_that_is_not_sure_enough_is_made_surer():
    logits = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64).repeat(400, 1)
    labels = (torch.arange(400) % 20 == 0).long()  # 95 % right, where 58 % were promised
    temperature, _ = revealed_error.network_temperature(logits, labels)
    assert temperature == pytest.approx(1 / math.log(0.95 / 0.025), rel=0.1)


def test_what_many_classes_make_unaffordable_is_said():
    assert "affordable" not in WIDTH.described(3)
    some = WIDTH._replace(num_labels=5000, num_tried=16)
    assert some.described(100_000).endswith("; tried on 16 of them, as many as are affordable")


@pytest.mark.parametrize(("number", "is_told"), [(1, True), (10, True), (60, False)])
def test_a_handful_of_held_out_labels_is_spoken_of(number, is_told):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 4, generator=generator)
    labels = (inputs[:, 0] + 0.5 * torch.randn(300, generator=generator) > 0).long()
    head = torch.nn.Linear(4, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[-1.5, 0, 0, 0], [1.5, 0, 0, 0]]))
        head.bias.zero_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lb.fit(
            head,
            [(inputs[:200], labels[:200])],
            val_loader=[(inputs[200 : 200 + number], labels[200 : 200 + number])],
            progress=False,
        )
    told = [str(each.message) for each in caught]
    assert any("held-out labels" in text and "would do" in text for text in told) == is_told
