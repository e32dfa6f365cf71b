"""The head in the engine without vLLM: where outputs are in a prompt, and the table of scores."""

from tests.linehead.extra import need_torch

need_torch()

from dataclasses import asdict  # noqa: E402
from types import SimpleNamespace  # noqa: E402

import pytest  # noqa: E402
import torch  # noqa: E402

from pipeline.linehead.backbone_name import BackboneName  # noqa: E402
from pipeline.linehead.checkpoint import load_head, save_head  # noqa: E402
from pipeline.linehead.head import LineHead  # noqa: E402
from pipeline.linehead.serving.engine_check import check_supported  # noqa: E402
from pipeline.linehead.serving.locate import located_outputs  # noqa: E402
from pipeline.linehead.serving.scorer import HeadMismatchError, Scorer  # noqa: E402
from pipeline.linehead.settings import HeadSettings  # noqa: E402
from pipeline.views.kept_lines import OutputTokens  # noqa: E402
from tests.linehead.runs import many_lines  # noqa: E402
from tests.linehead.tiny import tiny_tokenizer  # noqa: E402

TOKENIZER = tiny_tokenizer()


def chat(*contents):
    messages = [{"role": "tool", "content": c} for c in ("You fix bugs.", *contents)]
    text = TOKENIZER.apply_chat_template(messages, tokenize=False)
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def text_of(ids, place):
    assert isinstance(place, OutputTokens)
    return TOKENIZER.decode(ids[place.start : place.end])


# --- where outputs are ---------------------------------------------------------------------------
def test_outputs_are_found_by_their_text_in_order():
    first, second = many_lines(5, "é☃"), many_lines(3, "two\r")
    ids = chat(many_lines(40, "before"), first, "between", second)
    places = located_outputs(TOKENIZER, ids, [first, second])
    assert [text_of(ids, p) for p in places] == [first, second]
    assert [p.lines.n_lines for p in places] == [5, 3]


def test_the_same_text_twice_is_two_places():
    text = many_lines(4)
    ids = chat(text, "between", text)
    first, second = located_outputs(TOKENIZER, ids, [text, text])
    assert first.end <= second.start
    assert text_of(ids, first) == text_of(ids, second) == text


def test_an_old_output_far_from_the_end_is_found_too():
    old = many_lines(3, "old")
    ids = chat(old, *[many_lines(60, f"later {i}") for i in range(8)])
    (place,) = located_outputs(TOKENIZER, ids, [old])
    assert text_of(ids, place) == old


def test_an_output_that_is_not_there_is_a_reason_and_the_others_are_found():
    text = many_lines(4)
    ids = chat(text)
    missing, found = located_outputs(TOKENIZER, ids, ["not in the prompt", text])
    assert "does not show" in missing
    assert text_of(ids, found) == text


def test_tokens_that_do_not_come_back_the_same_are_a_reason():
    ids = chat(many_lines(4))
    # One letter a token: decodes to the same text, which encodes otherwise.
    letters = [
        i for c in many_lines(4) for i in TOKENIZER(c, add_special_tokens=False)["input_ids"]
    ]
    (reason,) = located_outputs(TOKENIZER, [*ids[:5], *letters], [many_lines(4)])
    assert "do not come back the same" in reason


# --- the table -----------------------------------------------------------------------------------
@pytest.fixture
def head(tmp_path):
    torch.manual_seed(0)
    made = LineHead(6).eval()
    torch.nn.init.normal_(made.lengths.weight)
    card = {
        "hidden_size": 6,
        "backbone": "org/b",
        "revision": "r1",
        "head": asdict(HeadSettings()),
        "threshold": 0.5,
    }
    save_head(tmp_path / "head", made, card)
    return tmp_path / "head"


SERVED = BackboneName(repo="b")


def scorer_of(head, n_slots=20):
    scorer = Scorer(head, hidden_size=6, served=SERVED)
    scorer.allocate(n_slots, torch.device("cpu"), "layer.0")
    return scorer


def test_scores_lie_in_the_slots_of_their_tokens_whatever_the_padding(head):
    scorer = scorer_of(head)
    hidden = torch.randn(5, 6)
    slots = torch.tensor([7, 3, 12, -1, -1])
    scorer.after_forward(hidden, {"layer.0": slots, "layer.1": slots + 1})
    trained = load_head(head).head
    for bucket in (0, 5):
        expected = torch.sigmoid(trained(hidden[:3], torch.tensor(bucket))).tolist()
        assert scorer.read([7, 3, 12], bucket) == pytest.approx(expected, abs=1e-6)
    assert all(s != s for s in scorer.read([0, 1, 2], 0))


def test_a_slot_that_is_used_again_has_the_new_tokens_score(head):
    scorer = scorer_of(head)
    first, second = torch.randn(1, 6), torch.randn(1, 6)
    slot = {"layer.0": torch.tensor([4])}
    scorer.after_forward(first, slot)
    before = scorer.read([4], 2)
    scorer.after_forward(second, slot)
    assert scorer.read([4], 2) != before


