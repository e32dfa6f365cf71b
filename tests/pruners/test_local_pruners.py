"""Each pruner with a model in the worker: it acts as its rule says, and survives any text."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.arms.llmlingua2 import LlmLingua2
from pipeline.arms.longcodezip import LongCodeZip
from pipeline.arms.rag import Rag
from pipeline.arms.selective_context import SelectiveContext
from pipeline.protocols import LinePruner, PrunerError
from pipeline.records.failure import NodeError
from pipeline.spec.arm import ArmSpec
from pipeline.views.kept_lines import count_lines
from tests.linehead.extra import need_torch
from tests.pruners.outputs import ODD, request, shown

need_torch()

import torch  # noqa: E402

from pipeline.pruners.local_model import LocalModel  # noqa: E402
from pipeline.pruners.pool import PrunerPool  # noqa: E402
from tests.pruners.stand_ins import language_model, reranker, token_classifier  # noqa: E402

pytestmark = pytest.mark.torch

Made = Callable[..., LinePruner]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "llmlingua2": token_classifier(root / "classifier"),
        "rag": reranker(root / "reranker"),
        "selective_context": language_model(root / "lm"),
        "longcodezip": language_model(root / "long", positions=1024),
    }


@pytest.fixture(scope="module")
def pruner(models: dict[str, Path]) -> Made:
    kinds: dict[str, Any] = {
        "llmlingua2": LlmLingua2,
        "rag": Rag,
        "selective_context": SelectiveContext,
        "longcodezip": LongCodeZip,
    }

    def make(kind: str, **spec: object) -> LinePruner:
        policy = kinds[kind](model=kind, path=str(models[kind]), **spec)
        arm = ArmSpec(name=kind, policy=policy)
        made = PrunerPool([arm]).of(arm)
        assert made is not None
        return made

    return make


KINDS = ("llmlingua2", "selective_context", "longcodezip", "rag")


# --- llmlingua2 ----------------------------------------------------------------------------------
def test_llmlingua2_keeps_the_lines_whose_tokens_the_classifier_keeps(pruner: Made) -> None:
    text = "".join(f"{'!!!!' if i % 3 == 0 else 'abcd'}{i}\n" for i in range(9))
    kept = pruner("llmlingua2").prune(request(text, None))
    assert shown(text, kept) == "!!!!0\n!!!!3\n!!!!6"


def test_llmlingua2_spends_the_rate_and_at_most_one_line_more(pruner: Made) -> None:
    text = "".join(f"ab{'!' * (i % 7)}\n" for i in range(60))
    for rate in (0.0, 0.1, 0.33, 0.9, 1.0):
        kept = pruner("llmlingua2", rate=rate).prune(request(text))
        assert kept is not None
        lines = text.splitlines(keepends=True)
        spent = sum(len(line) for line, stays in zip(lines, kept, strict=True) if stays)
        assert rate * len(text) <= spent < rate * len(text) + 10 or spent == rate == 0


def test_a_long_output_is_read_in_windows_and_decided_as_one(pruner: Made) -> None:
    """The classifier sees 128 tokens; the best lines of all windows compete."""
    lines = [f"plain line number {i}\n" for i in range(200)]
    lines[7] = lines[150] = "!!!! !!!! !!!!\n"
    kept = pruner("llmlingua2", rate=0.005).prune(request("".join(lines)))
    assert [i for i, stays in enumerate(kept or ()) if stays] == [7, 150]


def test_tokens_that_skip_newlines_and_normalise_still_lie_on_their_lines(tmp_path: Path) -> None:
    """XLM-RoBERTa's do: a blank line has none, and a ligature has two with one place."""
    path = str(token_classifier(tmp_path, pieces=True))
    arm = ArmSpec(name="l", policy=LlmLingua2(model="m", path=path, rate=0.2))
    made = PrunerPool([arm]).of(arm)
    assert made is not None
    text = "plain\n\n\u00a0\n\ufb01ne\r\n\uff01\uff01\uff01\n\nplain again\n!!! \ufb01n\n\n"
    kept = made.prune(request(text))
    assert shown(text, kept) == "\uff01\uff01\uff01\n!!! \ufb01n"
    assert len(kept or ()) == count_lines(text)


# --- selective_context ---------------------------------------------------------------------------
def test_selective_context_keeps_what_could_not_have_been_guessed(pruner: Made) -> None:
    text = "".join("4711 90210\n" if i % 4 == 0 else "aaaa aaaaa\n" for i in range(8))
    kept = pruner("selective_context", reduce_ratio=0.75).prune(request(text, None))
    assert shown(text, kept) == "4711 90210\n4711 90210"


def test_selective_context_halves_a_text_longer_than_its_window(pruner: Made) -> None:
    text = "".join(f"{'12345' if i % 2 else 'aaaaa'} aaaa\n" for i in range(200))
    kept = pruner("selective_context").prune(request(text))
    assert kept is not None
    assert sum(kept) == 100
    assert sum(kept[1::2]) > 95, "lines with digits are the surprising ones in every window"


