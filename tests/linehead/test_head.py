"""The head, its losses and its schedule, against formulas written out."""

import math

from tests.linehead.extra import need_torch

need_torch()

import pytest  # noqa: E402
import torch  # noqa: E402

from pipeline.linehead.head import LineHead  # noqa: E402
from pipeline.linehead.losses import loss_named  # noqa: E402
from pipeline.linehead.training import LOSSES, learning_rate  # noqa: E402


def head(**more):
    torch.manual_seed(0)
    return LineHead(6, **more).eval()


def test_the_head_is_norm_two_wide_layers_and_one_logit():
    kinds = [type(layer).__name__ for layer in head().layers]
    assert kinds == [
        *("LayerNorm", "Linear", "GELU", "Dropout", "Linear", "GELU", "Dropout", "Linear")
    ]
    assert head().n_parameters == 8 * 6 + 2 * 6 + 2 * (36 + 6) + 7
    assert head(length_embedding=False).n_parameters == 2 * 6 + 2 * (36 + 6) + 7
    assert head()(torch.randn(5, 6), torch.tensor(3)).shape == (5,)


def test_length_says_nothing_until_it_is_trained():
    hidden = torch.randn(4, 6)
    untrained = head()
    assert torch.equal(untrained(hidden, torch.tensor(0)), untrained(hidden, torch.tensor(7)))
    torch.nn.init.normal_(untrained.lengths.weight)
    assert not torch.equal(untrained(hidden, torch.tensor(0)), untrained(hidden, torch.tensor(7)))


def test_scores_for_every_bucket_are_those_of_each():
    trained = head()
    for parameter in trained.parameters():
        torch.nn.init.normal_(parameter)
    # Some dimensions of a real model's states are hundreds of times larger than the others.
    hidden = (torch.randn(5, 6) * torch.tensor([1, 1, 300, 1, 0.01, 1])).to(torch.bfloat16)
    columns = trained.scores_by_bucket(hidden)
    assert columns.shape == (5, 8)
    for bucket in range(8):
        expected = torch.sigmoid(trained(hidden, torch.tensor(bucket)))
        torch.testing.assert_close(columns[:, bucket], expected)
    assert head(length_embedding=False).scores_by_bucket(hidden).shape == (5, 1)


def test_half_precision_states_are_computed_in_full():
    hidden = torch.randn(5, 6, dtype=torch.bfloat16)
    bucket = torch.tensor(1)
    torch.testing.assert_close(head()(hidden, bucket), head()(hidden.float(), bucket))
    assert head()(hidden, bucket).dtype == torch.float32


# --- losses --------------------------------------------------------------------------------------
LOGITS = torch.tensor([2.0, -1.0, 0.5, -3.0, 1.0])
TARGETS = torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0])
SAMPLES = torch.tensor([0, 0, 0, 0, 1])


def focal(logit, target, gamma=2.0):
    p = 1 / (1 + math.exp(-logit))
    truth = p if target else 1 - p
    return (1 - truth) ** gamma * -math.log(truth)


def loss(name, logits=LOGITS, targets=TARGETS, samples=SAMPLES, n=2, gamma=2.0):
    return float(loss_named(name, gamma=gamma)(logits, targets, samples, n))


def test_the_balanced_loss_averages_classes_within_a_sample_then_samples():
    keep = (focal(2.0, 1) + focal(-1.0, 1)) / 2
    prune = (focal(0.5, 0) + focal(-3.0, 0)) / 2
    # The second sample has one class, which counts alone.
    assert loss("balanced_focal") == pytest.approx(((keep + prune) / 2 + focal(1.0, 1)) / 2)


def test_many_easy_tokens_of_one_class_do_not_drown_the_other():
    logits = torch.tensor([-1.0] + [-4.0] * 99)
    targets = torch.tensor([1.0] + [0.0] * 99)
    samples = torch.zeros(100, dtype=torch.long)
    few = loss("balanced_focal", logits[:2], targets[:2], samples[:2], 1)
    assert loss("balanced_focal", logits, targets, samples, 1) == pytest.approx(few)
    assert loss("corpus_focal", logits, targets, samples, 1) < few / 10


def test_plain_losses_average_over_all_tokens():
    pairs = list(zip(LOGITS.tolist(), TARGETS.tolist(), strict=True))
    assert loss("corpus_focal") == pytest.approx(sum(focal(z, y) for z, y in pairs) / 5)
    assert loss("bce") == pytest.approx(sum(focal(z, y, 0.0) for z, y in pairs) / 5)
    assert loss("corpus_focal", gamma=0.0) == pytest.approx(loss("bce"))


def test_tversky_weighs_missed_lines_more_and_dice_both_the_same():
    p = torch.sigmoid(LOGITS).tolist()
    hits = [p[0] + p[1], p[4]]
    missed = [2 - p[0] - p[1], 1 - p[4]]
    extra = [p[2] + p[3], 0.0]
    for name, a, b in (("dice", 0.5, 0.5), ("tversky", 0.7, 0.3)):
        index = [
            (h + 1) / (h + a * m + b * e + 1) for h, m, e in zip(hits, missed, extra, strict=True)
        ]
        assert loss(name) == pytest.approx(sum(1 - i for i in index) / 2, rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_falls_when_the_logits_turn_to_the_truth(name):
    logits = torch.zeros(5, requires_grad=True)
    value = loss_named(name, gamma=2.0)(logits, TARGETS, SAMPLES, 2)
    value.backward()
    assert ((logits.grad < 0) == (TARGETS == 1)).all()
    assert loss(name, 8 * (2 * TARGETS - 1)) < loss(name, torch.zeros(5))


def test_alpha_weighs_keep_tokens_and_the_rest_gets_what_is_left():
    for name in ("balanced_focal", "corpus_focal"):
        weighed = [
            loss_named(name, gamma=2.0, alpha=a)(torch.tensor([1.3]), target, torch.tensor([0]), 1)
            for a, target in ((0.75, torch.ones(1)), (0.75, torch.zeros(1)))
        ]
        assert weighed[0] == pytest.approx(0.75 * focal(1.3, 1))
        assert weighed[1] == pytest.approx(0.25 * focal(1.3, 0))


# --- schedule ------------------------------------------------------------------------------------
def test_the_rate_warms_up_for_a_twentieth_and_ends_at_half():
    def rate(step):
        return learning_rate(step, 200, first=3e-5, last=1.5e-5, warmup_share=0.05)

    assert rate(0) == pytest.approx(3e-6)
    assert (rate(9), rate(10)) == pytest.approx((3e-5, 3e-5))
    assert rate(105) == pytest.approx(2.25e-5, rel=0.01)
    assert rate(199) == pytest.approx(1.5e-5)
    rates = [rate(s) for s in range(10, 200)]
    assert rates == sorted(rates, reverse=True)


def test_a_training_of_one_step_has_a_rate():
    assert learning_rate(0, 1, first=3e-5, last=1.5e-5, warmup_share=0.05) > 0
