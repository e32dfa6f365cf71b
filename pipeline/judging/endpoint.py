"""The HTTP client of a judge's endpoint."""

from collections.abc import Mapping

from pipeline.serving.client import HttpCompleter
from pipeline.spec.judge import JudgeSpec
from pipeline.spec.model import ModelSpec, SamplingSpec


class NoJudgeError(Exception):
    """No judge can be asked; the message says what to write."""


def judge_completer(judge: JudgeSpec, environment: Mapping[str, str]) -> HttpCompleter:
    """Return the client of the judge's endpoint.

    Raises:
        NoJudgeError: endpoint or model is missing, or the key's variable is not set.
    """
    if judge.base_url is None or judge.model is None:
        raise NoJudgeError("a judge needs judge.base_url=http://HOST:PORT/v1 and judge.model=NAME")
    key = None
    if judge.api_key_env is not None:
        key = environment.get(judge.api_key_env)
        if not key:
            raise NoJudgeError(f"judge.api_key_env names {judge.api_key_env}, which is not set")
    model = ModelSpec(
        name=judge.model,
        kind="endpoint",
        repo=judge.model,
        sampling=SamplingSpec(temperature=judge.temperature),
        request_timeout_s=judge.request_timeout_s,
    )
    return HttpCompleter(model, judge.base_url, api_key=key)