# --- rag -----------------------------------------------------------------------------------------
def test_rag_keeps_the_windows_that_fit_best(pruner: Made) -> None:
    lines = [f"plain {i}\n" for i in range(60)]
    lines[12] = lines[44] = "!!!!!!!!!!\n"
    made = pruner("rag", window_lines=10, overlap_lines=2, keep_windows=2)
    kept = made.prune(request("".join(lines)))
    assert [i for i, stays in enumerate(kept or ()) if stays] == [*range(8, 18), *range(40, 50)]


def test_rag_leaves_alone_what_would_stay_whole_and_what_has_no_query(pruner: Made) -> None:
    made = pruner("rag", window_lines=10, overlap_lines=2, keep_windows=2)
    assert made.prune(request("plain\n" * 18)) is None
    assert made.prune(request("plain\n" * 60, None)) is None


# --- longcodezip ---------------------------------------------------------------------------------
SOURCE = (
    "def first(a):\n    return aaaa\n"
    "@cached\ndef second(b):\n    return zzzzzzzzzzz\n"
    "class Third:\n    cccc = dddd\n"
)


def test_longcodezip_keeps_the_function_that_explains_the_query(pruner: Made) -> None:
    kept = pruner("longcodezip", rate=0.2).prune(request(SOURCE, "zzzzzzzzz zzzzzzzz"))
    assert shown(SOURCE, kept) == "@cached\ndef second(b):"
    kept = pruner("longcodezip", rate=0.3).prune(request(SOURCE, "zzzzzzzzz zzzzzzzz"))
    assert shown(SOURCE, kept).endswith("zzz")


def test_longcodezip_needs_a_query_and_something_to_choose_from(pruner: Made) -> None:
    assert pruner("longcodezip").prune(request(SOURCE, None)) is None
    assert pruner("longcodezip").prune(request("one line", "q")) is None


# --- all of them ---------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", sorted(ODD))
def test_any_text_gets_a_decision_for_every_line_or_none(
    pruner: Made, kind: str, what: str
) -> None:
    text = ODD[what]
    kept = pruner(kind).prune(request(text))
    assert kept is None or len(kept) == count_lines(text)
    if what == "many lines":
        assert kept is not None
        assert 0 < sum(kept) < len(kept)


@pytest.mark.parametrize("kind", KINDS)
def test_many_runs_at_once_get_what_each_would_get_alone(pruner: Made, kind: str) -> None:
    made = pruner(kind)
    texts = [ODD["many lines"][: 200 + 237 * i] for i in range(8)]
    alone = [made.prune(request(text)) for text in texts]
    found: list[Any] = [None] * len(texts)

    def work(i: int) -> None:
        found[i] = made.prune(request(texts[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_a_query_longer_than_the_window_keeps_its_end(pruner: Made) -> None:
    for kind in ("rag", "longcodezip"):
        assert pruner(kind).prune(request(ODD["many lines"], "why? " * 500)) is not None


# --- loading -------------------------------------------------------------------------------------
def test_arms_with_the_same_model_share_it(models: dict[str, Path], monkeypatch) -> None:
    loads: list[str] = []
    load = LocalModel.__init__

    def counted(self: LocalModel, *args: Any) -> None:
        loads.append(args[0].model)
        load(self, *args)

    monkeypatch.setattr(LocalModel, "__init__", counted)
    path = str(models["selective_context"])
    a = ArmSpec(name="a", policy=SelectiveContext(model="lm", path=path))
    b = ArmSpec(name="b", policy=LongCodeZip(model="lm", path=path, rate=0.25))
    pool = PrunerPool([a, b])
    assert pool.of(a) is not pool.of(b)
    assert pool.of(a) is pool.of(a)
    assert loads == ["lm"]


def test_a_model_of_another_kind_is_refused_by_name(models: dict[str, Path]) -> None:
    arm = ArmSpec(name="rag", policy=Rag(model="m", path=str(models["llmlingua2"])))
    with pytest.raises(
        Exception, match=r"line pruner of arm rag .* has 2 labels; a reranker has 1"
    ):
        PrunerPool([arm])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_here_is_refused_by_name(models: dict[str, Path]) -> None:
    path = str(models["llmlingua2"])
    arm = ArmSpec(name="l", policy=LlmLingua2(model="m", path=path, device="cuda"))
    with pytest.raises(NodeError, match=r"line pruner of arm l .* on cuda"):
        PrunerPool([arm])


def test_what_a_model_raises_passes_as_a_pruners_error(pruner: Made, monkeypatch) -> None:
    made = pruner("llmlingua2")

    def out_of_memory(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(LocalModel, "token_probabilities", out_of_memory)
    with pytest.raises(PrunerError, match="RuntimeError: CUDA out of memory"):
        made.prune(request("text\n" * 200))
