"""The edited-history probe, against the simulated server, whose cache is plain and exact."""

from dataclasses import replace

from pipeline.serving.client import HttpCompleter
from pipeline.serving.probe import CacheProbe, ProbeCall, conversation, edited_history_probe
from pipeline.serving.sim import SimConfig, serve
from pipeline.spec.model import ModelSpec


def test_a_plain_cache_keeps_what_stands_before_the_edit():
    model = ModelSpec(name="sim", kind="sim", repo="none")
    sim = serve(SimConfig())
    base_url = f"http://127.0.0.1:{sim.port}/v1"
    completer = HttpCompleter(model, base_url)
    try:
        probe = edited_history_probe(completer, model, base_url, salt="probe")
    finally:
        completer.close()
        sim.stop()
    fresh, again, appended, edited = (call.cached_tokens or 0 for call in probe.calls)
    assert fresh == 0
    assert again > 0.9 * probe.calls[1].prompt_tokens
    assert appended > 0.9 * again
    assert 0.3 * again < edited < 0.7 * again


def call(what: str, cached: int | None, lcp: int | None) -> ProbeCall:
    return ProbeCall(what=what, prompt_tokens=1000, cached_tokens=cached, lcp_tokens=lcp)


def probe_of(*calls: ProbeCall, block: int | None = 32, mode: str = "plain") -> CacheProbe:
    return CacheProbe(
        block_tokens=block, cache_mode=mode, max_num_batched_tokens=2048, calls=tuple(calls)
    )


def test_nothing_is_said_of_a_cache_that_the_server_does_not_mention():
    assert probe_of(call("fresh", None, None), block=None, mode="unknown").text() == ""
    assert "fresh" in probe_of(call("fresh", 0, None), block=None, mode="unknown").text()


def test_it_says_whether_the_server_follows_the_common_prefix():
    exact = probe_of(call("fresh", 0, 0), call("edited", 480, 500))
    assert exact.follows_prefix is True
    assert "in whole blocks" in exact.text()
    lossy = probe_of(call("fresh", 0, 0), call("edited", 0, 500), mode="align")
    assert lossy.follows_prefix is False
    assert "align, block 32 tokens, max_num_batched_tokens 2048" in lossy.text()
    assert "upper bound" in lossy.text()
    assert probe_of(call("fresh", 0, None)).follows_prefix is None
    assert probe_of(call("edited", None, 5), block=None).follows_prefix is None


def test_a_hybrid_is_expected_to_go_on_from_a_state_within_the_prefix():
    calls = [call("fresh", 0, 0), call("again", 992, 999), call("edited", 0, 500)]
    plain = probe_of(*calls)
    assert [plain.expected(c) for c in calls] == [0, 992, 480]
    assert plain.as_expected is False
    at_the_end = probe_of(*calls, mode="align")
    assert [at_the_end.expected(c) for c in calls] == [0, 992, 0]
    assert at_the_end.as_expected is True
    at_intervals = replace(at_the_end, state_interval_tokens=96)
    assert at_intervals.expected(calls[2]) == 480
    assert at_intervals.as_expected is False
    assert "480 expected" in at_intervals.text()


def test_every_turn_of_the_conversation_is_unlike_the_others():
    chat = conversation(5, 3)
    assert len({message["content"] for message in chat}) == len(chat)
    assert [m["role"] for m in chat[:3]] == ["system", "user", "assistant"]