def test_a_head_in_a_half_precision_engine_computes_in_full(head):
    torch.set_default_dtype(torch.bfloat16)
    try:
        scorer = scorer_of(head)
        hidden = torch.randn(3, 6)
        scorer.after_forward(hidden, {"layer.0": torch.tensor([0, 1, 2])})
    finally:
        torch.set_default_dtype(torch.float32)
    expected = torch.sigmoid(load_head(head).head(hidden, torch.tensor(1))).tolist()
    assert scorer.read([0, 1, 2], 1) == pytest.approx(expected, abs=1e-6)


def test_a_head_that_fails_is_off_says_why_and_raises_nothing(head, caplog):
    scorer = scorer_of(head)
    scorer.after_forward(torch.randn(3, 5), {"layer.0": torch.tensor([0, 1, 2])})
    assert "the line head failed: RuntimeError" in scorer.failure
    assert "switched off" in caplog.text
    scorer.after_forward(torch.randn(3, 6), {"layer.0": torch.tensor([0, 1, 2])})
    assert all(s != s for s in scorer.read([0, 1, 2], 0))


def test_the_heads_time_is_added_up_until_it_is_asked_for(head):
    ticks = iter((0.0, 1.0, 1.5, 7.0, 7.25, 9.0, 9.125))
    scorer = Scorer(head, hidden_size=6, served=SERVED, clock=lambda: next(ticks))
    # Before the cache exists no request does: an engine measures its memory then.
    scorer.after_forward(torch.randn(3, 6), {})
    scorer.allocate(20, torch.device("cpu"), "layer.0")
    for _ in range(2):
        scorer.after_forward(torch.randn(3, 6), {})
    assert scorer.take_step_s() == 0.75
    scorer.after_forward(torch.randn(3, 6), {})
    assert scorer.take_step_s() == 0.125
    assert scorer.take_step_s() == 0.0


def test_on_a_device_that_computes_behind_our_back_the_heads_time_is_unknown(head):
    scorer = scorer_of(head)
    scorer.after_forward(torch.randn(3, 6, device="meta"), {})
    assert scorer.failure is None
    assert scorer.take_step_s() is None


def test_before_the_cache_exists_tokens_are_scored_and_nothing_is_kept(head):
    scorer = Scorer(head, hidden_size=6, served=SERVED)
    scorer.after_forward(torch.randn(3, 6), {"layer.0": torch.tensor([0, 1, 2])})
    assert scorer.failure is None


@pytest.mark.parametrize(
    ("served", "hidden_size"),
    [
        (BackboneName(repo="b"), 8),
        (BackboneName(repo="org/another"), 6),
        (BackboneName(repo="org/b", revision="r2"), 6),
    ],
)
def test_a_head_of_another_backbone_is_refused(head, served, hidden_size):
    with pytest.raises(HeadMismatchError, match="trained on org/b at r1, hidden size 6; the serve"):
        Scorer(head, hidden_size=hidden_size, served=served)


# --- engines -------------------------------------------------------------------------------------
def engine(*, head=True, untested=False, **more):
    """Return what is read of vLLM's configuration; tests/system reads a real one."""
    extra = {"head": "folder", **({"allow_untested": True} if untested else {})}
    given = {"stages": 1, "eager": True, "v2": False, "drafts": None, **more}
    return SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config=extra if head else None),
        parallel_config=SimpleNamespace(pipeline_parallel_size=given["stages"]),
        model_config=SimpleNamespace(enforce_eager=given["eager"]),
        speculative_config=given["drafts"],
        use_v2_model_runner=given["v2"],
    )


UNTESTED = {
    "--enforce-eager": {"eager": False},
    "VLLM_USE_V2_MODEL_RUNNER=0": {"v2": True},
    "no speculative decoding": {"drafts": object()},
}


@pytest.mark.parametrize(("needed", "changed"), UNTESTED.items())
def test_what_nobody_compared_is_refused_unless_it_is_allowed(needed, changed):
    with pytest.raises(HeadMismatchError, match=f"only with {needed}; add that, or .*compare"):
        check_supported(engine(**changed))
    check_supported(engine(**changed, untested=True))


def test_everything_that_is_missing_is_named_at_once():
    with pytest.raises(HeadMismatchError, match="only with --enforce-eager, VLLM_USE_V2"):
        check_supported(engine(eager=False, v2=True))


def test_pipeline_stages_are_refused_whatever_is_allowed_and_so_is_a_server_without_a_head():
    check_supported(engine())
    with pytest.raises(HeadMismatchError, match="--pipeline-parallel-size 1"):
        check_supported(engine(stages=2, untested=True))
    with pytest.raises(HeadMismatchError, match=r"docs/linehead\.md"):
        check_supported(engine(head=False))
